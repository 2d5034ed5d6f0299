"""Common subexpression elimination."""

from __future__ import annotations

from throughtime.compiler.ir.graph import Graph, Node
from throughtime.compiler.passes.rewriter import Rewriter


def eliminate_common_subexpressions(graph: Graph) -> Rewriter:
    """Nodes with the same operation and arguments become one, except random ones."""
    rewriter = Rewriter()
    seen: dict[object, Node] = {}
    for old in graph.nodes:
        node = old.substituted(rewriter.resolve)
        key = None if node.is_random else _key((node.target, node.args, node.kwargs, node.results[0].dtype))
        if key is not None and key in seen:
            for value, same in zip(node.results, seen[key].results, strict=True):
                rewriter.replace(value, same)
            continue
        if key is not None:
            seen[key] = node
        rewriter.keep(node)
    return rewriter


def _key(tree: object) -> object:
    if isinstance(tree, tuple | list):
        return tuple(map(_key, tree))
    if isinstance(tree, dict):
        return tuple((name, _key(part)) for name, part in tree.items())
    # By type and digits: 1, 1.0 and True are equal in Python, and so are 0.0 and -0.0.
    return (type(tree), repr(tree)) if isinstance(tree, int | float) else tree
