"""Matmuls on columns as matmuls on rows."""

from __future__ import annotations

import torch

from throughtime.compiler.ir.graph import Graph, Node, Value, map_values
from throughtime.compiler.passes.rewriter import Rewriter

aten = torch.ops.aten


def transpose_matmuls(graph: Graph) -> Rewriter:
    """`W @ h.T` becomes `(h @ W.T).T`; two transposes cancel."""
    rewriter = Rewriter()
    turned: dict[Value, Value] = {}
    for node in graph.nodes:
        if _is_transpose(node):
            source = rewriter.resolve(node.args[0])
            turned[node.result] = source
            if source in turned:
                rewriter.replace(node.result, turned[source])
                continue
        elif node.name == "mm":
            left, right = map(rewriter.resolve, node.args)
            if not left.has_rows and right.row_axis == 1 and right in turned:
                weights = rewriter.call(aten.t.default, left, shape=left.shape[::-1], like=left)
                shape = node.result.shape[::-1]
                product = rewriter.call(aten.mm.default, turned[right], weights, shape=shape, like=node.result)
                result = rewriter.call(aten.t.default, product, shape=node.result.shape, like=node.result)
                turned[result] = product
                rewriter.replace(node.result, result)
                continue
        elif _turns(node, rewriter, turned):
            shape, swap = node.result.shape[::-1], {value: rewriter.resolve(value) for value in node.values}
            swap = {value: turned.get(now, now) for value, now in swap.items()}
            args, kwargs = map_values(swap.__getitem__, (node.args, node.kwargs))
            straight = Value(node.result.name, shape, node.result.dtype)
            rewriter.nodes.append(Node(node.target, args, kwargs, (straight,)))
            result = rewriter.call(aten.t.default, straight, shape=node.result.shape, like=node.result)
            turned[result] = straight
            rewriter.replace(node.result, result)
            continue
        rewriter.keep(node)
    return rewriter


def _turns(node: Node, rewriter: Rewriter, turned: dict[Value, Value]) -> bool:
    """Whether a pointwise operation has only transposed operands, so that it can run before the transpose."""
    if not node.is_pointwise or node.result.row_axis != 1 or len(node.result.shape) != 2:
        return False
    values = [rewriter.resolve(value) for value in node.values]
    return all(value in turned or not value.shape for value in values)


def _is_transpose(node: Node) -> bool:
    if node.name == "t" or (node.name == "transpose" and {node.args[1] % 2, node.args[2] % 2} == {0, 1}):
        return len(node.result.shape) == 2
    return node.name == "permute" and len(node.result.shape) == 2 and [dim % 2 for dim in node.args[1]] == [1, 0]
