"""Equality and selection."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from throughtime.tf1._namespace import exported
from throughtime.tf1.graph._dtypes import int64
from throughtime.tf1.ops._structure import measures_strings
from throughtime.tf1.ops._table import Tensor, operation


def _compared(name: str, op_name: str, holds: bool) -> None:
    def kernel(x: Tensor | Any, y: Tensor | Any) -> Tensor:
        if not isinstance(x, torch.Tensor):
            return torch.as_tensor(np.asarray(np.equal(x, y) if holds else np.not_equal(x, y), bool))
        return torch.eq(x, y) if holds else torch.ne(x, y)

    kernel.__doc__ = f"Where both are {'equal' if holds else 'different'}."
    operation(name, op_name=op_name, same_dtype=("x", "y"), differentiable=False)(measures_strings(kernel))


_compared("equal", "Equal", True)
_compared("not_equal", "NotEqual", False)


def _indices_shape(condition: Any) -> list[Any]:
    sizes = condition.shape.sizes
    return [(None, None if sizes is None else len(sizes))]


@operation("where", op_name="Where", dtypes=lambda condition: [int64], shape_rule=_indices_shape, differentiable=False)
def indices_where(condition: Tensor) -> Tensor:
    """The indices `[n, rank]` at which a condition holds."""
    return torch.nonzero(condition)


@operation("select", op_name="Select", same_dtype=("x", "y"))
def select(condition: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """`x` where a condition holds, else `y`; a condition of rank 1 selects rows."""
    if x.shape != y.shape:
        raise ValueError("x and y must have one shape")
    if condition.ndim == 1 and x.ndim > 1:
        condition = condition.reshape(-1, *[1] * (x.ndim - 1))
    elif condition.ndim and condition.shape != x.shape:
        raise ValueError("the condition must have the shape of x, or be a vector with one element for each row")
    return torch.where(condition, x, y)


@operation("where_v2", op_name="SelectV2", same_dtype=("x", "y"))
def select_broadcast(condition: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """`x` where a condition holds, else `y`; all three are broadcast."""
    return torch.where(condition, x, y)


@exported("where")
def where(condition: Any, x: Any = None, y: Any = None, name: str | None = None) -> Any:
    """`x` where a condition holds, else `y`; without both, the indices at which it holds."""
    return _choose(select, condition, x, y, name)


@exported("where_v2")
def where_v2(condition: Any, x: Any = None, y: Any = None, name: str | None = None) -> Any:
    """Like `where`, with broadcasting."""
    return _choose(select_broadcast, condition, x, y, name)


def _choose(selection: Any, condition: Any, x: Any, y: Any, name: str | None) -> Any:
    if x is None and y is None:
        return indices_where(condition, name=name)
    if x is None or y is None:
        raise ValueError("x and y must both be non-None or both be None.")
    return selection(condition, x, y, name=name)


def _increasing(name: str, strictly: bool) -> None:
    def kernel(x: Tensor) -> Tensor:
        flat = x.reshape(-1)
        before, after = flat[:-1], flat[1:]
        return torch.all(before < after if strictly else before <= after)

    kernel.__doc__ = f"Whether the elements are {'strictly increasing' if strictly else 'nowhere decreasing'}."
    operation(name, op_name="All", scope=name, differentiable=False)(kernel)


_increasing("is_non_decreasing", False)
_increasing("is_strictly_increasing", True)
