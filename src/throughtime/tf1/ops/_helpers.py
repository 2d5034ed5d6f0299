"""What the families of operations share: axes, dtypes, shape rules, regular registrations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from throughtime.tf1.graph._dtypes import DType, as_dtype
from throughtime.tf1.graph._shapes import as_shape
from throughtime.tf1.ops._convert import is_tensor
from throughtime.tf1.ops._table import Tensor, ints, operation


def torch_dtype(dtype: Any) -> torch.dtype:
    """The torch dtype of anything that names a dtype."""
    found = as_dtype(dtype).torch_dtype
    if found is None:
        raise TypeError(f"dtype {as_dtype(dtype).name} has no numbers")
    return found


def axes(axis: Any, ndim: int) -> list[int]:
    """The axes of a reduction, as numbers from 0; all of them for None."""
    if axis is None:
        return list(range(ndim))
    found = ints(axis)
    found = found if isinstance(found, list) else [found]
    if any(not -ndim <= one < ndim for one in found):
        raise ValueError(f"Invalid reduction dimension {found} for an input with {ndim} dimensions")
    return sorted({one % ndim for one in found})


def unary(
    name: str,
    op_name: str,
    function: Callable[[Tensor], Tensor],
    doc: str,
    *others: str,
    scope: str | None = None,
    argument: str = "x",
    differentiable: bool = True,
    fallback_rule: Callable[..., Any] | None = None,
) -> Any:
    """Register a function of one tensor."""

    def kernel(x: Tensor) -> Tensor:
        return function(x)

    kernel.__doc__ = doc
    kernel.__name__ = name.rpartition(".")[2]
    spellings = {argument: "x"} if argument != "x" else None
    positional = (argument, "name") if argument != "x" else None
    return operation(
        name,
        *others,
        op_name=op_name,
        scope=scope,
        spellings=spellings,
        positional=positional,
        differentiable=differentiable,
        fallback_rule=fallback_rule,
    )(kernel)


def binary(
    name: str,
    op_name: str,
    function: Callable[[Tensor, Tensor], Tensor],
    doc: str,
    *others: str,
    scope: str | None = None,
    differentiable: bool = True,
) -> Any:
    """Register a function of two tensors of one dtype."""

    def kernel(x: Tensor, y: Tensor) -> Tensor:
        return function(x, y)

    kernel.__doc__ = doc
    kernel.__name__ = name.rpartition(".")[2]
    return operation(name, *others, op_name=op_name, scope=scope, same_dtype=("x", "y"), differentiable=differentiable)(
        kernel
    )


def dtype_of(argument: str) -> Callable[..., list[DType]]:
    """A dtype rule: one result with the dtype of this argument."""
    return lambda **arguments: [arguments[argument].dtype.base_dtype]


def same_shape_as(argument: str) -> Callable[..., list[Any]]:
    """A shape rule: one result with the shape of this argument."""
    return lambda **arguments: [arguments[argument].shape]


def plain(value: Any) -> Any:
    """A number that may have come as a tensor: a Python number."""
    return value.item() if isinstance(value, torch.Tensor) else value


def as_list(value: Any) -> list[Any]:
    """A list or tuple as a list, anything else as a list of one."""
    return list(value) if isinstance(value, Sequence) and not isinstance(value, str | bytes) else [value]


def sizes_of(shape: Any) -> list[int | None] | None:
    """The static shape that an argument `shape` describes: a list, a `TensorShape`, or a tensor."""
    if not is_tensor(shape):
        found = as_shape(shape).sizes
        return None if found is None else [None if size is None or size < 0 else size for size in found]
    if shape.host is None:
        known = shape.shape.sizes
        return None if not known or known[0] is None else [None] * known[0]
    first, second = (one.tolist() for one in shape.host)
    return [a if a == b and a >= 0 else None for a, b in zip(first, second, strict=True)]
