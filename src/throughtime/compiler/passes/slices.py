"""Slices of slices and of concatenations."""

from __future__ import annotations

from throughtime.compiler.ir.graph import Graph, Node, Value
from throughtime.compiler.passes.rewriter import Rewriter


def merge_slices(graph: Graph) -> Rewriter:
    """A slice of a slice is one slice; a slice that is exactly one part of a `cat` is that part."""
    made = graph.producers()
    rewriter = Rewriter()
    for node in graph.nodes:
        inner = made.get(node.args[0]) if _is_range(node) else None
        if inner is not None and _is_range(inner) and inner.args[1] == node.args[1]:
            start = inner.args[2] + node.args[2]
            stop = min(inner.args[2] + node.args[3], inner.args[3])
            rewriter.keep(Node(node.target, (inner.args[0], node.args[1], start, stop), {}, node.results))
            made[node.result] = rewriter.nodes[-1]
            continue
        if inner is not None and inner.name == "cat" and node.arg("dim") == inner.arg("dim"):
            part = _part_of(inner, node.args[2], node.args[3])
            if part is not None:
                rewriter.replace(node.result, part)
                continue
        rewriter.keep(node)
    return rewriter


def _is_range(node: Node) -> bool:
    """Whether a node is a contiguous slice with known start and stop."""
    known = len(node.args) >= 4 and all(isinstance(arg, int) for arg in node.args[1:4])
    return node.name == "slice" and known and node.arg("step") == 1


def _part_of(joined: Node, start: int, stop: int) -> Value | None:
    position = 0
    for part in joined.args[0]:
        size = part.shape[joined.arg("dim")]
        if (position, position + size) == (start, stop):
            found: Value = part
            return found
        position += size
    return None
