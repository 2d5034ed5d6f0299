"""Nodes that change nothing, and operations that compute several gradients."""

from __future__ import annotations

import torch

from throughtime.compiler.ir.graph import Graph, Node, Value
from throughtime.compiler.passes.rewriter import Rewriter

aten = torch.ops.aten


def drop_identities(graph: Graph) -> Rewriter:
    """Drop views, casts and copies that change nothing."""
    rewriter = Rewriter()
    for node in graph.nodes:
        if _is_identity(node):
            rewriter.replace(node.result, node.args[0])
        elif node.name in ("view", "_unsafe_view") and not _is_line(node.args[0]):
            # A value that was contiguous in the trace need not be so at run time.
            rewriter.keep(Node(aten.reshape.default, node.args, node.kwargs, node.results))
        else:
            rewriter.keep(node)
    return rewriter


def _is_identity(node: Node) -> bool:
    if node.name == "permute":
        dims = node.args[1]
        return [dim % len(dims) for dim in dims] == list(range(len(dims)))
    return node.operation.keeps_order and node.args[0].shape == node.result.shape and _same_dtype(node)


def _is_line(value: Value) -> bool:
    """Whether at most one dimension has a size other than 1: then any strides allow a view."""
    return sum(size != 1 for size in value.shape) <= 1


def _same_dtype(node: Node) -> bool:
    return bool(node.args[0].dtype == node.result.dtype)


def split_output_masks(graph: Graph) -> Rewriter:
    """An operation that computes gradients of rows and of parameters becomes two: only the first is in the loop."""
    rewriter = Rewriter()
    for node in graph.nodes:
        names = [argument.name for argument in node.target._schema.arguments]
        if "output_mask" not in names:
            rewriter.keep(node)
            continue
        place = names.index("output_mask")
        mask = node.arg("output_mask")
        for with_rows in (True, False):
            chosen = [bool(m) and value.has_rows == with_rows for m, value in zip(mask, node.results, strict=True)]
            if any(chosen):
                args = (*node.args[:place], chosen, *node.args[place + 1 :])
                results = tuple(
                    value if want else Value("unused", (), value.dtype)
                    for value, want in zip(node.results, chosen, strict=True)
                )
                rewriter.keep(Node(node.target, args, node.kwargs, results))
    return rewriter
