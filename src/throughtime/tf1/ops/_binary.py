"""Functions of two numbers."""

from __future__ import annotations

import torch

from throughtime.tf1.ops._helpers import binary
from throughtime.tf1.ops._table import Static, Tensor, Tensors, operation


def _maximum(x: Tensor, y: Tensor) -> Tensor:
    """Where both are equal, the gradient is the first argument's: torch would divide it."""
    return torch.where(x < y, y, x)


def _minimum(x: Tensor, y: Tensor) -> Tensor:
    return torch.where(x > y, y, x)


def _div_no_nan(x: Tensor, y: Tensor) -> Tensor:
    zero = y == 0
    return torch.where(zero, torch.zeros((), dtype=x.dtype), x / torch.where(zero, torch.ones((), dtype=y.dtype), y))


def _polygamma(a: Tensor, x: Tensor) -> Tensor:
    """`(-1)ⁿ⁺¹ n! ζ(n + 1, x)`, the digamma function for n = 0."""
    sign = 1 - 2 * torch.remainder(a + 1, 2)
    return torch.where(a == 0, torch.digamma(x), sign * torch.exp(torch.lgamma(a + 1)) * torch.special.zeta(a + 1, x))


def _multiply_no_nan(x: Tensor, y: Tensor) -> Tensor:
    return torch.where(y == 0, torch.zeros((), dtype=x.dtype), x * y)


binary("maximum", "Maximum", _maximum, "The larger of two numbers.")
binary("minimum", "Minimum", _minimum, "The smaller of two numbers.")
binary("divide", "RealDiv", lambda x, y: torch.true_divide(*_as_floats(x, y)), "The quotient.", scope="truediv")
binary("realdiv", "RealDiv", torch.div, "The quotient of floats.", "real_div")
binary("floor_div", "FloorDiv", lambda x, y: torch.div(x, y, rounding_mode="floor"), "The quotient, rounded down.")
binary(
    "truncatediv",
    "TruncateDiv",
    lambda x, y: torch.div(x, y, rounding_mode="trunc"),
    "The quotient, rounded towards zero.",
)
binary("truncatemod", "TruncateMod", torch.fmod, "The remainder, with the sign of the dividend.", differentiable=False)
binary("div_no_nan", "DivNoNan", _div_no_nan, "The quotient, zero where the divisor is.", scope="div_no_nan")
binary("squared_difference", "SquaredDifference", lambda x, y: torch.square(x - y), "The square of the difference.")
binary("math.multiply_no_nan", "MulNoNan", _multiply_no_nan, "The product, zero where `y` is.", scope="multiply_no_nan")
binary("math.xlogy", "Xlogy", torch.special.xlogy, "`x log(y)`, zero where `x` is.")
binary(
    "math.xdivy",
    "Xdivy",
    lambda x, y: torch.where(x == 0, torch.zeros((), dtype=x.dtype), x / y),
    "`x / y`, zero where `x` is.",
)
for _name, _op_name, _function, _doc in (
    ("bitwise_and", "BitwiseAnd", torch.bitwise_and, "The bits that both have."),
    ("bitwise_or", "BitwiseOr", torch.bitwise_or, "The bits that one has."),
    ("bitwise_xor", "BitwiseXor", torch.bitwise_xor, "The bits that exactly one has."),
    ("left_shift", "LeftShift", torch.bitwise_left_shift, "Bits moved to the left."),
    ("right_shift", "RightShift", torch.bitwise_right_shift, "Bits moved to the right."),
):
    binary(f"bitwise.{_name}", _op_name, _function, _doc, differentiable=False)


