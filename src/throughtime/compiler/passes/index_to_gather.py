"""`h[torch.arange(len(h)), i]` as a `gather`: every row indexes into itself."""

from __future__ import annotations

import math

import torch

from throughtime.compiler.ir.graph import ROWS, Dim, Graph, Node, Value
from throughtime.compiler.passes.rewriter import Rewriter

aten = torch.ops.aten

_NEVER_NEGATIVE = frozenset({"argmax", "argmin"})


def index_to_gather(graph: Graph) -> Rewriter:
    """Replace reads and writes that index rows by their own number; other uses of row numbers stay."""
    made = graph.producers()
    rewriter = Rewriter()
    numbers: set[Value] = set()
    for node in graph.nodes:
        if _is_numbering(node, numbers):
            numbers.update(node.results)
        if node.name == "index" and _is_by_row(node, numbers):
            rewriter.replace(node.result, _picked(rewriter, node, made))
        elif node.name == "index_put" and _is_by_row(node, numbers) and _fills(node):
            rewriter.replace(node.result, _written(rewriter, node, made))
        else:
            rewriter.keep(node)
    return rewriter


def _is_numbering(node: Node, numbers: set[Value]) -> bool:
    """Whether every element of a result is the number of its row."""
    value = node.results[0]
    if value.row_axis != 0 or value.dtype != torch.int64:
        return False
    if node.name == "arange":
        start, step = (node.arg(name) if node.has_arg(name) else usual for name, usual in (("start", 0), ("step", 1)))
        return node.arg("end") is ROWS and start == 0 and step == 1
    kept = node.operation.keeps_order and node.args[0] in numbers
    return kept and (node.name != "expand" or len(node.args[0].shape) == len(value.shape))


def _is_by_row(node: Node, numbers: set[Value]) -> bool:
    source, indices = node.args[:2]
    if source.row_axis != 0 or not indices or indices[0] not in numbers:
        return False
    number, others = indices[0], indices[1:]
    if not any(index is not None for index in others):
        return number.shape == (ROWS,) and node.name == "index"
    index = others[0]
    if index is None or any(other is not None for other in others[1:]) or index.dtype != torch.int64:
        return False
    same_rank = len(number.shape) == len(index.shape) and index.row_axis == 0
    return same_rank and all(size in (1, own) for size, own in zip(number.shape[1:], index.shape[1:], strict=True))


def _fills(node: Node) -> bool:
    """Whether the written value has an element for every index."""
    whole, indices, piece = node.args[:3]
    others = [index for index in indices[1:] if index is not None]
    return bool(others) and piece.shape == (*others[0].shape, *whole.shape[2:])


def _picked(rewriter: Rewriter, node: Node, made: dict[Value, Node]) -> Value:
    source, indices = rewriter.resolve(node.args[0]), node.args[1]
    if not any(index is not None for index in indices[1:]):
        return source
    places = _places(rewriter, indices[1], source, made)
    picked = rewriter.call(aten.gather.default, source, 1, places, shape=places.shape, like=source)
    return _shaped(rewriter, picked, node.result.shape)


def _written(rewriter: Rewriter, node: Node, made: dict[Value, Node]) -> Value:
    whole, piece = rewriter.resolve(node.args[0]), rewriter.resolve(node.args[2])
    places = _places(rewriter, node.args[1][1], whole, made)
    target = aten.scatter_add.default if node.arg("accumulate") else aten.scatter.src
    pieces = _shaped(rewriter, piece, places.shape)
    return rewriter.call(target, whole, 1, places, pieces, shape=whole.shape, like=whole)


def _places(rewriter: Rewriter, index: Value, source: Value, made: dict[Value, Node]) -> Value:
    """The column indices of each row, broadcast over inner dimensions; negative ones count from the end."""
    found, now = made.get(index), rewriter.resolve(index)
    if found is None or found.name not in _NEVER_NEGATIVE:
        below = Value("lt", now.shape, torch.bool)
        rewriter.nodes.append(Node(aten.lt.Scalar, (now, 0), {}, (below,)))
        ahead = rewriter.call(aten.add.Tensor, now, source.shape[1], shape=now.shape, like=now)
        now = rewriter.call(aten.where.self, below, ahead, now, shape=now.shape, like=now)
    count = math.prod(size for size in now.shape[1:] if isinstance(size, int))
    inner = source.shape[2:]
    flat = _shaped(rewriter, now, (ROWS, count, *[1] * len(inner)))
    if not inner:
        return flat
    shape = (ROWS, count, *inner)
    return rewriter.call(aten.expand.default, flat, list(shape), shape=shape, like=flat)


def _shaped(rewriter: Rewriter, value: Value, shape: tuple[Dim, ...]) -> Value:
    if value.shape == shape:
        return value
    return rewriter.call(aten.reshape.default, value, list(shape), shape=shape, like=value)
