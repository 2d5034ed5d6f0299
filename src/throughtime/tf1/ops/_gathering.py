"""Elements and rows by index."""

from __future__ import annotations

from typing import Any

import torch

from throughtime.tf1.ops._helpers import plain
from throughtime.tf1.ops._structure import takes_strings
from throughtime.tf1.ops._table import Static, Tensor, operation


def _gather(params: Tensor, indices: Tensor, axis: int, batch_dims: int) -> Tensor:
    if batch_dims == 0:
        flat = params.index_select(axis, indices.reshape(-1).long())
        return flat.reshape([*params.shape[:axis], *indices.shape, *params.shape[axis + 1 :]])
    rows = [_gather(*pair, axis - 1, batch_dims - 1) for pair in zip(params, indices, strict=True)]
    return torch.stack(rows) if not params.is_meta else _gathered_meta(params, indices, axis, batch_dims)


def _gathered_meta(params: Tensor, indices: Tensor, axis: int, batch_dims: int) -> Tensor:
    shape = [*params.shape[:axis], *indices.shape[batch_dims:], *params.shape[axis + 1 :]]
    return params.new_empty(shape)


@operation(
    "gather", op_name="GatherV2", positional=("params", "indices", "validate_indices", "name", "axis", "batch_dims")
)
@takes_strings
def gather(
    params: Tensor, indices: Tensor, validate_indices: Static = None, axis: Static = None, batch_dims: Static = 0
) -> Tensor:
    """Rows of `params` by index, along an axis."""
    place = int(plain(axis)) if axis is not None else int(batch_dims)
    place %= max(params.ndim, 1)
    if params.ndim == 0:
        raise ValueError("params must be at least a vector")
    if params.is_meta:
        return _gathered_meta(params, indices, place, int(batch_dims))
    return _gather(params, indices, place, int(batch_dims))


@operation("batch_gather", op_name="BatchGather", scope="BatchGatherV2", differentiable=False)
def batch_gather(params: Tensor, indices: Tensor) -> Tensor:
    """Rows by index, for each row of the batch."""
    batch = indices.ndim - 1
    return _gathered_meta(params, indices, batch, batch) if params.is_meta else _gather(params, indices, batch, batch)


@operation("gather_nd", op_name="GatherNd", positional=("params", "indices", "name", "batch_dims"))
@takes_strings
def gather_nd(params: Tensor, indices: Tensor, batch_dims: Static = 0) -> Tensor:
    """Slices of `params` at index tuples (the last axis of `indices`)."""
    batch = int(batch_dims)
    if batch:
        flat = indices.reshape(-1, indices.shape[-1])
        own = _batch_numbers(indices, batch)
        full = torch.cat([own.reshape(-1, batch).to(flat.dtype), flat], 1)
        indices = full.reshape(*indices.shape[:-1], full.shape[-1])
    depth = indices.shape[-1]
    if depth > params.ndim:
        raise ValueError(f"indices.shape[-1] must be <= params.rank, but is {depth} for rank {params.ndim}")
    if params.is_meta:
        return params.new_empty([*indices.shape[:-1], *params.shape[depth:]])
    return params[tuple(indices.long().unbind(-1))] if depth else params.expand(*indices.shape[:-1], *params.shape)


def _batch_numbers(indices: Tensor, batch: int) -> Tensor:
    sizes = indices.shape[:batch]
    grid = torch.stack(
        torch.meshgrid(*[torch.arange(size, device=indices.device) for size in sizes], indexing="ij"), -1
    )
    inner = indices.shape[batch:-1]
    return grid.reshape(*sizes, *[1] * len(inner), batch).expand(*sizes, *inner, batch)


def _masked_shape(tensor: Any, mask: Any, axis: Any) -> list[Any]:
    sizes, masked = tensor.shape.sizes, mask.shape.sizes
    if masked is None:
        raise ValueError("Number of mask dimensions must be specified, even if some dimensions are None.")
    if not masked:
        raise ValueError("mask cannot be scalar.")
    if sizes is None:
        return [None]
    place = int(axis or 0)
    inner = sizes[place : place + len(masked)]
    if any(a is not None and b is not None and a != b for a, b in zip(inner, masked, strict=False)) or len(inner) < len(
        masked
    ):
        raise ValueError(f"Shapes {inner} and {masked} are incompatible")
    return [[*sizes[:place], None, *sizes[place + len(masked) :]]]


@operation(
    "boolean_mask",
    op_name="BooleanMask",
    scope="boolean_mask",
    positional=("tensor", "mask", "name", "axis"),
    dtypes=lambda tensor, mask, axis: [tensor.dtype.base_dtype],
    shape_rule=_masked_shape,
)
@takes_strings
def boolean_mask(tensor: Tensor, mask: Tensor, axis: Static = None) -> Tensor:
    """The elements or rows at which a mask holds."""
    place = int(plain(axis or 0))
    return tensor[(slice(None),) * place + (mask.bool(),)]


@operation("unravel_index", op_name="UnravelIndex", differentiable=False)
def unravel_index(indices: Tensor, dims: Static) -> Tensor:
    """Flat indices as index tuples `[rank, n]`."""
    sizes = torch.as_tensor(dims, dtype=indices.dtype, device=indices.device)
    strides = torch.flip(torch.cumprod(torch.flip(torch.cat([sizes[1:], sizes.new_ones(1)]), [0]), 0), [0])
    return torch.stack(
        [torch.div(indices, stride, rounding_mode="floor") % size for stride, size in zip(strides, sizes, strict=True)]
    ).to(indices.dtype)