def _as_floats(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Integers as floats: of 8 and 16 bits as float32, otherwise as float64."""
    if x.is_floating_point() or x.is_complex():
        return x, y
    kind = torch.float64 if x.dtype in {torch.int32, torch.int64} else torch.float32
    return x.to(kind), y.to(kind)


@operation("atan2", op_name="Atan2", same_dtype=("y", "x"))
def atan2(y: Tensor, x: Tensor) -> Tensor:
    """The angle of the point (x, y)."""
    return torch.atan2(y, x)


@operation("math.nextafter", op_name="NextAfter", same_dtype=("x1", "x2"), differentiable=False)
def nextafter(x1: Tensor, x2: Tensor) -> Tensor:
    """The next float after `x1` towards `x2`."""
    return torch.nextafter(x1, x2)


@operation("igamma", op_name="Igamma", same_dtype=("a", "x"), differentiable=False)
def igamma(a: Tensor, x: Tensor) -> Tensor:
    """The lower regularised incomplete gamma function."""
    return torch.special.gammainc(a, x)


@operation("igammac", op_name="Igammac", same_dtype=("a", "x"), differentiable=False)
def igammac(a: Tensor, x: Tensor) -> Tensor:
    """The upper regularised incomplete gamma function."""
    return torch.special.gammaincc(a, x)


@operation("zeta", op_name="Zeta", same_dtype=("x", "q"), differentiable=False)
def zeta(x: Tensor, q: Tensor) -> Tensor:
    """Hurwitz's zeta function."""
    return torch.special.zeta(x, q)


@operation("polygamma", op_name="Polygamma", same_dtype=("a", "x"), differentiable=False)
def polygamma(a: Tensor, x: Tensor) -> Tensor:
    """The derivative of order `a` of the digamma function."""
    return _polygamma(a, x)


@operation("betainc", op_name="Betainc", same_dtype=("a", "b", "x"), differentiable=False)
def betainc(a: Tensor, b: Tensor, x: Tensor) -> Tensor:
    """The regularised incomplete beta function: a continued fraction by Lentz's method, in float64."""
    a, b, x = (one.double() for one in torch.broadcast_tensors(a, b, x))
    swapped = x > (a + 1) / (a + b + 2)
    a, b, x = torch.where(swapped, b, a), torch.where(swapped, a, b), torch.where(swapped, 1 - x, x)
    front = (
        torch.exp(torch.lgamma(a + b) - torch.lgamma(a) - torch.lgamma(b) + a * torch.log(x) + b * torch.log1p(-x)) / a
    )
    result = torch.where(swapped, 1 - front * _beta_fraction(a, b, x), front * _beta_fraction(a, b, x))
    return result.to(torch.float32)


_STEPS = 120


def _beta_fraction(a: Tensor, b: Tensor, x: Tensor) -> Tensor:
    ratio = torch.ones_like(x)
    inverse = 1 / (1 - (a + b) * x / (a + 1))
    total = inverse
    for m in range(1, _STEPS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            inverse, ratio = 1 / (1 + term * inverse), 1 + term / ratio
            total = total * inverse * ratio
    return total


@operation("scalar_mul", op_name="Mul", same_dtype=("scalar", "x"))
def scalar_mul(scalar: Tensor, x: Tensor) -> Tensor:
    """A number times a tensor."""
    if scalar.ndim:
        raise ValueError("Only scalar multiply works: the first argument has an axis")
    return scalar * x


@operation("add_n", op_name="AddN")
def add_n(inputs: Tensors) -> Tensor:
    """The sum of tensors of one shape."""
    if any(one.shape != inputs[0].shape for one in inputs):
        raise ValueError("inputs must have one shape")
    total = inputs[0]
    for one in inputs[1:]:
        total = total + one
    return total


@operation("accumulate_n", op_name="AccumulateNV2", positional=("inputs", "shape", "tensor_dtype", "name"))
def accumulate_n(inputs: Tensors, shape: Static = None, tensor_dtype: Static = None) -> Tensor:
    """The sum of tensors of one shape."""
    return sum(inputs[1:], inputs[0])


@operation("math.polyval", op_name="Polyval", scope="polyval")
def polyval(coeffs: Tensors, x: Tensor) -> Tensor:
    """A polynomial, the coefficient of the highest power first (Horner)."""
    total = coeffs[0] * torch.ones_like(x)
    for coefficient in coeffs[1:]:
        total = total * x + coefficient
    return total
