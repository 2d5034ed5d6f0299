"""Tensors made of a shape: fills, ranges, unit matrices, one-hot rows, masks."""

from __future__ import annotations

import math
from typing import Any

import torch

from throughtime.tf1.graph._dtypes import bool_, float32
from throughtime.tf1.ops._convert import constant_value, is_tensor
from throughtime.tf1.ops._helpers import plain, torch_dtype
from throughtime.tf1.ops._structure import measures_strings
from throughtime.tf1.ops._table import Static, Tensor, ints, operation


@operation("fill", op_name="Fill")
def fill(dims: Static, value: Tensor) -> Tensor:
    """A tensor of one value."""
    return value.expand(ints(dims)).clone() if value.ndim == 0 else _refuse_fill(value)


def _refuse_fill(value: Tensor) -> Tensor:
    raise ValueError(f"value must be a scalar, got shape {tuple(value.shape)}")


@operation("linspace", op_name="LinSpace", differentiable=False)
def linspace(start: Tensor, stop: Tensor, num: Static) -> Tensor:
    """Numbers at equal distances, both ends included."""
    count = int(plain(num))
    steps = torch.arange(count, dtype=start.dtype)
    return start + (stop - start) / max(count - 1, 1) * steps


def _eye_batch(batch_shape: Any) -> list[int]:
    return [] if batch_shape is None else ints(batch_shape)


@operation("eye", op_name="MatrixDiag", scope="eye", differentiable=False)
def eye(num_rows: Static, num_columns: Static = None, batch_shape: Static = None, dtype: Static = float32) -> Tensor:
    """Unit matrices."""
    rows = int(plain(num_rows))
    matrix = torch.eye(rows, rows if num_columns is None else int(plain(num_columns)), dtype=torch_dtype(dtype))
    return matrix.expand([*_eye_batch(batch_shape), *matrix.shape]).clone()


@operation("one_hot", op_name="OneHot", scope="one_hot")
def one_hot(
    indices: Tensor,
    depth: Static,
    on_value: Tensor | None = None,
    off_value: Tensor | None = None,
    axis: Static = -1,
    dtype: Static = None,
) -> Tensor:
    """`on_value` at the index, `off_value` elsewhere, along a new axis; an index outside of it has no `on_value`."""
    given = next((value.dtype for value in (on_value, off_value) if value is not None), None)
    kind = torch_dtype(dtype) if dtype is not None else given or torch.float32
    on = torch.ones((), dtype=kind) if on_value is None else on_value.to(kind)
    off = torch.zeros((), dtype=kind) if off_value is None else off_value.to(kind)
    numbers = torch.arange(int(plain(depth)), device=indices.device)
    place = int(axis) if axis is not None else -1
    place = indices.ndim if place == -1 else place
    shape = [1] * (indices.ndim + 1)
    shape[place] = len(numbers)
    return torch.where(indices.unsqueeze(place) == numbers.reshape(shape), on, off)


def _mask_shape(lengths: Any, maxlen: Any, dtype: Any) -> list[Any]:
    sizes = lengths.shape.sizes
    known = None if maxlen is None else constant_value(maxlen) if is_tensor(maxlen) else maxlen
    return [None if sizes is None else [*sizes, None if known is None else int(known)]]


@operation(
    "sequence_mask",
    op_name="SequenceMask",
    differentiable=False,
    scope="SequenceMask",
    dtypes=lambda lengths, maxlen, dtype: [dtype],
    shape_rule=_mask_shape,
)
def sequence_mask(lengths: Tensor, maxlen: Static = None, dtype: Static = bool_) -> Tensor:
    """True before the length of each sequence."""
    longest = int(plain(maxlen)) if maxlen is not None else int(lengths.max()) if lengths.numel() else 0
    steps = torch.arange(longest, device=lengths.device)
    return (steps < lengths.unsqueeze(-1)).to(torch_dtype(dtype))


@operation("broadcast_to", op_name="BroadcastTo")
def broadcast_to(input: Tensor, shape: Static) -> Tensor:  # noqa: A002
    """A tensor repeated to a larger shape."""
    return torch.broadcast_to(input, ints(shape)).clone()


@operation("rank", op_name="Rank", differentiable=False)
@measures_strings
def rank(input: Tensor) -> Tensor:  # noqa: A002
    """The number of axes."""
    return torch.tensor(input.ndim, dtype=torch.int32, device="cpu")


@operation("size", op_name="Size", differentiable=False, positional=("input", "name", "out_type"))
@measures_strings
def size(input: Tensor, out_type: Static = "int32") -> Tensor:  # noqa: A002
    """The number of elements."""
    count = math.prod(input.shape)
    return torch.tensor(count, dtype=torch_dtype(out_type), device="cpu")


@operation("broadcast_dynamic_shape", op_name="BroadcastArgs", differentiable=False)
def broadcast_dynamic_shape(shape_x: Tensor, shape_y: Tensor) -> Tensor:
    """The shape that two shapes are broadcast to."""
    found = torch.broadcast_shapes(tuple(shape_x.tolist()), tuple(shape_y.tolist()))
    return torch.tensor(found, dtype=shape_x.dtype, device="cpu")
