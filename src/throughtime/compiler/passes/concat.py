"""Concatenations: nested ones flattened, and sums of padded slices turned into one."""

from __future__ import annotations

import itertools

import torch

from throughtime.compiler.ir.graph import ROWS, Graph, Node, Value
from throughtime.compiler.passes.rewriter import Rewriter

aten = torch.ops.aten


def flatten_concats(graph: Graph) -> Rewriter:
    """`cat([cat([x, y]), h])` becomes `cat([x, y, h])`."""
    made = graph.producers()
    rewriter = Rewriter()
    for node in graph.nodes:
        parts = _flat_parts(node, made) if node.name == "cat" else []
        if parts and len(parts) > len(node.args[0]):
            rewriter.keep(Node(node.target, (parts, *node.args[1:]), node.kwargs, node.results))
            made[node.result] = rewriter.nodes[-1]
        else:
            rewriter.keep(node)
    return rewriter


def _flat_parts(joined: Node, made: dict[Value, Node]) -> list[Value]:
    parts: list[Value] = []
    for part in joined.args[0]:
        inner = made.get(part)
        if inner is not None and inner.name == "cat" and inner.arg("dim") == joined.arg("dim"):
            parts += inner.args[0] if part.dtype == joined.result.dtype else [part]
        else:
            parts.append(part)
    return parts


Piece = tuple[int, int, Value]
"""Start and stop of a part of a row, and the part."""


def concat_padded_slices(graph: Graph) -> Rewriter:
    """A sum of disjoint pieces padded with zeros, the gradient of slices, becomes a concatenation."""
    made = graph.producers()
    rewriter = Rewriter()
    pieces: dict[Value, list[Piece]] = {}
    # The zeros that pieces are written into.
    blank: dict[Value, Node] = {}
    for node in graph.nodes:
        found = _pieces(node, made, pieces)
        if found is None:
            rewriter.keep(node)
        else:
            # Partial sums get a concatenation too, which is dropped if nothing uses it.
            pieces[node.result] = found
            zeros = blank[node.result] = blank.get(node.args[0]) or made[node.args[0]]
            rewriter.replace(node.result, _side_by_side(rewriter, node.result, found, zeros))
    return rewriter


def _pieces(node: Node, made: dict[Value, Node], known: dict[Value, list[Piece]]) -> list[Piece] | None:
    """The pieces that a node writes into zeros, in order; None for other nodes."""
    if node.name == "slice_scatter":
        whole, piece = node.args[:2]
        of_zeros = whole in made and made[whole].name == "zeros" and whole.row_axis == 0
        if not of_zeros or node.arg("dim") % len(whole.shape) != 1 or node.arg("step") != 1:
            return None
        if piece.dtype != whole.dtype:
            return None
        start, stop = node.arg("start") or 0, node.arg("end")
        return [(start, whole.shape[1] if stop is None else min(stop, whole.shape[1]), piece)]
    is_sum = node.name == "add" and node.arg("alpha") == 1 and all(arg in known for arg in node.args[:2])
    if is_sum and all(arg.shape == node.result.shape for arg in node.args[:2]):
        joined = sorted(known[node.args[0]] + known[node.args[1]], key=lambda piece: piece[0])
        if all(one[1] <= other[0] for one, other in itertools.pairwise(joined)):
            return joined
    return None


def _side_by_side(rewriter: Rewriter, whole: Value, pieces: list[Piece], zeros: Node) -> Value:
    width = whole.shape[1]
    assert isinstance(width, int)
    parts, position = [], 0
    for start, stop, piece in [*pieces, (width, width, whole)]:
        if start > position:
            gap = Value("zeros", (ROWS, start - position, *whole.shape[2:]), whole.dtype)
            # With the same options, for the device.
            rewriter.nodes.append(Node(zeros.target, (list(gap.shape),), zeros.kwargs, (gap,)))
            parts.append(gap)
        if piece is not whole:
            parts.append(rewriter.resolve(piece))
        position = stop
    return parts[0] if len(parts) == 1 else rewriter.call(aten.cat.default, parts, 1, shape=whole.shape, like=whole)
