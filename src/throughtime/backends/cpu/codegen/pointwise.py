"""Each pointwise operation and each reduction of the vocabulary as LLVM assembly on vectors."""

from __future__ import annotations

from collections.abc import Callable

import torch

from throughtime.compiler.ir.loop_ir import Op
from throughtime.native.toolchain.llvm_builder import Builder, LlvmValue, constant, vector
from throughtime.native.toolchain.vector_math import VectorMath

REGISTER = {torch.float32: "float", torch.float64: "double", torch.int64: "i64", torch.int32: "i32", torch.bool: "i1"}
"""The type of a value in a register."""
MEMORY = {**REGISTER, torch.bool: "i8"}
"""The type of a value in memory."""
FLOATS = {"float", "double"}

VECTOR_FUNCTIONS = {"exp", "expm1", "sigmoid", "tanh", "erf", "log", "log2", "log10", "log1p"}
_INTRINSICS = {
    "acos": "acos", "asin": "asin", "atan": "atan", "ceil": "ceil", "cos": "cos", "cosh": "cosh", "floor": "floor",
    "round": "roundeven", "sin": "sin", "sinh": "sinh", "sqrt": "sqrt", "tan": "tan", "trunc": "trunc",
}  # fmt: skip
_ARITHMETIC = {"add": "add", "sub": "sub", "mul": "mul", "div": "div"}
_BITWISE = {"bitwise_and": "and", "bitwise_or": "or", "bitwise_xor": "xor"}
_FLOAT_ORDER = {"eq": "oeq", "ne": "une", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge"}
_INTEGER_ORDER = {"eq": "eq", "ne": "ne", "lt": "slt", "le": "sle", "gt": "sgt", "ge": "sge"}
_TRUTH_ORDER = {"eq": "eq", "ne": "ne", "lt": "ult", "le": "ule", "gt": "ugt", "ge": "uge"}
START = {"sum": 0.0, "prod": 1.0, "amax": float("-inf"), "amin": float("inf")}
_LIMITS = {"i32": 2**31, "i64": 2**63, "i1": 1}


class Pointwise:
    """Writes the operations of a loop program, a vector at a time."""

    def __init__(self, builder: Builder) -> None:
        self.b = builder
        self.math = VectorMath(builder)

    def number(self, op: Op, number: float, lanes: int) -> LlvmValue:
        """A number as an operation takes it: in the dtype of the rows beside it."""
        if op.kind.startswith("logical"):
            return constant(vector(lanes, "i1"), bool(number))
        dtype = op.result.dtype if op.kind == "where" else op.rows[0].dtype
        return constant(vector(lanes, REGISTER[dtype]), number)

    def emit(self, op: Op, args: list[LlvmValue]) -> LlvmValue:
        """The result of a pointwise operation on vectors."""
        element = args[-1].element
        if op.kind in _FLOAT_ORDER:
            table = _FLOAT_ORDER if element in FLOATS else _TRUTH_ORDER if element == "i1" else _INTEGER_ORDER
            return self.b.compare(table[op.kind], *args)
        if op.kind == "pow" and isinstance(op.args[1], int | float):
            return self._power_of(args[0], op.args[1], args[1])
        special: dict[str, Callable[[], LlvmValue]] = {
            "copy": lambda: args[0],
            "cast": lambda: self.cast(args[0], REGISTER[op.result.dtype]),
            "where": lambda: self.b.select(*args),
            "logical_not": lambda: self._not(self.truth(args[0])),
            "logical_and": lambda: self.b.binary("and", *map(self.truth, args)),
            "logical_or": lambda: self.b.binary("or", *map(self.truth, args)),
        }
        if op.kind in special:
            return special[op.kind]()
        return self._handler(element)(op.kind, args)

    def _handler(self, element: str) -> Callable[[str, list[LlvmValue]], LlvmValue]:
        return self._float if element in FLOATS else self._logical if element == "i1" else self._integer

    def _not(self, x: LlvmValue) -> LlvmValue:
        return self.b.binary("xor", x, constant(x.type, 1 if x.element == "i1" else -1))

    def truth(self, x: LlvmValue) -> LlvmValue:
        """Whether `x` is anything but zero; NaN is."""
        if x.element == "i1":
            return x
        return self.b.compare("une" if x.element in FLOATS else "ne", x, constant(x.type, 0))

    def cast(self, x: LlvmValue, element: str) -> LlvmValue:
        if element == x.element:
            return x
        if element == "i1":
            return self.truth(x)
        if x.element in FLOATS:
            if element in FLOATS:
                return self.b.convert("fpext" if element == "double" else "fptrunc", x, element)
            # What has no integer has no defined result either, but must not spread to what follows.
            whole = self.b.convert("fptosi", x, element)
            return self.b.let(whole.type, f"freeze {whole}")
        if element in FLOATS:
            return self.b.convert("uitofp" if x.element == "i1" else "sitofp", x, element)
        wider = {"i1": 1, "i32": 32, "i64": 64}
        word = "trunc" if wider[element] < wider[x.element] else "zext" if x.element == "i1" else "sext"
        return self.b.convert(word, x, element)

    def combine(self, kind: str, left: LlvmValue, right: LlvmValue) -> LlvmValue:
        """One step of a reduction."""
        names = {"sum": "add", "prod": "mul", "amax": "maximum", "amin": "minimum"}
        return self._handler(left.element)(names[kind], [left, right])

    def start(self, kind: str, vector_type: str, element: str) -> LlvmValue:
        """What a reduction starts from: it changes nothing."""
        number = START[kind]
        if element not in FLOATS and kind in {"amax", "amin"}:
            number = -_LIMITS[element] if kind == "amax" else _LIMITS[element] - 1
            if element == "i1":
                number = 0 if kind == "amax" else 1
        return constant(vector_type, number)

    def _logical(self, kind: str, args: list[LlvmValue]) -> LlvmValue:
        """Arithmetic of truth values."""
        if kind == "isnan":
            return constant(args[0].type, 0)
        words = {"add": "or", "maximum": "or", "mul": "and", "minimum": "and", **_BITWISE}
        return self.b.binary(words[kind], *args) if kind in words else self._not(args[0])

    def _float(self, kind: str, args: list[LlvmValue]) -> LlvmValue:
        if kind in _ARITHMETIC:
            return self.b.binary(f"f{_ARITHMETIC[kind]}", *args)
        if kind in VECTOR_FUNCTIONS:
            result: LlvmValue = getattr(self.math, kind)(args[0])
            return result
        if kind in _INTRINSICS:
            return self.b.intrinsic(_INTRINSICS[kind], args[0])
        if kind in {"atan2", "pow"}:
            return self.b.intrinsic(kind, *args)
        special: Callable[..., LlvmValue] = getattr(self, f"_float_{kind}")
        return special(*args)

    def _float_abs(self, x: LlvmValue) -> LlvmValue:
        return self.b.intrinsic("fabs", x)

    def _float_neg(self, x: LlvmValue) -> LlvmValue:
        return self.math.negative(x)

    def _float_isnan(self, x: LlvmValue) -> LlvmValue:
        return self.b.compare("uno", x, x)

    def _float_relu(self, x: LlvmValue) -> LlvmValue:
        zero = constant(x.type, 0.0)
        return self.b.select(self.b.compare("ole", x, zero), zero, x)

    def _float_reciprocal(self, x: LlvmValue) -> LlvmValue:
        return self.b.binary("fdiv", constant(x.type, 1.0), x)

    def _float_rsqrt(self, x: LlvmValue) -> LlvmValue:
        return self._float_reciprocal(self.b.intrinsic("sqrt", x))

    def _float_sign(self, x: LlvmValue) -> LlvmValue:
        zero, one, minus = (constant(x.type, number) for number in (0.0, 1.0, -1.0))
        positive = self.b.select(self.b.compare("ogt", x, zero), one, zero)
        return self.b.select(self.b.compare("olt", x, zero), minus, positive)

    def _float_maximum(self, left: LlvmValue, right: LlvmValue) -> LlvmValue:
        return self._extreme("ogt", left, right)

    def _float_minimum(self, left: LlvmValue, right: LlvmValue) -> LlvmValue:
        return self._extreme("olt", left, right)

    def _extreme(self, predicate: str, left: LlvmValue, right: LlvmValue) -> LlvmValue:
        # The inner choice hands on a NaN on the right, the outer one a NaN on the left.
        chosen = self.b.select(self.b.compare(predicate, left, right), left, right)
        return self.b.select(self.b.compare("uno", left, left), left, chosen)

    def _float_remainder(self, left: LlvmValue, right: LlvmValue) -> LlvmValue:
        rest = self.b.binary("frem", left, right)
        return self.b.select(self._other_side(rest, right), self.b.binary("fadd", rest, right), rest)

    def _other_side(self, rest: LlvmValue, divisor: LlvmValue) -> LlvmValue:
        """Whether a remainder is not zero and has another sign than the divisor."""
        zero = constant(rest.type, 0.0)
        signs = self.b.compare("olt", divisor, zero), self.b.compare("olt", rest, zero)
        return self.b.binary("and", self.b.binary("xor", *signs), self.b.compare("une", rest, zero))

    def _float_floor_divide(self, left: LlvmValue, right: LlvmValue) -> LlvmValue:
        zero, one = constant(left.type, 0.0), constant(left.type, 1.0)
        plain = self.b.binary("fdiv", left, right)
        rest = self.b.binary("frem", left, right)
        whole = self.b.binary("fdiv", self.b.binary("fsub", left, rest), right)
        lowered = self.b.binary("fsub", whole, one)
        whole = self.b.select(self._other_side(rest, right), lowered, whole)
        floor = self.b.intrinsic("floor", whole)
        # The quotient was meant to be whole; rounding may have left it just below.
        below = self.b.compare("ogt", self.b.binary("fsub", whole, floor), constant(left.type, 0.5))
        floor = self.b.select(below, self.b.binary("fadd", floor, one), floor)
        nothing = self.b.intrinsic("copysign", zero, plain)
        result = self.b.select(self.b.compare("oeq", whole, zero), nothing, floor)
        return self.b.select(self.b.compare("oeq", right, zero), plain, result)

    def _power_of(self, x: LlvmValue, exponent: float, vector_exponent: LlvmValue) -> LlvmValue:
        """A power that is known beforehand; torch, too, computes these without `pow`."""
        if x.element not in FLOATS:
            return self._integer_power(x, int(exponent))
        square: Callable[[], LlvmValue] = lambda: self.b.binary("fmul", x, x)  # noqa: E731
        special: dict[float, Callable[[], LlvmValue]] = {
            -2: lambda: self._float_reciprocal(square()),
            -1: lambda: self._float_reciprocal(x),
            -0.5: lambda: self._float_rsqrt(x),
            0: lambda: constant(x.type, 1.0),
            0.5: lambda: self.b.intrinsic("sqrt", x),
            1: lambda: x,
            2: square,
            3: lambda: self.b.binary("fmul", square(), x),
        }
        return special[exponent]() if exponent in special else self.b.intrinsic("pow", x, vector_exponent)

    def _integer_power(self, x: LlvmValue, exponent: int) -> LlvmValue:
        result = constant(x.type, 1)
        while exponent:
            if exponent & 1:
                result = self.b.binary("mul", result, x)
            x = self.b.binary("mul", x, x)
            exponent >>= 1
        return result

    def _integer(self, kind: str, args: list[LlvmValue]) -> LlvmValue:
        x, zero = args[0], constant(args[0].type, 0)
        if kind in _ARITHMETIC or kind in _BITWISE:
            return self.b.binary(_ARITHMETIC.get(kind) or _BITWISE[kind], *args)
        table: dict[str, Callable[[], LlvmValue]] = {
            "maximum": lambda: self.b.intrinsic("smax", *args),
            "minimum": lambda: self.b.intrinsic("smin", *args),
            "remainder": lambda: self._integer_division(kind, *args),
            "floor_divide": lambda: self._integer_division(kind, *args),
            "bitwise_not": lambda: self._not(x),
            "neg": lambda: self.b.binary("sub", zero, x),
            "abs": lambda: self.b.intrinsic("smax", x, self.b.binary("sub", zero, x)),
            "relu": lambda: self.b.intrinsic("smax", x, zero),
            "sign": lambda: self._integer_sign(x),
            "isnan": lambda: self.b.compare("ne", x, x),
        }
        # Rounding a whole number leaves it as it is.
        return table.get(kind, lambda: x)()

    def _integer_sign(self, x: LlvmValue) -> LlvmValue:
        above = self.b.intrinsic("smax", x, constant(x.type, -1))
        return self.b.intrinsic("smin", above, constant(x.type, 1))

    def _integer_division(self, kind: str, left: LlvmValue, right: LlvmValue) -> LlvmValue:
        """Rounded towards minus infinity; the divisor is a number and not zero."""
        zero = constant(left.type, 0)
        rest = self.b.binary("srem", left, right)
        signs = self.b.binary("xor", rest, right)
        other = self.b.binary("and", self.b.compare("slt", signs, zero), self.b.compare("ne", rest, zero))
        if kind == "remainder":
            return self.b.select(other, self.b.binary("add", rest, right), rest)
        whole = self.b.binary("sdiv", left, right)
        return self.b.select(other, self.b.binary("sub", whole, constant(left.type, 1)), whole)
