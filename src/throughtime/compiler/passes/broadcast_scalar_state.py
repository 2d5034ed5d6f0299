"""Broadcast of scalar states, such as a step counter, to the batch: every row counts for itself."""

from __future__ import annotations

import torch

from throughtime.compiler.errors import Uncompilable
from throughtime.compiler.ir.graph import ROWS, Dim, Graph, Node, Value
from throughtime.compiler.passes.rewriter import Rewriter
from throughtime.compiler.trace.trace import Trace

aten = torch.ops.aten


def broadcast_scalar_state(traced: Trace) -> None:
    """Give rows to every state of rank 0 and to all values that depend on it."""
    scalars = [state for state in traced.state if not state.has_rows]
    if not scalars:
        return
    spread: dict[Value, tuple[Dim, ...]] = {}
    for state in scalars:
        if state.dtype.is_floating_point and any(traced.state_cotangents):
            raise Uncompilable(f"its state {state.name} has no rows, but a gradient")
        spread[state] = state.shape
        state.shape = (ROWS, *state.shape)
    rewriter = Rewriter()
    for node in traced.graph.nodes:
        if spread.keys().isdisjoint(node.values):
            rewriter.keep(node)
        else:
            _spread_node(rewriter, node, spread)
    for index, (old, new) in enumerate(zip(traced.state, traced.new_state, strict=True)):
        if old in scalars and not new.has_rows:
            widened = rewriter.call(aten.expand.default, new, [ROWS], shape=(ROWS,), like=new)
            traced.outputs = [widened if value is new else value for value in traced.outputs]
            traced.new_state[index] = widened
    traced.graph = Graph(rewriter.nodes)
    traced.backward_start = _first_backward(traced)


def _first_backward(traced: Trace) -> int:
    """The first user of a cotangent: nodes may have been added before the backward part."""
    cotangents = {value for value in (*traced.output_cotangents, *traced.state_cotangents) if value is not None}
    for position, node in enumerate(traced.graph.nodes):
        if not cotangents.isdisjoint(node.values):
            return position
    return len(traced.graph.nodes)


def _spread_node(rewriter: Rewriter, node: Node, spread: dict[Value, tuple[Dim, ...]]) -> None:
    if not node.is_pointwise:
        raise Uncompilable(f"a state without rows goes into {node.title}")
    (result,) = node.results
    if result.row_axis not in (None, 0):
        raise Uncompilable("a state without rows is combined with rows that do not come first")
    if not result.has_rows:
        spread[result] = result.shape
        result.shape = (ROWS, *result.shape)
    rank = len(result.shape)
    lifted: dict[Value, Value] = {}
    for value in node.values:
        own = spread.get(value)
        if own is not None and value not in lifted:
            shape = (ROWS, *[1] * (rank - 1 - len(own)), *own)
            same = shape == value.shape
            lifted[value] = (
                value if same else rewriter.call(aten.view.default, value, list(shape), shape=shape, like=value)
            )
    rewriter.keep(node.substituted(lambda value: lifted.get(value, value)))
