"""Arithmetic on two tensors, and what the operators of `Tensor` need."""

from __future__ import annotations

from typing import Any

import torch

from throughtime.tf1._namespace import exported
from throughtime.tf1.graph._dtypes import as_dtype
from throughtime.tf1.ops._convert import convert_to_tensor
from throughtime.tf1.ops._table import Static, Tensor, operation

_SAME = ("x", "y")


@operation("add", "math.add", op_name="Add", same_dtype=_SAME)
def add(x: Tensor, y: Tensor) -> Tensor:
    """The sum."""
    return torch.add(x, y)


@operation("subtract", "math.subtract", "sub", op_name="Sub", same_dtype=_SAME)
def subtract(x: Tensor, y: Tensor) -> Tensor:
    """The difference."""
    return torch.sub(x, y)


@operation("multiply", "math.multiply", "mul", op_name="Mul", same_dtype=_SAME)
def multiply(x: Tensor, y: Tensor) -> Tensor:
    """The product of elements."""
    return torch.mul(x, y)


@operation("truediv", "math.truediv", "realdiv", op_name="RealDiv", scope="truediv", same_dtype=_SAME)
def truediv(x: Tensor, y: Tensor) -> Tensor:
    """The quotient; integers are divided as floats (float64 from 32 bits on)."""
    if x.dtype.is_floating_point or x.dtype.is_complex:
        return torch.div(x, y)
    kind = torch.float64 if x.dtype in {torch.int32, torch.int64} else torch.float32
    return torch.div(x.to(kind), y.to(kind))


@operation("div", op_name="Div", scope="div", same_dtype=_SAME)
def div(x: Tensor, y: Tensor) -> Tensor:
    """The quotient, of integers rounded towards minus infinity as in Python 2."""
    if x.dtype.is_floating_point or x.dtype.is_complex:
        return torch.div(x, y)
    return torch.div(x, y, rounding_mode="floor")


@operation("floordiv", "floor_div", "math.floordiv", op_name="FloorDiv", scope="floordiv", same_dtype=_SAME)
def floordiv(x: Tensor, y: Tensor) -> Tensor:
    """The quotient, rounded down."""
    return torch.div(x, y, rounding_mode="floor")


@operation("floormod", "mod", "math.floormod", "math.mod", op_name="FloorMod", same_dtype=_SAME)
def floormod(x: Tensor, y: Tensor) -> Tensor:
    """The remainder, with the sign of the divisor."""
    return torch.remainder(x, y)


@operation("pow", "math.pow", op_name="Pow", same_dtype=_SAME)
def power(x: Tensor, y: Tensor) -> Tensor:
    """`x` to the power of `y`."""
    return torch.pow(x, y)


@operation("negative", "math.negative", "neg", op_name="Neg")
def negative(x: Tensor) -> Tensor:
    """The negated value."""
    return torch.neg(x)


@operation("abs", "math.abs", op_name="Abs")
def absolute(x: Tensor) -> Tensor:
    """The absolute value."""
    return torch.abs(x)


@operation(
    "matmul",
    "linalg.matmul",
    "batch_matmul",
    op_name="MatMul",
    same_dtype=("a", "b"),
    spellings={"adj_x": "adjoint_a", "adj_y": "adjoint_b"},
)
def matmul(
    a: Tensor,
    b: Tensor,
    transpose_a: Static = False,
    transpose_b: Static = False,
    adjoint_a: Static = False,
    adjoint_b: Static = False,
    a_is_sparse: Static = False,
    b_is_sparse: Static = False,
) -> Tensor:
    """The product of matrices."""
    if a.ndim < 2 or b.ndim < 2:
        raise ValueError("both factors need rank 2 or more")
    if transpose_a or adjoint_a:
        a = a.mH if adjoint_a else a.mT
    if transpose_b or adjoint_b:
        b = b.mH if adjoint_b else b.mT
    return torch.matmul(a, b)


@operation("cast", op_name="Cast")
def _cast(x: Tensor, dtype: Static) -> Tensor:
    """`x` in another dtype."""
    return x.to(as_dtype(dtype).torch_dtype)


@exported("cast", "dtypes.cast")
def cast(x: Any, dtype: Any, name: str | None = None) -> Any:
    """`x` in another dtype; `x` itself if it has that dtype."""
    tensor = convert_to_tensor(x, name="x")
    return tensor if tensor.dtype.base_dtype == as_dtype(dtype).base_dtype else _cast(tensor, dtype, name=name)


def _compared(name: str, op_name: str, function: str) -> None:
    compare = getattr(torch, function)

    def kernel(x: Tensor, y: Tensor) -> Tensor:
        return compare(x, y)

    kernel.__doc__ = f"Where `x` is {op_name.lower()} than `y`."
    operation(name, f"math.{name}", op_name=op_name, same_dtype=_SAME, differentiable=False)(kernel)


for _name, _op_name, _function in (
    ("less", "Less", "lt"),
    ("less_equal", "LessEqual", "le"),
    ("greater", "Greater", "gt"),
    ("greater_equal", "GreaterEqual", "ge"),
):
    _compared(_name, _op_name, _function)


@operation("logical_and", "math.logical_and", op_name="LogicalAnd", differentiable=False)
def logical_and(x: Tensor, y: Tensor) -> Tensor:
    """Where both hold."""
    return torch.logical_and(x, y)


@operation("logical_or", "math.logical_or", op_name="LogicalOr", differentiable=False)
def logical_or(x: Tensor, y: Tensor) -> Tensor:
    """Where one holds."""
    return torch.logical_or(x, y)


@operation("logical_xor", "math.logical_xor", op_name="LogicalXor", differentiable=False)
def logical_xor(x: Tensor, y: Tensor) -> Tensor:
    """Where exactly one holds."""
    return torch.logical_xor(x, y)


@operation("logical_not", "math.logical_not", op_name="LogicalNot", differentiable=False)
def logical_not(x: Tensor) -> Tensor:
    """Where it does not hold."""
    return torch.logical_not(x)
