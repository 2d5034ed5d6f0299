"""Reassociation of sums, so that their state-independent terms can leave the loop."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

from throughtime.compiler.ir.graph import Dim, Graph, Node, Value, depends_on
from throughtime.compiler.passes.rewriter import Rewriter

aten = torch.ops.aten


def regroup_sums(graph: Graph, carried: Iterable[Value]) -> Rewriter:
    """`(x @ W + h @ U) + b` becomes `(x @ W + b) + h @ U`: state-independent terms come first, and leave the loop."""
    recurrent = depends_on(graph.nodes, carried)
    made, users = graph.producers(), graph.users()
    rewriter = Rewriter()
    for node in graph.nodes:
        if not _is_sum(node) or _is_inner(node, users):
            rewriter.keep(node)
            continue
        terms = [rewriter.resolve(term) for term in _terms(node, made, users)]
        fixed = [term for term in terms if term not in recurrent]
        whole = next((term for term in fixed if term.shape == node.result.shape), None)
        if len(fixed) < 2 or len(fixed) == len(terms) or whole is None:
            rewriter.keep(node)
            continue
        fixed.remove(whole)
        rewriter.replace(node.result, _add_up(rewriter, [whole, *fixed, *(t for t in terms if t in recurrent)]))
    return rewriter


def _is_sum(node: Node) -> bool:
    return (
        node.target is aten.add.Tensor
        and node.arg("alpha") == 1
        and node.result.dtype.is_floating_point
        and all(isinstance(arg, Value) and arg.dtype == node.result.dtype for arg in node.args[:2])
    )


def _is_inner(node: Node, users: dict[Value, list[Node]]) -> bool:
    """Whether a sum is only a term of one larger sum of the same shape."""
    used = users.get(node.result, [])
    return len(used) == 1 and _is_sum(used[0]) and used[0].result.shape == node.result.shape


def _terms(node: Node, made: dict[Value, Node], users: dict[Value, list[Node]]) -> list[Value]:
    terms: list[Value] = []
    for arg in node.args[:2]:
        inner = made.get(arg)
        if inner is not None and _is_sum(inner) and _is_inner(inner, users):
            terms += _terms(inner, made, users)
        else:
            terms.append(arg)
    return terms


def _add_up(rewriter: Rewriter, terms: Sequence[Value]) -> Value:
    total = terms[0]
    for term in terms[1:]:
        total = rewriter.call(aten.add.Tensor, total, term, shape=_broadcast(total, term), like=total)
    return total


def _broadcast(one: Value, other: Value) -> tuple[Dim, ...]:
    return one.shape if len(one.shape) >= len(other.shape) else other.shape
