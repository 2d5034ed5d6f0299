"""Unfolding of the batch: cells that fold slots or heads and rows into one dimension get a batch axis again.

Examples are `slots.reshape(-1, D)` and `x.view(n * heads, L, E)`. In the graph such a dimension is `Folded`: a product
`before * n * after` in memory order. Every operation on it is rewritten to values with separate axes, so that the rules
for rows, hoisting and kernels apply.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from throughtime.compiler.errors import Uncompilable
from throughtime.compiler.ir.graph import Graph, Node, Value
from throughtime.compiler.passes.unfold_matmuls import PRODUCTS
from throughtime.compiler.passes.unfolded_values import (
    Order,
    Unfolding,
    folded_axis,
    refuse,
    size_ahead,
    times_of,
    unfolded_shape,
)
from throughtime.compiler.trace.trace import Trace

aten = torch.ops.aten

Rule = Callable[[Unfolding, Node], None]


def unfold_rows(traced: Trace) -> None:
    """Give rows their own axis wherever they were folded; raises `Uncompilable` where that is not possible."""
    if not any(folded_axis(value) is not None for node in traced.graph.nodes for value in node.results):
        return
    unfolding = Unfolding(by_slots=traced.device.type == "cpu")
    for node in traced.graph.nodes:
        if all(folded_axis(value) is None for value in (*node.values, *node.results)):
            unfolding.rewriter.keep(node)
        else:
            _rule_for(node)(unfolding, node)
    for value in (*traced.results, *traced.once):
        if folded_axis(value) is not None:
            raise Uncompilable(f"it folds the rows of a batch into another dimension ({value.described})")
    traced.resolve(unfolding.rewriter.resolve)
    traced.once = [*map(unfolding.rewriter.resolve, traced.once)]
    traced.graph = Graph(unfolding.rewriter.nodes)


def _rule_for(node: Node) -> Rule:
    """The rule for an operation on folded rows."""
    if node.operation.rows == "pointwise":
        return _pointwise
    rule = RULES.get(node.name)
    if rule is None:
        refuse(node, "is not known to treat them separately")
    assert rule is not None
    return rule


def _pointwise(unfolding: Unfolding, node: Node) -> None:
    """Shapes align at their ends: operands that reach the folded dimension get the new axes as well."""
    order = unfolding.order(node.values, node)
    axis = folded_axis(node.result)
    if axis is None:
        refuse(node, "mixes them with others")
    assert axis is not None
    place = len(node.result.shape) - axis
    aligned: dict[Value, Value] = {}
    for value in node.values:
        own = folded_axis(value)
        if value.has_rows or (own is not None and len(value.shape) - own != place):
            refuse(node, "mixes them with others")
        aligned[value] = (
            _widened(unfolding, value, len(value.shape) - place, order)
            if own is None
            else unfolding.get(value, order).value
        )
    unfolding.again(node, order, aligned)


def _widened(unfolding: Unfolding, value: Value, axis: int, order: Order) -> Value:
    """A value without rows, with axes of size 1 in the place of the folded dimension."""
    value = unfolding.plain(value)
    if axis < 0:
        return value
    for _ in range(sum(size > 1 for size in order)):
        shape = (*value.shape[:axis], 1, *value.shape[axis:])
        value = unfolding.rewriter.call(aten.unsqueeze.default, value, axis, shape=shape, like=value)
    return value


def _made_up(unfolding: Unfolding, node: Node) -> None:
    """Filled with one number: the order of the axes is free."""

    def make(order: Order) -> Value:
        shape = unfolded_shape(node.result, order)
        value = Value(node.result.name, shape, node.result.dtype)
        unfolding.rewriter.nodes.append(Node(node.target, (list(shape), *node.args[1:]), node.kwargs, (value,)))
        return value

    unfolding.set_alike(node.result, make)


def _drawn(unfolding: Unfolding, node: Node) -> None:
    """Random numbers in memory order: rows come first."""
    order = (1, times_of(node.result))
    unfolding.again(node, order, {}, size=list(unfolded_shape(node.result, order)))


def _view(unfolding: Unfolding, node: Node) -> None:
    """A reshape: the number of elements before a row says how the rows are folded."""
    source, result = unfolding.plain(node.values[0]), node.result
    outside = size_ahead(source.shape)
    before, rest = divmod(outside, max(1, size_ahead(result.shape)))
    times = 1 if folded_axis(result) is None else times_of(result)
    rows = folded_axis(result) is not None or result.has_rows
    if not rows or rest or not before or times % before:
        refuse(node, "cuts between them")
    order = (before, times // before)
    unfolding.set(result, unfolding.reshaped(source, unfolded_shape(result, order)), order)


def _permute(unfolding: Unfolding, node: Node) -> None:
    found = unfolding.get(node.args[0])
    dims = list(range(len(node.args[0].shape)))
    if node.name == "permute":
        dims = [dim % len(dims) for dim in node.arg("dims")]
    else:
        one, other = (0, 1) if node.name == "t" else (node.arg(name) % len(dims) for name in ("dim0", "dim1"))
        dims[one], dims[other] = dims[other], dims[one]
    moved = [new for dim in dims for new in found.dims(dim)]
    unfolding.set(node.result, unfolding.permuted(found.value, moved), found.order)


def _lengthened(unfolding: Unfolding, node: Node) -> None:
    """`unsqueeze` and `squeeze`: axes of size 1."""
    found = unfolding.get(node.args[0])
    shape = unfolded_shape(node.result, found.order)
    unfolding.set(node.result, unfolding.reshaped(found.value, shape), found.order)


def _expand(unfolding: Unfolding, node: Node) -> None:
    source = node.args[0]

    def expanded(value: Value, order: Order) -> Value:
        shape = unfolded_shape(node.result, order)
        return unfolding.rewriter.call(aten.expand.default, value, list(shape), shape=shape, like=value)

    if folded_axis(source) is not None:
        found = unfolding.get(source)
        unfolding.set(node.result, expanded(found.value, found.order), found.order)
        return
    axis = folded_axis(node.result)
    assert axis is not None
    if source.has_rows:
        refuse(node, "mixes them with others")
    place = len(source.shape) - len(node.result.shape) + axis
    unfolding.set_alike(node.result, lambda order: expanded(_widened(unfolding, source, place, order), order))


def _repeat(unfolding: Unfolding, node: Node) -> None:
    """The whole batch repeated: an axis before the batch axis."""
    source, times = node.args[0], node.arg("repeats")
    axis = folded_axis(node.result)
    if axis is None or source.row_axis != axis or [*times[:axis], *times[axis + 1 :]] != [1] * (len(times) - 1):
        refuse(node, "mixes them with others")
    assert axis is not None
    order = (times_of(node.result), 1)
    value = unfolding.plain(source)
    longer = (*value.shape[:axis], 1, *value.shape[axis:])
    value = unfolding.rewriter.call(aten.unsqueeze.default, value, axis, shape=longer, like=value)
    shape = unfolded_shape(node.result, order)
    value = unfolding.rewriter.call(aten.expand.default, value, list(shape), shape=shape, like=value)
    unfolding.set(node.result, value, order)


def _along(unfolding: Unfolding, node: Node) -> None:
    """Works along some dimensions; along the folded one only sums do, for gradients of parameters."""
    order = unfolding.order(node.values, node)
    values = {value: unfolding.get(value, order).value for value in node.values if folded_axis(value) is not None}
    if any(value.has_rows for value in node.values):
        refuse(node, "mixes them with others")
    # The dimension is that of the result of `stack`, else that of the operand.
    counted = node.result if node.name == "stack" else node.values[0]
    axis, rank = folded_axis(counted), len(counted.shape)
    if axis is None:
        refuse(node, "mixes them with others")
    assert axis is not None
    extra, changed = sum(size > 1 for size in order), {}
    for name in _DIMENSIONS:
        if not node.has_arg(name) or node.arg(name) is None:
            continue
        given = node.arg(name)
        dims = [dim % rank for dim in (given if isinstance(given, list | tuple) else [given])]
        if axis in dims and node.name != "sum":
            refuse(node, "works along them")
        moved = [
            new
            for dim in dims
            for new in (range(dim, dim + extra + 1) if dim == axis else [dim + extra * (dim > axis)])
        ]
        changed[name] = moved if isinstance(given, list | tuple) else moved[0]
    if not changed and node.name != "sum":
        refuse(node, "works along them")
    unfolding.again(node, order, values, **changed)


_DIMENSIONS = ("dim", "dims", "dimension")


def _trailing(unfolding: Unfolding, node: Node) -> None:
    """A layer norm with rows along the first axis: its gradient would treat them as features."""
    order = unfolding.order(node.values, node)
    folded = {value: unfolding.get(value, order) for value in node.values if folded_axis(value) is not None}
    moved = {value: _rows_first(unfolding, found.value) for value, found in folded.items()}
    axis = next(found.axis for found in folded.values())
    if axis >= len(node.arg("input").shape) - len(node.arg("normalized_shape")):
        refuse(node, "works along them")
    unfolding.again(node, order, moved)
    # In the new node rows come first.
    made = unfolding.rewriter.nodes[-1]
    for old, new in zip(node.results, made.results, strict=True):
        if folded_axis(old) is None:
            continue
        place, shape = new.row_axis or 0, list(new.shape)
        if place:
            new.shape = (shape.pop(place), *shape)
            back = [*range(1, place + 1), 0, *range(place + 1, len(new.shape))]
            unfolding.set(old, unfolding.permuted(new, back), order)


def _rows_first(unfolding: Unfolding, value: Value) -> Value:
    axis = value.row_axis or 0
    return unfolding.permuted(value, [axis, *(other for other in range(len(value.shape)) if other != axis)])


def _looked_up(unfolding: Unfolding, node: Node) -> None:
    """`embedding`: an index for each row and slot, and one table."""
    if node.name == "embedding" and folded_axis(node.arg("weight")) is not None:
        refuse(node, "looks rows up in each other")
    order = unfolding.order(node.values, node)
    folded = {value: unfolding.get(value, order).value for value in node.values if folded_axis(value) is not None}
    unfolding.again(node, order, folded)


RULES: dict[str, Rule] = {
    **dict.fromkeys(("zeros", "ones", "full", "empty"), _made_up),
    **dict.fromkeys(("rand", "randn"), _drawn),
    **dict.fromkeys(("view", "_unsafe_view", "reshape", "_reshape_alias"), _view),
    **dict.fromkeys(("t", "permute", "transpose"), _permute),
    **dict.fromkeys(("unsqueeze", "squeeze"), _lengthened),
    "expand": _expand,
    "repeat": _repeat,
    **dict.fromkeys(
        "select slice cat stack _softmax _log_softmax _safe_softmax _softmax_backward_data _log_softmax_backward_data "
        "sum mean amax amin var std any all logsumexp linalg_vector_norm cumsum cumprod sort topk argmax argmin "
        "gather scatter scatter_add slice_scatter select_scatter flip roll index_select unfold".split(),
        _along,
    ),
    **dict.fromkeys(("native_layer_norm", "native_layer_norm_backward"), _trailing),
    **dict.fromkeys(("embedding", "embedding_dense_backward"), _looked_up),
    **PRODUCTS,
}
