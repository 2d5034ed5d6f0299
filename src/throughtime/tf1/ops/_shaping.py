"""Changes of shape and order: transposes, tiles, pads, reversals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from throughtime.tf1.ops._helpers import dtype_of, plain
from throughtime.tf1.ops._structure import takes_strings
from throughtime.tf1.ops._table import Static, Tensor, ints, operation


@operation(
    "transpose",
    op_name="Transpose",
    scope="transpose",
    fallback_rule=lambda a, **_: [[None] * (a.shape.ndims or 0)],
    positional=("a", "perm", "name", "conjugate"),
)
@takes_strings
def transpose(a: Tensor, perm: Static = None, conjugate: Static = False) -> Tensor:
    """Axes in another order, by default reversed."""
    order = list(reversed(range(a.ndim))) if perm is None else ints(perm)
    if len(order) != a.ndim:
        raise ValueError(f"perm has {len(order)} elements for an input of rank {a.ndim}")
    moved = a.permute(order)
    return moved.conj().resolve_conj() if conjugate else moved


@operation("matrix_transpose", op_name="Transpose", scope="matrix_transpose", positional=("a", "name", "conjugate"))
def matrix_transpose(a: Tensor, conjugate: Static = False) -> Tensor:
    """The last two axes exchanged."""
    return a.mH if conjugate else a.mT


@operation("linalg.adjoint", op_name="Transpose", scope="adjoint")
def adjoint(matrix: Tensor) -> Tensor:
    """The conjugate with the last two axes exchanged."""
    return matrix.mH.resolve_conj()


@operation("expand_dims", op_name="ExpandDims", spellings={"dim": "axis"}, positional=("input", "axis", "name", "dim"))
@takes_strings
def expand_dims(input: Tensor, axis: Static = None) -> Tensor:  # noqa: A002
    """A new axis of size one."""
    if axis is None:
        raise ValueError("Must specify an axis argument to tf.expand_dims()")
    return torch.unsqueeze(input, _only(ints(axis)))


def _only(axis: Any) -> int:
    return int(axis[0]) if isinstance(axis, list) else int(axis)


def _squeezed(input: Any, axis: Any) -> list[Any]:  # noqa: A002
    """Without axes named, an unknown dimension may be removed or not."""
    sizes = input.shape.sizes
    if sizes is None or (axis in (None, []) and None in sizes):
        return [None]
    if axis in (None, []):
        return [[size for size in sizes if size != 1]]
    removed = {one % len(sizes) for one in (ints(axis) if isinstance(axis, list | tuple) else [int(axis)])}
    if any(sizes[one] not in {None, 1} for one in removed):
        got = [sizes[one] for one in removed]
        raise ValueError(f"Can not squeeze dim{sorted(removed)}, expected a dimension of 1, got {got}")
    return [[size for place, size in enumerate(sizes) if place not in removed]]


@operation(
    "squeeze",
    op_name="Squeeze",
    shape_rule=_squeezed,
    dtypes=dtype_of("input"),
    spellings={"squeeze_dims": "axis"},
    positional=("input", "axis", "name", "squeeze_dims"),
)
@takes_strings
def squeeze(input: Tensor, axis: Static = None) -> Tensor:  # noqa: A002
    """Axes of size one removed."""
    if axis is None or axis == []:
        return torch.squeeze(input)
    removed = ints(axis) if isinstance(axis, list | tuple) else [int(axis)]
    if any(input.shape[one] != 1 for one in removed):
        sizes = [input.shape[one] for one in removed]
        raise ValueError(f"Can not squeeze dim{removed}, expected a dimension of 1, got {sizes}")
    return torch.squeeze(input, tuple(removed))


@operation("tile", op_name="Tile")
@takes_strings
def tile(input: Tensor, multiples: Static) -> Tensor:  # noqa: A002
    """A tensor repeated along its axes."""
    counts = ints(multiples)
    if len(counts) != input.ndim:
        raise ValueError(f"multiples has {len(counts)} elements for an input of rank {input.ndim}")
    return input.repeat(counts) if counts else input


@operation("repeat", op_name="Repeat")
def repeat(input: Tensor, repeats: Static, axis: Static = None) -> Tensor:  # noqa: A002
    """Each element repeated."""
    flat, place = (input.reshape(-1), 0) if axis is None else (input, int(axis))
    counts = ints(repeats)
    if isinstance(counts, list) and len(counts) > 1:
        rows = [row for row, count in enumerate(counts) for _ in range(count)]
        return flat.index_select(place, torch.tensor(rows, device=flat.device))
    return torch.repeat_interleave(flat, counts[0] if isinstance(counts, list) else counts, place)


def _pairs(paddings: Any) -> list[list[int]]:
    return [[int(plain(low)), int(plain(high))] for low, high in ints(paddings)]


def _padded_shape(tensor: Any, **_: Any) -> list[Any]:
    """Axes without padding have their size; the others are known when paddings are."""
    sizes = tensor.shape.sizes
    return [None if sizes is None else [None] * len(sizes)]


@operation(
    "pad",
    op_name="Pad",
    fallback_rule=_padded_shape,
    positional=("tensor", "paddings", "mode", "name", "constant_values"),
)
def pad(tensor: Tensor, paddings: Static, mode: Static = "CONSTANT", constant_values: Static = 0) -> Tensor:
    """Elements added around a tensor: a constant, or its own elements mirrored."""
    pairs = _pairs(paddings)
    if mode.upper() == "CONSTANT":
        flat = [size for pair in reversed(pairs) for size in pair]
        return torch.nn.functional.pad(tensor, flat, value=plain(constant_values))
    edge = {"REFLECT": 1, "SYMMETRIC": 0}[mode.upper()]
    for axis, (low, high) in enumerate(pairs):
        tensor = _mirrored(tensor, axis, low, high, edge)
    return tensor


def _mirrored(tensor: Tensor, axis: int, low: int, high: int, edge: int) -> Tensor:
    size = tensor.shape[axis]
    if max(low, high) > size - edge:
        raise ValueError(
            f"paddings must be no greater than the dimension size: {low}, {high} greater than {size - edge}"
        )
    before, after = tensor.narrow(axis, edge, low), tensor.narrow(axis, size - edge - high, high)
    return torch.cat([before.flip(axis), tensor, after.flip(axis)], axis)


@operation("reverse", "reverse_v2", op_name="ReverseV2")
@takes_strings
def reverse(tensor: Tensor, axis: Static) -> Tensor:
    """Elements in the opposite order along axes."""
    found = ints(axis)
    return torch.flip(tensor, found if isinstance(found, list) else [found])


@operation(
    "reverse_sequence",
    op_name="ReverseSequence",
    spellings={"seq_dim": "seq_axis", "batch_dim": "batch_axis"},
    positional=("input", "seq_lengths", "seq_axis", "batch_axis", "name", "seq_dim", "batch_dim"),
)
def reverse_sequence(input: Tensor, seq_lengths: Tensor, seq_axis: Static = None, batch_axis: Static = 0) -> Tensor:  # noqa: A002
    """The first elements of each sequence in the opposite order, as many as its length says."""
    moved = input.movedim((batch_axis, seq_axis), (0, 1))
    steps = torch.arange(moved.shape[1], device=input.device)
    lengths = seq_lengths.long().unsqueeze(1)
    source = torch.where(steps < lengths, lengths - 1 - steps, steps)
    source = source.reshape(*source.shape, *[1] * (moved.ndim - 2)).expand(moved.shape)
    return torch.gather(moved, 1, source).movedim((0, 1), (batch_axis, seq_axis))


@operation("roll", op_name="Roll")
def roll(input: Tensor, shift: Static, axis: Static) -> Tensor:  # noqa: A002
    """Elements moved along axes, those that leave at one end enter at the other."""
    return torch.roll(input, _tuple(shift), _tuple(axis))


def _tuple(value: Any) -> Any:
    found = ints(value)
    return tuple(found) if isinstance(found, list) else found


@operation("invert_permutation", op_name="InvertPermutation", differentiable=False)
def invert_permutation(x: Tensor) -> Tensor:
    """The permutation that undoes `x`."""
    return torch.argsort(x).to(x.dtype)


@operation(
    "ensure_shape",
    op_name="EnsureShape",
    shape_rule=lambda x, shape: [_merged(x, shape)],
    dtypes=lambda x, shape: [x.dtype.base_dtype],
)
def ensure_shape(x: Tensor, shape: Static) -> Tensor:
    """The same tensor; an error if its shape does not fit."""
    wanted = _sizes(shape)
    if wanted is not None and (
        len(wanted) != x.ndim or any(a is not None and a != b for a, b in zip(wanted, x.shape, strict=True))
    ):
        raise ValueError(f"Shape of tensor {tuple(x.shape)} is not compatible with expected shape {wanted}")
    return x


def _sizes(shape: Any) -> Sequence[int | None] | None:
    from throughtime.tf1.graph._shapes import as_shape  # noqa: PLC0415

    return as_shape(shape).sizes


def _merged(x: Any, shape: Any) -> Any:
    from throughtime.tf1.graph._shapes import as_shape  # noqa: PLC0415

    return x.shape.merge_with(as_shape(shape))
