"""Distinct elements and differences of sets, in the order of their first occurrence."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import numpy as np
import torch

from throughtime.tf1._namespace import exported
from throughtime.tf1.graph._dtypes import as_dtype, int32
from throughtime.tf1.ops._helpers import torch_dtype
from throughtime.tf1.ops._table import Static, Tensor, operation

Unique = namedtuple("Unique", ["y", "idx"])  # noqa: PYI024
UniqueWithCounts = namedtuple("UniqueWithCounts", ["y", "idx", "count"])  # noqa: PYI024
ListDiff = namedtuple("ListDiff", ["out", "idx"])  # noqa: PYI024


def _distinct(x: Any) -> tuple[Any, Any, Any]:
    """Distinct elements in order of occurrence, the number of each element's own, and counts."""
    values = x if isinstance(x, np.ndarray) else x.numpy()
    _, first, inverse, counts = np.unique(values, return_index=True, return_inverse=True, return_counts=True)
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    found = values[np.sort(first)]
    return (
        found if isinstance(x, np.ndarray) else torch.as_tensor(found),
        torch.as_tensor(rank[inverse]),
        torch.as_tensor(counts[order]),
    )


@operation(
    "unique",
    op_name="Unique",
    differentiable=False,
    shape_rule=lambda x, out_idx: [(None,), x.shape],
    dtypes=lambda x, out_idx: [x.dtype.base_dtype, as_dtype(out_idx)],
)
def _unique(x: Tensor, out_idx: Static = int32) -> tuple[Tensor, Tensor]:
    """Distinct elements, and where each element is among them."""
    found, numbers, _ = _distinct(x)
    return found, numbers.to(torch_dtype(out_idx))


@operation(
    "unique_with_counts",
    op_name="UniqueWithCounts",
    differentiable=False,
    shape_rule=lambda x, out_idx: [(None,), x.shape, (None,)],
    dtypes=lambda x, out_idx: [x.dtype.base_dtype, as_dtype(out_idx), as_dtype(out_idx)],
)
def _unique_with_counts(x: Tensor, out_idx: Static = int32) -> tuple[Tensor, Tensor, Tensor]:
    """Distinct elements, where each element is among them, and how often each occurs."""
    found, numbers, counts = _distinct(x)
    return found, numbers.to(torch_dtype(out_idx)), counts.to(torch_dtype(out_idx))


@operation(
    "setdiff1d",
    op_name="ListDiff",
    differentiable=False,
    shape_rule=lambda x, y, index_dtype: [(None,), (None,)],
    dtypes=lambda x, y, index_dtype: [x.dtype.base_dtype, as_dtype(index_dtype)],
    same_dtype=("x", "y"),
)
def _setdiff1d(x: Tensor | Any, y: Tensor | Any, index_dtype: Static = int32) -> tuple[Any, Tensor]:
    """Elements of `x` that are not in `y`, and their indices."""
    if isinstance(x, np.ndarray):
        others = set(y.tolist())
        rest = np.array([place for place, value in enumerate(x.tolist()) if value not in others], np.int64)
        return x[rest], torch.as_tensor(rest).to(torch_dtype(index_dtype))
    places = torch.nonzero(~torch.isin(x, y)).reshape(-1)
    return x[places], places.to(torch_dtype(index_dtype))


@exported("unique")
def unique(x: Any, out_idx: Any = int32, name: str | None = None) -> Any:
    """Distinct elements `y`, and the index `idx` of each element among them."""
    return Unique(*_unique(x, out_idx, name=name))


@exported("unique_with_counts")
def unique_with_counts(x: Any, out_idx: Any = int32, name: str | None = None) -> Any:
    """Distinct elements `y`, the index `idx` of each element among them, and their counts."""
    return UniqueWithCounts(*_unique_with_counts(x, out_idx, name=name))


@exported("setdiff1d")
def setdiff1d(x: Any, y: Any, index_dtype: Any = int32, name: str | None = None) -> Any:
    """Elements of `x` that are not in `y`, and their indices."""
    return ListDiff(*_setdiff1d(x, y, index_dtype, name=name))
