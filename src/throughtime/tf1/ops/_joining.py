"""Joining and splitting tensors, with the argument orders of TensorFlow 0.x told apart by types."""

from __future__ import annotations

from typing import Any

import torch

from throughtime.tf1._namespace import exported
from throughtime.tf1.graph._graph import create_op
from throughtime.tf1.ops._convert import convert_to_tensor, is_tensor
from throughtime.tf1.ops._helpers import plain, torch_dtype
from throughtime.tf1.ops._structure import takes_strings
from throughtime.tf1.ops._table import Static, Tensor, Tensors, ints, operation


@operation("concat", op_name="ConcatV2", scope="concat")
@takes_strings
def _concat(values: Tensors, axis: Static) -> Tensor:
    """Tensors joined along an axis."""
    return torch.cat(list(values), int(plain(axis)))


@exported("concat")
def concat(values: Any = None, axis: Any = None, name: str = "concat", concat_dim: Any = None) -> Any:
    """Tensors joined along an axis; `concat(axis, values)` is the order of TensorFlow 0.x."""
    axis = concat_dim if axis is None else axis
    if isinstance(axis, list | tuple) and not isinstance(values, list | tuple):
        values, axis = axis, values
    if not isinstance(values, list | tuple):
        values = [values]
    if len(values) == 1:
        return _identity_of(values[0], name)
    return _concat(values, axis, name=name)


def _identity_of(value: Any, name: str) -> Any:
    from throughtime.tf1._namespace import lookup  # noqa: PLC0415

    return lookup("identity")(value, name=name)


@operation("stack", op_name="Pack", scope="stack")
@takes_strings
def stack(values: Tensors, axis: Static = 0) -> Tensor:
    """Tensors joined along a new axis."""
    return torch.stack(list(values), int(axis))


@operation("parallel_stack", op_name="ParallelConcat", scope="parallel_stack")
def parallel_stack(values: Tensors) -> Tensor:
    """Tensors joined along a new first axis."""
    return torch.stack(list(values))


def _unstacked(value: Any, num: Any, axis: Any) -> list[Any]:
    sizes = list(value.shape.sizes)
    del sizes[axis]
    return [sizes] * num


@operation(
    "unstack",
    op_name="Unpack",
    scope="unstack",
    fallback_rule=_unstacked,
    dtypes=lambda value, num, axis: [value.dtype.base_dtype] * _pieces(value, num, axis),
)
@takes_strings
def _unstack(value: Tensor, num: Static = None, axis: Static = 0) -> tuple[Tensor, ...]:
    """The parts of a tensor along an axis."""
    if num is not None and value.shape[axis] != num:
        raise ValueError(f"num is {num} for an axis of size {value.shape[axis]}")
    return torch.unbind(value, axis)


def _pieces(value: Any, num: Any, axis: int) -> int:
    sizes = value.shape.sizes
    count = num if num is not None else None if sizes is None else sizes[axis]
    if count is None:
        raise ValueError(f"Cannot infer num from shape {value.shape}; pass num=")
    return int(count)


@exported("unstack")
def unstack(value: Any, num: int | None = None, axis: int = 0, name: str = "unstack") -> list[Any]:
    """The parts of a tensor along an axis, as a list."""
    tensor = convert_to_tensor(value)
    if num is None and _pieces(tensor, num, axis) == 0:
        return []
    return _listed(_unstack(tensor, num, axis, name=name))


def _listed(result: Any) -> list[Any]:
    return list(result) if isinstance(result, list | tuple) else [result]


def _split_shapes(value: Any, num_or_size_splits: Any, axis: Any, num: Any) -> list[Any]:
    sizes, place = list(value.shape.sizes), int(plain(axis))
    parts = (
        num_or_size_splits if isinstance(num_or_size_splits, list | tuple) else [None] * _parts(num_or_size_splits, num)
    )
    return [
        [None if part == -1 else part if at == place % len(sizes) else size for at, size in enumerate(sizes)]
        for part in parts
    ]


@operation(
    "split",
    op_name="Split",
    scope="split",
    fallback_rule=_split_shapes,
    positional=("value", "num_or_size_splits", "axis", "num", "name"),
    dtypes=lambda value, num_or_size_splits, axis, num: [value.dtype.base_dtype] * _parts(num_or_size_splits, num),
)
@takes_strings
def _split(value: Tensor, num_or_size_splits: Static, axis: Static = 0, num: Static = None) -> tuple[Tensor, ...]:
    """Parts of equal or given sizes along an axis."""
    place, parts = int(plain(axis)), ints(num_or_size_splits)
    total = value.shape[place]
    if not isinstance(parts, list):
        if total % parts:
            raise ValueError(f"Dimension size must be evenly divisible by {parts} but is {total}")
        return torch.split(value, max(total // parts, 1), place)
    if -1 in parts:
        rest = total - sum(size for size in parts if size != -1)
        parts = [rest if size == -1 else size for size in parts]
    return torch.split(value, parts, place)


def _parts(sizes: Any, num: Any) -> int:
    if num is not None:
        return int(num)
    if is_tensor(sizes):
        return int(sizes.shape.sizes[0])
    return len(sizes) if isinstance(sizes, list | tuple) else int(sizes)


@exported("split")
def split(
    value: Any = None,
    num_or_size_splits: Any = None,
    axis: Any = 0,
    num: int | None = None,
    name: str = "split",
    split_dim: Any = None,
    num_split: Any = None,
) -> list[Any]:
    """Parts along an axis; `split(split_dim, num_split, value)` is the order of TensorFlow 0.x."""
    if split_dim is not None:
        axis, num_or_size_splits = split_dim, num_split
    elif isinstance(value, int) and not isinstance(axis, int):
        value, axis = axis, value
    return _listed(_split(value, num_or_size_splits, axis, num, name=name))


@operation("meshgrid", op_name="meshgrid", scope="meshgrid")
def _meshgrid(args: Tensors, indexing: Static = "xy") -> tuple[Tensor, ...]:
    """Coordinates of a grid."""
    return tuple(torch.meshgrid(*[one.reshape(-1) for one in args], indexing=indexing))


@exported("meshgrid")
def meshgrid(*args: Any, indexing: str = "xy", name: str = "meshgrid") -> list[Any]:
    """Coordinates of the grid that vectors span."""
    if indexing not in {"xy", "ij"}:
        raise ValueError("indexing parameter must be either 'xy' or 'ij'")
    return _listed(_meshgrid(list(args), indexing, name=name))


@exported("identity_n")
def identity_n(input: Any, name: str | None = None) -> list[Any]:  # noqa: A002
    """Several tensors as they are."""
    tensors = [convert_to_tensor(one) for one in input]
    made = create_op(
        "IdentityN",
        lambda *values: values,
        tensors,
        name=name,
        dtypes=[one.dtype.base_dtype for one in tensors],
        shapes=[one.shape for one in tensors],
        attrs={"tuple": True},
    )
    return list(made.outputs)


@operation("shape_n", op_name="ShapeN", differentiable=False)
def shape_n(input: Tensors, out_type: Static = "int32") -> tuple[Tensor, ...]:  # noqa: A002
    """The shapes of several tensors."""
    return tuple(torch.tensor(tuple(one.shape), dtype=torch_dtype(out_type), device="cpu") for one in input)
