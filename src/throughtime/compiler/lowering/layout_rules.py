"""Lowering rules of operations that move features. Most of them become strided views, without an operation."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence

import torch

from throughtime.compiler.errors import Uncompilable
from throughtime.compiler.ir.graph import Node, Value
from throughtime.compiler.ir.loop_ir import Row
from throughtime.compiler.ir.strided_view import StridedView
from throughtime.compiler.lowering.builder import Lowering, shape_in

Rule = Callable[[Lowering, Node], Row | tuple[Row | None, ...]]
"""From a node to the rows of its results; None for unused results."""


def features_axis(value: Value, dim: int) -> int:
    """The axis of a row for a dimension of a value, without the batch axis."""
    dim %= len(value.shape)
    if value.row_axis is None or dim == value.row_axis:
        raise Uncompilable("something is done along the rows")
    return dim - (dim > value.row_axis)


def _moved(lowering: Lowering, node: Node, change: Callable[[StridedView], StridedView]) -> Row:
    """The features of the first argument along other axes."""
    source = node.args[0]
    root, axes = lowering.axes(lowering.row(source), source.row_shape)
    return lowering.strided(root, change(axes), node.result.name)


def _slice(lowering: Lowering, node: Node) -> Row:
    axis = features_axis(node.args[0], node.arg("dim"))
    start, stop, _ = slice(node.arg("start"), node.arg("end")).indices(node.args[0].row_shape[axis])
    return _moved(lowering, node, lambda axes: axes.sliced(axis, start, stop, node.arg("step")))


def _select(lowering: Lowering, node: Node) -> Row:
    axis = features_axis(node.args[0], node.arg("dim"))
    index = node.arg("index") % node.args[0].row_shape[axis]
    return _moved(lowering, node, lambda axes: axes.sliced(axis, index, index + 1))


def _permute(lowering: Lowering, node: Node) -> Row:
    source = node.args[0]
    dims = list(range(len(source.shape)))
    if node.name == "permute":
        dims = [dim % len(dims) for dim in node.arg("dims")]
    else:
        one, other = (0, 1) if node.name == "t" else (node.arg(name) % len(dims) for name in ("dim0", "dim1"))
        dims[one], dims[other] = dims[other], dims[one]
    order = [features_axis(source, dim) for dim in dims if dim != source.row_axis]
    return _moved(lowering, node, lambda axes: axes.permuted(order))


def _flip(lowering: Lowering, node: Node) -> Row:
    chosen = [features_axis(node.args[0], dim) for dim in node.arg("dims")]
    return _moved(lowering, node, lambda axes: functools.reduce(StridedView.flipped, chosen, axes))


def _repeat(lowering: Lowering, node: Node) -> Row:
    source, times = node.args[0], node.arg("repeats")
    if source.row_axis is None or len(times) != len(source.shape) or times[source.row_axis] != 1:
        raise Uncompilable("rows are repeated")
    own = [count for dim, count in enumerate(times) if dim != source.row_axis]
    return _moved(lowering, node, lambda axes: axes.repeated(own))


Part = tuple[Row, tuple[int, ...]]
"""A row and its shape."""


def _cat(lowering: Lowering, node: Node) -> Row:
    result = node.result
    axis = features_axis(result, node.arg("dim"))
    parts = [value for value in node.args[0] if value.row_size]
    joined = [(lowering.row(value), value.row_shape) for value in parts]
    return _joined(lowering, joined, axis, result.dtype, result.name)


def _stack(lowering: Lowering, node: Node) -> Row:
    result = node.result
    axis = features_axis(result, node.arg("dim"))
    shape = (*result.row_shape[:axis], 1, *result.row_shape[axis + 1 :])
    return _joined(lowering, [(lowering.row(value), shape) for value in node.args[0]], axis, result.dtype, result.name)


def _scatter(lowering: Lowering, node: Node) -> Row:
    """`slice_scatter` and `select_scatter`: a piece replaces a part of the whole."""
    whole, piece = node.args[:2]
    axis = features_axis(whole, node.arg("dim"))
    shape = whole.row_shape
    if node.name == "select_scatter":
        index = node.arg("index") % shape[axis]
        places = range(index, index + 1)
    else:
        places = range(*slice(node.arg("start"), node.arg("end"), node.arg("step")).indices(shape[axis]))
    old = (lowering.row(whole), shape)
    if not places:
        return old[0]
    new = (lowering.cast_row(lowering.row(piece), whole.dtype), (*shape[:axis], len(places), *shape[axis + 1 :]))
    parts = [_part(lowering, old, axis, 0, places[0]), *_blocks(lowering, old, new, axis, places)]
    parts.append(_part(lowering, old, axis, places[-1] + 1, shape[axis]))
    return _joined(lowering, [part for part in parts if part is not None], axis, whole.dtype, node.result.name)


def _part(lowering: Lowering, whole: Part, axis: int, start: int, stop: int, step: int = 1) -> Part | None:
    """A part of an axis; None if it is empty."""
    root, axes = lowering.axes(*whole)
    cut = axes.sliced(axis, start, stop, step)
    return (lowering.strided(root, cut), cut.sizes) if cut.sizes[axis] else None


def _blocks(lowering: Lowering, old: Part, new: Part, axis: int, places: range) -> list[Part | None]:
    """From the first index that is written to the last: new elements, with old ones between them."""
    step, count = places.step, len(places)
    if step == 1 or count == 1:
        return [new]
    # Blocks of one new element and the old ones after it, as an axis of their own.
    columns = [_part(lowering, new, axis, 0, count - 1)]
    starts = range(places[0] + 1, places[0] + step)
    columns += [_part(lowering, old, axis, start, places[-1], step) for start in starts]
    rows = [(row, (*sizes[: axis + 1], 1, *sizes[axis + 1 :])) for row, sizes in filter(None, columns)]
    joined = _joined(lowering, rows, axis + 1, old[0].dtype)
    blocks = (*old[1][:axis], (count - 1) * step, *old[1][axis + 1 :])
    return [(joined, blocks), _part(lowering, new, axis, count - 1, count)]


def _roll(lowering: Lowering, node: Node) -> Row:
    source, dims = node.args[0], node.arg("dims")
    whole = (lowering.row(source), source.row_shape)
    if not dims:
        raise Uncompilable("something is done along the rows")
    for shift, dim in zip(node.arg("shifts"), dims, strict=True):
        axis = features_axis(source, dim)
        size = source.row_shape[axis]
        parts = (_part(lowering, whole, axis, -shift % size, size), _part(lowering, whole, axis, 0, -shift % size))
        row = _joined(lowering, [part for part in parts if part is not None], axis, source.dtype)
        whole = (row, source.row_shape)
    return whole[0]


def _pad(lowering: Lowering, node: Node) -> Row:
    source, pad = node.args[0], node.arg("pad")
    row, shape = lowering.row(source), source.row_shape
    for place in range(0, len(pad), 2):
        axis = features_axis(source, len(source.shape) - 1 - place // 2)
        widths = pad[place : place + 2]
        kept = range(shape[axis])[max(0, -widths[0]) : shape[axis] - max(0, -widths[1])]
        inner = _part(lowering, (row, shape), axis, kept.start, kept.stop)
        around = [(*shape[:axis], width, *shape[axis + 1 :]) if width > 0 else None for width in widths]
        sides = [
            None if side is None else (lowering.fill(Row("", math.prod(side), row.dtype), node.arg("value")), side)
            for side in around
        ]
        parts = [part for part in (sides[0], inner, sides[1]) if part is not None]
        row = _joined(lowering, parts, axis, row.dtype)
        shape = (*shape[:axis], sum(part[1][axis] for part in parts), *shape[axis + 1 :])
    return row


def _joined(lowering: Lowering, parts: Sequence[Part], axis: int, dtype: torch.dtype, name: str = "") -> Row:
    """Rows concatenated along an axis: transposed so that it comes first, and the result transposed back."""
    rows = [(lowering.cast_row(row, dtype), shape) for row, shape in parts]
    if len(rows) == 1:
        return rows[0][0]
    before, after = rows[0][1][:axis], rows[0][1][axis + 1 :]
    order = [axis, *range(axis), *range(axis + 1, axis + 1 + len(after))]
    found = [lowering.axes(row, shape) for row, shape in rows]
    turned = [lowering.strided(root, axes.permuted(order)) for root, axes in found]
    width = sum(row.width for row in turned)
    if math.prod(before) == 1:
        return lowering.emit("cat", *turned, width=width, dtype=dtype, name=name)
    whole = lowering.emit("cat", *turned, width=width, dtype=dtype)
    joined = (sum(shape[axis] for _, shape in rows), *before, *after)
    return lowering.strided(
        whole, StridedView.of(joined).permuted([order.index(place) for place in range(len(order))]), name
    )


def _view(lowering: Lowering, node: Node) -> Row:
    """The same features in the same order: no operation."""
    source, result = node.args[0], node.result
    ahead = [math.prod(value.row_shape[: value.row_axis]) for value in (source, result)]
    if not source.has_rows or not result.has_rows or ahead[0] != ahead[1] or source.row_size != result.row_size:
        raise Uncompilable(f"{node.title} moves or repeats features")
    return lowering.row(source)


def _expand(lowering: Lowering, node: Node) -> Row:
    value, result = node.args[0], node.result
    source = lowering.row(value)
    if source.width != 1 or result.row_size == 1:
        return lowering.broadcast(source, shape_in(value, result), result.row_shape, result.name)
    # Adding -0.0 preserves the sign of zero.
    zero = -0.0 if result.dtype.is_floating_point else 0
    zeros = lowering.fill(Row("", result.row_size, result.dtype), zero)
    return lowering.pointwise("add", zeros, source, dtype=result.dtype, name=result.name)


LAYOUT_RULES: dict[str, Rule] = {
    "cat": _cat,
    "expand": _expand,
    "flip": _flip,
    "pad": _pad,
    "permute": _permute,
    "repeat": _repeat,
    "roll": _roll,
    "scatter": _scatter,
    "select": _select,
    "slice": _slice,
    "stack": _stack,
    "view": _view,
}
"""By the name that the `lowering` column of the operation table has."""
