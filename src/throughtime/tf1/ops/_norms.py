"""Norms, and clipping by them."""

from __future__ import annotations

from typing import Any

import torch

from throughtime.tf1._namespace import exported
from throughtime.tf1.graph._scopes import name_scope
from throughtime.tf1.ops._convert import convert_to_tensor
from throughtime.tf1.ops._helpers import axes
from throughtime.tf1.ops._indexed_slices import IndexedSlices
from throughtime.tf1.ops._table import Static, Tensor, Tensors, operation


def _norm(tensor: Tensor, order: Any, axis: Any, keep: bool) -> Tensor:
    pair = isinstance(axis, list | tuple) and len(axis) == 2
    if order in {"euclidean", "fro"}:
        return torch.linalg.vector_norm(tensor, 2, axis if axis is None else axes(axis, tensor.ndim), keep)
    if pair and order in {1, float("inf"), 2}:
        return torch.linalg.matrix_norm(tensor, order, tuple(axis), keep)
    return torch.linalg.vector_norm(tensor, float(order), axis if axis is None else axes(axis, tensor.ndim), keep)


@operation(
    "norm",
    op_name="Norm",
    scope="norm",
    spellings={"keep_dims": "keepdims"},
    positional=("tensor", "ord", "axis", "keepdims", "name", "keep_dims"),
)
def norm(tensor: Tensor, ord: Static = "euclidean", axis: Static = None, keepdims: Static = False) -> Tensor:  # noqa: A002
    """A norm of vectors, or of matrices if `axis` has two axes."""
    return _norm(tensor, ord, axis, bool(keepdims))


@operation("linalg.normalize", op_name="Normalize", scope="normalize")
def normalize(tensor: Tensor, ord: Static = "euclidean", axis: Static = None) -> tuple[Tensor, Tensor]:  # noqa: A002
    """A tensor divided by its norm, and the norm."""
    found = _norm(tensor, ord, axis, True)
    return tensor / found, found


def _global_norm(tensors: Any) -> Tensor:
    """The root of twice the sum of half the squares: what TensorFlow computes."""
    halves = torch.stack([torch.sum(one * one) / 2 for one in tensors])
    return torch.sqrt(torch.sum(halves) * 2)


@operation("global_norm", op_name="GlobalNorm", scope="global_norm")
def _global_norm_of(t_list: Tensors) -> Tensor:
    """The norm of all tensors together."""
    return _global_norm(t_list)


@operation("clip_by_global_norm", op_name="ClipByGlobalNorm", scope="clip_by_global_norm")
def _clip_with_norm(t_list: Tensors, clip_norm: Tensor, norm: Tensor) -> tuple[Tensor, ...]:
    """Tensors scaled by `clip_norm / max(norm, clip_norm)`; NaN if the norm is not finite."""
    scale = clip_norm * torch.minimum(1 / norm, 1 / clip_norm)
    scale = torch.where(torch.isfinite(norm), scale, torch.full_like(scale, float("nan")))
    return tuple(one * scale.to(one.dtype) for one in t_list)


@exported("global_norm")
def global_norm(t_list: Any, name: str | None = None) -> Any:
    """The norm of all tensors together, those that are None left out."""
    _check_list(t_list)
    return _global_norm_of([_rows(one) for one in t_list if one is not None], name=name)


@exported("clip_by_global_norm")
def clip_by_global_norm(t_list: Any, clip_norm: Any, use_norm: Any = None, name: str | None = None) -> Any:
    """Tensors scaled so that their norm together is at most `clip_norm`, and the norm they had."""
    _check_list(t_list)
    with name_scope(name, "clip_by_global_norm"):
        present = [_rows(one) for one in t_list if one is not None]
        found = use_norm if use_norm is not None else global_norm(present)
        limit = convert_to_tensor(clip_norm, present[0].dtype.base_dtype if present else None, name="clip_norm")
        clipped = iter(_listed(_clip_with_norm(present, limit, found, name="clipped")) if present else [])
        return [None if one is None else _like(one, next(clipped)) for one in t_list], found


def _check_list(t_list: Any) -> None:
    if not isinstance(t_list, list | tuple):
        raise TypeError("t_list should be a sequence")


def _listed(result: Any) -> list[Any]:
    return list(result) if isinstance(result, list | tuple) else [result]


def _rows(value: Any) -> Any:
    """A tensor; of `IndexedSlices` the rows, as TensorFlow clips them: a row that occurs twice counts twice."""
    return value.values if isinstance(value, IndexedSlices) else convert_to_tensor(value)


def _like(value: Any, rows: Any) -> Any:
    return IndexedSlices(rows, value.indices, value.dense_shape) if isinstance(value, IndexedSlices) else rows


@operation("clip_by_norm", op_name="clip_by_norm", same_dtype=("t", "clip_norm"))
def clip_by_norm(t: Tensor, clip_norm: Tensor, axes: Static = None) -> Tensor:
    """A tensor scaled so that its norm is at most `clip_norm`."""
    over = None if axes is None else tuple(axes) if isinstance(axes, list | tuple) else axes
    squares = torch.sum(t * t, over, True) if over is not None else torch.sum(t * t).reshape([1] * t.ndim)
    positive = squares > 0
    length = torch.where(positive, torch.sqrt(torch.where(positive, squares, torch.ones_like(squares))), squares)
    return t * clip_norm / torch.maximum(length, clip_norm)


@operation("clip_by_average_norm", op_name="clip_by_average_norm", same_dtype=("t", "clip_norm"))
def clip_by_average_norm(t: Tensor, clip_norm: Tensor) -> Tensor:
    """A tensor scaled so that its norm divided by its size is at most `clip_norm`."""
    inverse = torch.rsqrt(torch.sum(t * t))
    return t * clip_norm * torch.minimum(inverse * t.numel(), 1 / clip_norm)
