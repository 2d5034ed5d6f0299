"""Functions of whole vectors, as LLVM assembly: exp, log, tanh and their kin, without branches.

Every function takes NaN to NaN, the infinities to their limits, and any lane independently of the others. The
coefficients are near-minimax fits made for these ranges; the tests hold the errors down. None of the conversions here
is undefined for NaN: exponents are read from and written to the bits of a number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from throughtime.native.toolchain.llvm_builder import Builder, LlvmValue, constant


@dataclass(frozen=True)
class _Format:
    """One of the two formats of floating point, and what its polynomials look like."""

    bits: str
    fraction: int
    """How many bits the fraction has."""
    bias: int
    magic: float
    """Added to a number, it leaves the nearest integer in the lowest bits."""
    exp_low: float
    exp_high: float
    ln2_high: float
    ln2_low: float
    exp: tuple[float, ...]
    """(exp(r) - 1 - r) / r² for |r| < ln(2) / 2."""
    power: tuple[float, ...]
    """exp(r) for the same r, as good as a sigmoid needs it."""
    atanh: tuple[float, ...]
    """(atanh(s) / s - 1) / s² in powers of s², for s up to (√2 - 1) / (√2 + 1)."""


_FLOAT = _Format(
    bits="i32", fraction=23, bias=127, magic=1.5 * 2.0**23, exp_low=-104.0, exp_high=89.0,
    ln2_high=0.693145751953125, ln2_low=1.42860682030941723212e-6,
    exp=(0.5, 0.16666573381900845, 0.04166655011030512, 0.008363773874405574, 0.0013926926614021907),
    power=(
        1.0, 0.9999996983295895, 0.4999913252223404, 0.1666765564905986, 0.04190023760827715, 0.008289887756570198,
    ),
    atanh=(0.3333333327494159, 0.20000062797277182, 0.14275198479809006, 0.11670971694357281),
)  # fmt: skip
_DOUBLE = _Format(
    bits="i64", fraction=52, bias=1023, magic=1.5 * 2.0**52, exp_low=-746.0, exp_high=710.0,
    ln2_high=0.693147180369123816490, ln2_low=1.90821492927058770002e-10,
    exp=(
        0.5, 0.1666666666666667, 0.04166666666666667, 0.008333333333325544, 0.0013888888888883327,
        0.00019841269876864356, 2.4801587327007187e-05, 2.755725283351691e-06, 2.75572718102198e-07,
        2.5106274733573296e-08, 2.0915442297780116e-09,
    ),
    power=(
        1.0, 1.0, 0.5, 0.1666666666666667, 0.04166666666666667, 0.008333333333325544, 0.0013888888888883327,
        0.00019841269876864356, 2.4801587327007187e-05, 2.755725283351691e-06, 2.75572718102198e-07,
        2.5106274733573296e-08, 2.0915442297780116e-09,
    ),
    atanh=(
        0.3333333333333333, 0.19999999999999996, 0.1428571428571793, 0.11111111109855148, 0.09090909307588639,
        0.07692286725014484, 0.06667855542504218, 0.05843254458656023, 0.05948279284206082,
    ),
)  # fmt: skip

# x P(x²) / Q(x²), float32. Past its last point either function is 1 to the last bit.
_TANH_END = 9.02
_TANH_P = (0.9999999790288591, 0.13379713052091238, 0.0034940287513429203, 2.0583386916627704e-05,
           1.3318945829953468e-08)  # fmt: skip
_TANH_Q = (1.0, 0.46713028296180703, 0.025871051092667796, 0.0003283083377233173, 7.761966738944847e-07)
_ERF_END = 3.95
_ERF_P = (1.1283791437554822, 0.19155038227657817, 0.05287543700761342, 0.003808158435587415,
          0.00028468671196231975, 2.02589619632889e-06)  # fmt: skip
_ERF_Q = (1.0, 0.5030897821080977, 0.11455963607167345, 0.015055085443058579, 0.0011707231410648278,
          3.783162243226868e-05)  # fmt: skip

_INFINITY = float("inf")
_LN_2 = 0.6931471805599453
_LOG2_E = 1.4426950408889634


class VectorMath:
    """Writes functions of vectors of float or double into a builder."""

    def __init__(self, builder: Builder) -> None:
        self.b = builder

    def exp(self, x: LlvmValue) -> LlvmValue:
        form = _format(x)
        clamped = self.clamp(x, form.exp_low, form.exp_high)
        remainder, exponent = self._reduce(clamped)
        power = self.b.binary("fadd", self._exp_minus_one(remainder), constant(x.type, 1.0))
        # In two halves: the whole power of two may be too large or too small to be a normal number.
        half = self.b.binary("ashr", exponent, constant(exponent.type, 1))
        rest = self.b.binary("sub", exponent, half)
        power = self.b.binary("fmul", power, self._power_of_two(half, x))
        return self.b.binary("fmul", power, self._power_of_two(rest, x))

    def expm1(self, x: LlvmValue) -> LlvmValue:
        form = _format(x)
        # Below the lower bound the result is -1 to the last bit.
        clamped = self.clamp(x, -0.55 * form.fraction * 2, form.exp_high)
        remainder, exponent = self._reduce(clamped)
        small = self._exp_minus_one(remainder)
        half = self.b.binary("sub", exponent, constant(exponent.type, 1))
        scale = self._power_of_two(half, x)
        # Half of the result, so that the largest results do not overflow on the way.
        result = self.b.fma(small, scale, self.b.binary("fsub", scale, constant(x.type, 0.5)))
        result = self.b.binary("fadd", result, result)
        zero = self.b.compare("oeq", x, constant(x.type, 0.0))
        return self.b.select(zero, x, result)

    def sigmoid(self, x: LlvmValue) -> LlvmValue:
        """1 / (1 + exp(-x))."""
        form = _format(x)
        # Above the upper bound the result is 1 to the last bit; below the lower one exp(-x) comes out as infinity.
        low, high = (-89.0, 30.0) if x.element == "float" else (-710.0, 50.0)
        x = self.clamp(x, low, high)
        magic = constant(x.type, form.magic)
        shifted = self.b.fma(x, constant(x.type, -_LOG2_E), magic)
        whole = self.b.binary("fsub", shifted, magic)
        if x.element == "float":
            # One product with ln(2) is enough: what it blurs is the last bit of results near zero.
            remainder = self.b.fma(whole, constant(x.type, -_LN_2), self.negative(x))
        else:
            remainder = self._minus_multiple(self.negative(x), whole)
        exponent = self.b.convert("bitcast", shifted, form.bits)
        power = self.b.binary("fmul", self.polynomial(remainder, form.power), self._power_of_two(exponent, x))
        one = constant(x.type, 1.0)
        return self.b.binary("fdiv", one, self.b.binary("fadd", power, one))

    def tanh(self, x: LlvmValue) -> LlvmValue:
        if x.element == "float":
            return self._odd_rational(x, _TANH_END, _TANH_P, _TANH_Q)
        size = self.clamp(self.b.intrinsic("fabs", x), 0.0, 22.0)
        part = self.expm1(self.b.binary("fmul", size, constant(x.type, -2.0)))
        quotient = self.b.binary("fdiv", self.negative(part), self.b.binary("fadd", part, constant(x.type, 2.0)))
        return self.b.intrinsic("copysign", quotient, x)

    def erf(self, x: LlvmValue) -> LlvmValue:
        if x.element == "float":
            return self._odd_rational(x, _ERF_END, _ERF_P, _ERF_Q)
        return self.b.scalar_call("erf", x)

    def log(self, x: LlvmValue) -> LlvmValue:
        form = _format(x)
        series, exponent = self._log_parts(x)
        low = self.b.fma(exponent, constant(x.type, form.ln2_low), series)
        return self._log_limits(x, self.b.fma(exponent, constant(x.type, form.ln2_high), low))

    def log2(self, x: LlvmValue) -> LlvmValue:
        series, exponent = self._log_parts(x)
        return self._log_limits(x, self.b.fma(series, constant(x.type, _LOG2_E), exponent))

    def log10(self, x: LlvmValue) -> LlvmValue:
        series, exponent = self._log_parts(x)
        low = self.b.binary("fmul", series, constant(x.type, 0.4342944819032518))
        # log10(2) in two parts, the first of few bits.
        low = self.b.fma(exponent, constant(x.type, 0.30102999566398119521 - 0.301025390625), low)
        return self._log_limits(x, self.b.fma(exponent, constant(x.type, 0.301025390625), low))

    def log1p(self, x: LlvmValue) -> LlvmValue:
        one = constant(x.type, 1.0)
        rounded = self.b.binary("fadd", x, one)
        lost = self.b.binary("fsub", self.b.binary("fsub", rounded, one), x)
        logarithm = self.log(rounded)
        better = self.b.binary("fsub", logarithm, self.b.binary("fdiv", lost, rounded))
        # At -1 and at infinity the correction is 0 / 0 or worse.
        limit = self.b.compare("oeq", self.b.intrinsic("fabs", logarithm), constant(x.type, _INFINITY))
        result = self.b.select(limit, logarithm, better)
        return self.b.select(self.b.compare("oeq", x, constant(x.type, 0.0)), x, result)

    def clamp(self, x: LlvmValue, low: float, high: float) -> LlvmValue:
        """`x` within bounds; NaN stays."""
        for predicate, bound in (("olt", low), ("ogt", high)):
            limit = constant(x.type, bound)
            x = self.b.select(self.b.compare(predicate, x, limit), limit, x)
        return x

    def negative(self, x: LlvmValue) -> LlvmValue:
        return self.b.let(x.type, f"fneg {x}")

    def polynomial(self, x: LlvmValue, coefficients: Sequence[float]) -> LlvmValue:
        """Coefficients from the lowest power up."""
        result = constant(x.type, coefficients[-1])
        for coefficient in reversed(coefficients[:-1]):
            result = self.b.fma(result, x, constant(x.type, coefficient))
        return result

    def _odd_rational(self, x: LlvmValue, end: float, above: Sequence[float], below: Sequence[float]) -> LlvmValue:
        clamped = self.clamp(x, -end, end)
        square = self.b.binary("fmul", clamped, clamped)
        numerator = self.b.binary("fmul", clamped, self.polynomial(square, above))
        return self.clamp(self.b.binary("fdiv", numerator, self.polynomial(square, below)), -1.0, 1.0)

    def _minus_multiple(self, x: LlvmValue, whole: LlvmValue) -> LlvmValue:
        """`x` less a multiple of ln(2)."""
        form = _format(x)
        remainder = self.b.fma(whole, constant(x.type, -form.ln2_high), x)
        return self.b.fma(whole, constant(x.type, -form.ln2_low), remainder)

    def _reduce(self, x: LlvmValue) -> tuple[LlvmValue, LlvmValue]:
        """`x = r + n ln(2)`: r, and n as an integer."""
        form = _format(x)
        magic = constant(x.type, form.magic)
        shifted = self.b.fma(x, constant(x.type, _LOG2_E), magic)
        whole = self.b.binary("fsub", shifted, magic)
        remainder = self._minus_multiple(x, whole)
        bits = self.b.convert("bitcast", shifted, form.bits)
        origin = constant(bits.type, _bits_of(form))
        return remainder, self.b.binary("sub", bits, origin)

    def _exp_minus_one(self, remainder: LlvmValue) -> LlvmValue:
        square = self.b.binary("fmul", remainder, remainder)
        return self.b.fma(square, self.polynomial(remainder, _format(remainder).exp), remainder)

    def _power_of_two(self, exponent: LlvmValue, like: LlvmValue) -> LlvmValue:
        form = _format(like)
        biased = self.b.binary("add", exponent, constant(exponent.type, form.bias))
        bits = self.b.binary("shl", biased, constant(exponent.type, form.fraction))
        return self.b.convert("bitcast", bits, like.element)

    def _log_parts(self, x: LlvmValue) -> tuple[LlvmValue, LlvmValue]:
        """`x = m 2^e` with m near one: log(m), and e as a floating-point number."""
        form = _format(x)
        tiny = self.b.compare("olt", x, constant(x.type, 2.0 ** (1 - form.bias)))
        scaled = self.b.binary("fmul", x, constant(x.type, 2.0**form.fraction))
        normal = self.b.select(tiny, scaled, x)
        bits = self.b.convert("bitcast", normal, form.bits)
        root = constant(bits.type, _SQRT_HALF[form.bits])
        above = self.b.binary("sub", bits, root)
        whole = self.b.binary("ashr", above, constant(bits.type, form.fraction))
        moved = self.b.binary("sub", bits, self.b.binary("shl", whole, constant(bits.type, form.fraction)))
        mantissa = self.b.convert("bitcast", moved, x.element)
        exponent = self.b.convert("sitofp", whole, x.element)
        lowered = self.b.binary("fsub", exponent, constant(x.type, form.fraction))
        exponent = self.b.select(tiny, lowered, exponent)
        part = self.b.binary("fsub", mantissa, constant(x.type, 1.0))
        s = self.b.binary("fdiv", part, self.b.binary("fadd", part, constant(x.type, 2.0)))
        square = self.b.binary("fmul", s, s)
        twice = self.b.binary("fadd", s, s)
        tail = self.b.binary("fmul", square, self.polynomial(square, form.atanh))
        return self.b.fma(twice, tail, twice), exponent

    def _log_limits(self, x: LlvmValue, result: LlvmValue) -> LlvmValue:
        """The logarithm where it is a limit: of infinity, of zero, of negative numbers and NaN."""
        infinity = constant(x.type, _INFINITY)
        result = self.b.select(self.b.compare("oeq", x, infinity), infinity, result)
        zero = self.b.compare("oeq", x, constant(x.type, 0.0))
        result = self.b.select(zero, constant(x.type, -_INFINITY), result)
        wrong = self.b.compare("ult", x, constant(x.type, 0.0))
        return self.b.select(wrong, constant(x.type, float("nan")), result)


# The bits of the square root of one half.
_SQRT_HALF = {"i32": 0x3F3504F3, "i64": 0x3FE6A09E667F3BCD}


def _format(x: LlvmValue) -> _Format:
    return _FLOAT if x.element == "float" else _DOUBLE


def _bits_of(form: _Format) -> int:
    """The bits of the magic number."""
    return (form.bias + form.fraction << form.fraction) | (1 << form.fraction - 1)
