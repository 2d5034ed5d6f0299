"""The order of a traced step: what its results need, then what only gradients need."""

from __future__ import annotations

from throughtime.compiler.ir.graph import Graph
from throughtime.compiler.trace.trace import Trace


def order_forward_first(traced: Trace) -> None:
    """Move nodes that only gradients need behind all others, and note where they begin."""
    nodes = traced.graph.nodes
    needed = set(map(id, traced.graph.needed_for([*traced.outputs, *traced.new_state])))
    first = [node for node in nodes if id(node) in needed]
    second = [node for node in nodes if id(node) not in needed]
    traced.graph, traced.backward_start = Graph(first + second), len(first)
