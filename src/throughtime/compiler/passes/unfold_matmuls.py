"""Matmuls of folded rows: slot by slot, or all slots as a batch of matmuls."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from throughtime.compiler.ir.graph import ROWS, Dim, Node, Value
from throughtime.compiler.passes.unfolded_values import Order, Unfolded, Unfolding, folded_axis, refuse, unfolded_shape
from throughtime.compiler.trace.batched_matmul import MOST_HEADS, MOST_SLOTS

aten = torch.ops.aten


def _mm(unfolding: Unfolding, node: Node) -> None:
    """`[n * k, E] @ [E, F]`, its transpose, and `[E, n * k] @ [n * k, F]`, which sums over rows."""
    left, right = node.args
    axes = folded_axis(left), folded_axis(right)
    if axes == (0, None) and not right.has_rows:
        slots = _slots(unfolding, unfolding.get(left), [0, 1])
        product = _times_matrix(unfolding, slots, unfolding.plain(right))
        _set_slots(unfolding, node.result, product, unfolding.get(left).order, [0, 1])
    elif axes == (None, 1) and not left.has_rows:
        slots = _slots(unfolding, unfolding.get(right), [1, 0])
        product = _times_matrix(unfolding, slots, _turned(unfolding, unfolding.plain(left)))
        _set_slots(unfolding, node.result, product, unfolding.get(right).order, [1, 0])
    elif axes == (1, 0):
        order = unfolding.order((left, right), node)
        one = _slots(unfolding, unfolding.get(left, order), [1, 0])
        other = _slots(unfolding, unfolding.get(right, order), [0, 1])
        unfolding.rewriter.replace(node.result, _added_up(unfolding, one, other))
    else:
        refuse(node, "multiplies them with each other")


def _slots(unfolding: Unfolding, found: Unfolded, dims: Sequence[int]) -> Value:
    """`[slots, n, ...]`: the dimensions of a folded value in the order of `dims`, the folded one first."""
    before, after = found.order
    around = [axis for axis in found.dims(found.axis) if axis != found.row_axis]
    others = [axis for dim in dims[1:] for axis in found.dims(dim)]
    moved = unfolding.permuted(found.value, [*around, found.row_axis, *others])
    return unfolding.reshaped(moved, (before * after, *moved.shape[len(around) :]))


def _set_slots(unfolding: Unfolding, result: Value, slots: Value, order: Order, dims: Sequence[int]) -> None:
    """The reverse: the matmul of slots replaces a folded result."""
    shape = unfolded_shape(result, order)
    found = Unfolded(Value(result.name, shape, result.dtype), folded_axis(result) or 0, order)
    around = [axis for axis in found.dims(found.axis) if axis != found.row_axis]
    others = [axis for dim in dims[1:] for axis in found.dims(dim)]
    moved = [*around, found.row_axis, *others]
    apart = unfolding.reshaped(slots, [shape[axis] for axis in moved])
    unfolding.set(result, unfolding.permuted(apart, [moved.index(axis) for axis in range(len(moved))]), order)


def _times_matrix(unfolding: Unfolding, slots: Value, matrix: Value) -> Value:
    """`[slots, n, E] @ [E, F]`: slot by slot for kernels, all at once for torch."""
    call = unfolding.rewriter.call
    (count, rows, size), width = slots.shape, matrix.shape[1]
    assert isinstance(count, int)
    shape: tuple[Dim, ...] = (count, rows, width)
    if unfolding.by_slots and count <= MOST_SLOTS:
        each = _each(unfolding, slots, 0)
        products = [call(aten.mm.default, slot, matrix, shape=(rows, width), like=slots) for slot in each]
        return call(aten.stack.default, products, 0, shape=shape, like=slots)
    matrices = call(aten.expand.default, matrix, [count, size, width], shape=(count, size, width), like=matrix)
    return call(aten.bmm.default, slots, matrices, shape=shape, like=slots)


def _added_up(unfolding: Unfolding, one: Value, other: Value) -> Value:
    """`[slots, n, E]` and `[slots, n, F]`: the sum of all outer products over slots and rows."""
    call = unfolding.rewriter.call
    (count, _, high), width = one.shape, other.shape[2]
    turned = unfolding.permuted(one, [0, 2, 1])
    if unfolding.by_slots and isinstance(count, int) and count <= MOST_SLOTS:
        pairs = zip(_each(unfolding, turned, 0), _each(unfolding, other, 0), strict=True)
        return _total(unfolding, [call(aten.mm.default, *pair, shape=(high, width), like=one) for pair in pairs])
    product = call(aten.bmm.default, turned, other, shape=(count, high, width), like=one)
    return call(aten.sum.dim_IntList, product, [0], shape=(high, width), like=one)


def _bmm(unfolding: Unfolding, node: Node) -> None:
    """Heads folded into rows, `[n * heads, L, E] @ [n * heads, E, S]`, or slots into the rows of each of several."""
    left, right = node.args
    axes = folded_axis(left), folded_axis(right)
    order = unfolding.order(node.values, node)
    if order[0] * order[1] > MOST_HEADS:
        refuse(node, f"has more than {MOST_HEADS} products for each")
    if axes == (0, 0):
        dims: tuple[Sequence[int] | None, Sequence[int] | None] = ([0, 1, 2], [0, 1, 2])
    elif axes == (1, None) and not right.has_rows:
        dims = ([1, 0, 2], None)
    elif axes == (None, 2) and not left.has_rows:
        dims = (None, [2, 0, 1])
    elif axes == (2, 1):
        dims = ([2, 0, 1], [1, 0, 2])
    else:
        refuse(node, "multiplies them with each other")
        return
    found = [_operands(unfolding, value, order, own) for value, own in zip((left, right), dims, strict=True)]
    count = order[0] * order[1]
    pairs = zip(*(operands * (count // len(operands)) for operands in found), strict=True)
    axis = folded_axis(node.result)
    shape = tuple(ROWS if place == axis else size for place, size in enumerate(node.result.shape))
    products = [unfolding.rewriter.call(aten.bmm.default, *pair, shape=shape, like=left) for pair in pairs]
    if axis is None:
        unfolding.rewriter.replace(node.result, _total(unfolding, products))
        return
    stacked = unfolding.rewriter.call(aten.stack.default, products, 0, shape=(count, *shape), like=left)
    own = [axis, *(dim for dim in range(3) if dim != axis)]
    rows_first = unfolding.permuted(stacked, [0, *(1 + dim for dim in own)])
    _set_slots(unfolding, node.result, rows_first, order, own)


def _operands(unfolding: Unfolding, value: Value, order: Order, dims: Sequence[int] | None) -> list[Value]:
    """The operand of each slot, with rows in the place of the folded dimension; one for all if it has no rows."""
    if dims is None:
        return [unfolding.plain(value)]
    slots = _slots(unfolding, unfolding.get(value, order), dims)
    placed = unfolding.permuted(slots, [0, *(1 + dims.index(dim) for dim in range(len(dims)))])
    return _each(unfolding, placed, 0)


def _each(unfolding: Unfolding, value: Value, axis: int) -> list[Value]:
    """The parts of a value along an axis."""
    shape = (*value.shape[:axis], *value.shape[axis + 1 :])
    count = value.shape[axis]
    assert isinstance(count, int)
    select = aten.select.int
    return [unfolding.rewriter.call(select, value, axis, place, shape=shape, like=value) for place in range(count)]


def _total(unfolding: Unfolding, parts: Sequence[Value]) -> Value:
    total = parts[0]
    for part in parts[1:]:
        total = unfolding.rewriter.call(aten.add.Tensor, total, part, shape=total.shape, like=total)
    return total


def _turned(unfolding: Unfolding, matrix: Value) -> Value:
    return unfolding.rewriter.call(aten.t.default, matrix, shape=matrix.shape[::-1], like=matrix)


PRODUCTS: dict[str, Callable[[Unfolding, Node], None]] = {"mm": _mm, "bmm": _bmm}
