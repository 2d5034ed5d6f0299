"""Segments: rows with the same number reduced to one."""

from __future__ import annotations

from typing import Any

import torch

from throughtime.tf1.ops._helpers import plain
from throughtime.tf1.ops._table import Static, Tensor, operation

# What a segment without rows has.
_EMPTY = {"sum": 0, "mean": 0, "prod": 1, "sqrt_n": 0}
_REDUCE = {"sum": "sum", "mean": "mean", "prod": "prod", "max": "amax", "min": "amin", "sqrt_n": "sum"}


def _reduced(kind: str, data: Tensor, ids: Tensor, count: int, empty: float | None) -> Tensor:
    """`[count, …]`: the rows of each segment reduced; a segment without rows has the value `empty`."""
    inner = data.shape[ids.ndim :]
    flat, numbers = data.reshape(-1, *inner), ids.reshape(-1).long()
    inside = numbers >= 0
    flat, numbers = flat[inside], numbers[inside]
    start = flat.new_full((count, *inner), _limit(kind, data.dtype) if empty is None else empty)
    index = numbers.reshape(-1, *[1] * len(inner)).expand(flat.shape)
    result = start.scatter_reduce(0, index, flat, _REDUCE[kind], include_self=False)
    if kind == "sqrt_n":
        sizes = torch.zeros(count, dtype=data.dtype).index_add(0, numbers, torch.ones_like(numbers, dtype=data.dtype))
        result = result / sizes.clamp(min=1).sqrt().reshape(-1, *[1] * len(inner))
    return result


def _limit(kind: str, dtype: torch.dtype) -> float:
    if kind in _EMPTY:
        return _EMPTY[kind]
    limits = torch.finfo(dtype) if dtype.is_floating_point else torch.iinfo(dtype)
    return limits.min if kind == "max" else limits.max


def _rows_unknown(data: Any, segment_ids: Any, **_: Any) -> list[Any]:
    sizes = data.shape.sizes
    return [None if sizes is None else [None, *sizes[1:]]]


def _segment(kind: str) -> None:
    def kernel(data: Tensor, segment_ids: Tensor) -> Tensor:
        count = int(segment_ids[-1]) + 1 if segment_ids.numel() else 0
        return _reduced(kind, data, segment_ids, count, 1 if kind == "prod" else 0)

    kernel.__doc__ = f"The {kind} of the rows of each segment; ids are sorted."
    operation(
        f"segment_{kind}",
        op_name=f"Segment{kind.title()}",
        shape_rule=_rows_unknown,
        dtypes=lambda data, segment_ids: [data.dtype.base_dtype],
    )(kernel)


def _unsorted_shape(data: Any, segment_ids: Any, num_segments: Any) -> list[Any]:
    sizes, ids = data.shape.sizes, segment_ids.shape.sizes
    count = num_segments if isinstance(num_segments, int) else None
    return [None if sizes is None or ids is None else [count, *sizes[len(ids) :]]]


def _unsorted(kind: str) -> None:
    def kernel(data: Tensor, segment_ids: Tensor, num_segments: Static) -> Tensor:
        return _reduced(kind, data, segment_ids, int(plain(num_segments)), None)

    kernel.__doc__ = f"The {kind} of the rows of each segment; rows with a negative id are left out."
    op_name = "UnsortedSegment" + kind.title().replace("_", "")
    operation(
        f"unsorted_segment_{kind}",
        op_name=op_name,
        scope=_UNSORTED_NAMES.get(kind, op_name),
        shape_rule=_unsorted_shape,
        dtypes=lambda data, segment_ids, num_segments: [data.dtype.base_dtype],
    )(kernel)


_UNSORTED_NAMES = {"mean": "UnsortedSegmentMean", "sqrt_n": "UnsortedSegmentSqrtN"}


def _sparse_shape(data: Any, indices: Any, segment_ids: Any, num_segments: Any) -> list[Any]:
    sizes = data.shape.sizes
    return [None if sizes is None else [num_segments if isinstance(num_segments, int) else None, *sizes[1:]]]


def _sparse(kind: str) -> None:
    def kernel(data: Tensor, indices: Tensor, segment_ids: Tensor, num_segments: Static = None) -> Tensor:
        last = int(segment_ids[-1]) + 1 if segment_ids.numel() else 0
        count = last if num_segments is None else int(plain(num_segments))
        return _reduced(kind, data[indices.long()], segment_ids, count, 0)

    kernel.__doc__ = f"The {kind} of chosen rows of each segment."
    op_name = "SparseSegment" + kind.title().replace("_", "")
    operation(
        f"sparse_segment_{kind}",
        op_name=op_name,
        positional=("data", "indices", "segment_ids", "name", "num_segments"),
        shape_rule=_sparse_shape,
        dtypes=lambda **arguments: [arguments["data"].dtype.base_dtype],
    )(kernel)


for _kind in ("sum", "mean", "max", "min", "prod"):
    _segment(_kind)
for _kind in _REDUCE:
    _unsorted(_kind)
for _kind in ("sum", "mean", "sqrt_n"):
    _sparse(_kind)
