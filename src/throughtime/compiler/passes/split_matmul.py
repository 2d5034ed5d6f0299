"""Matmuls split so that their state-independent parts can leave the loop."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from throughtime.compiler.ir.graph import ROWS, Dim, Graph, Node, Value, depends_on
from throughtime.compiler.passes.rewriter import Rewriter

aten = torch.ops.aten


def split_matmuls(graph: Graph, cotangents: Iterable[Value], recurring: Iterable[Value]) -> Rewriter:
    """`cat([x, h]) @ W` becomes `x @ W[:I] + h @ W[I:]`, so that the part without state can leave the loop.

    The same for its gradients: a slice of `g @ W.T` is `g @` a slice of `W.T`, and `cat([x, h]).T @ g` is a
    concatenation of `x.T @ g` and `h.T @ g`. `recurring` are the cotangents of the state: gradients that depend on
    these stay in the loop anyway, and one matmul is faster there.
    """
    made, users = graph.producers(), graph.users()
    gradients, in_loop = depends_on(graph.nodes, cotangents), depends_on(graph.nodes, recurring)
    rewriter = Rewriter()
    for node in graph.nodes:
        if node.name == "mm":
            left, right = node.args
            joined, transposed = _concatenated_features(made, left)
            if joined is not None and _is_worth_splitting(joined, users, gradients, in_loop):
                rewriter.replace(node.result, _split_mm(rewriter, node, joined, transposed))
                continue
            if _is_cut_up(node.result, users, graph):
                continue
        if node.name == "slice" and _is_cut_up(node.args[0], users, graph) and _is_mm(made, node.args[0]):
            left, right = map(rewriter.resolve, made[node.args[0]].args)
            start, stop = node.args[2:4]
            stop = min(stop, right.shape[1])
            piece = rewriter.call(
                aten.slice.Tensor, right, 1, start, stop, shape=(right.shape[0], stop - start), like=right
            )
            rewriter.replace(
                node.result, rewriter.call(aten.mm.default, left, piece, shape=node.result.shape, like=node.result)
            )
            continue
        rewriter.keep(node)
    return rewriter


def _is_worth_splitting(
    joined: Node, users: dict[Value, list[Node]], gradients: set[Value], in_loop: set[Value]
) -> bool:
    """Whether parts are not empty and, if they are gradients that recur, have other users as well."""
    parts = [part for part in joined.args[0] if part.shape[1]]
    if gradients.isdisjoint(parts) or not in_loop.issuperset(parts):
        return bool(parts)
    # Otherwise they would be stored twice, alone and concatenated.
    return any(user is not joined for part in parts for user in users[part])


def _concatenated_features(made: dict[Value, Node], left: Value) -> tuple[Node | None, bool]:
    """The `cat` of features that `left` is, or is the transpose of."""
    node = made.get(left)
    if node is not None and node.name == "t":
        joined = made.get(node.args[0])
        return (joined, True) if joined is not None and _concatenates_features(joined) else (None, True)
    return (node, False) if node is not None and _concatenates_features(node) else (None, False)


def _concatenates_features(node: Node) -> bool:
    if node.name != "cat" or node.result.row_axis != 0 or len(node.result.shape) != 2 or node.arg("dim") % 2 != 1:
        return False
    # A concatenation of several dtypes converts some of its parts.
    return {part.dtype for part in node.args[0]} == {node.result.dtype}


def _split_mm(rewriter: Rewriter, node: Node, joined: Node, transposed: bool) -> Value:
    right = rewriter.resolve(node.args[1])
    parts, start = [], 0
    for old in joined.args[0]:
        part = rewriter.resolve(old)
        width = part.shape[1]
        assert isinstance(width, int)
        stop = start + width
        if transposed:
            turned = rewriter.call(aten.t.default, part, shape=(width, ROWS), like=part)
            shape: tuple[Dim, ...] = (width, right.shape[1])
            parts.append(rewriter.call(aten.mm.default, turned, right, shape=shape, like=node.result))
        elif width:
            weights = rewriter.call(aten.slice.Tensor, right, 0, start, stop, shape=(width, right.shape[1]), like=right)
            parts.append(rewriter.call(aten.mm.default, part, weights, shape=node.result.shape, like=node.result))
        start = stop
    if transposed:
        return rewriter.call(aten.cat.default, parts, 0, shape=node.result.shape, like=node.result)
    total = parts[0]
    for part in parts[1:]:
        total = rewriter.call(aten.add.Tensor, total, part, shape=node.result.shape, like=node.result)
    return total


def _is_mm(made: dict[Value, Node], value: Value) -> bool:
    return value in made and made[value].name == "mm"


def _is_cut_up(value: Value, users: dict[Value, list[Node]], graph: Graph) -> bool:
    """Whether a value with rows is only used in slices of columns."""
    used = users.get(value, [])
    return (
        bool(used)
        and value not in graph.results
        and value.row_axis == 0
        and len(value.shape) == 2
        and all(
            user.name == "slice" and user.arg("dim") in (1, -1) and user.arg("step") == 1 and len(user.args) >= 4
            for user in used
        )
    )


def split_grouped_matmuls(graph: Graph, most: int) -> Rewriter:
    """`[G, n, K] @ [G, K, F]` becomes G matmuls of rows with one matrix each, if G is at most `most`."""
    rewriter = Rewriter()
    for node in graph.nodes:
        groups = node.result.shape[0] if node.name == "bmm" else 0
        axes = [value.row_axis for value in node.args[:2]] if node.name == "bmm" else []
        if axes not in ([1, None], [None, 2]) or not isinstance(groups, int) or groups > most:
            rewriter.keep(node)
            continue
        left, right = map(rewriter.resolve, node.args)
        if axes == [1, None]:
            rewriter.replace(node.result, _group_by_group(rewriter, left, right, groups))
        else:
            turned = _group_by_group(rewriter, _swap_last_two(rewriter, right), _swap_last_two(rewriter, left), groups)
            rewriter.replace(node.result, _swap_last_two(rewriter, turned))
    return rewriter


def _group_by_group(rewriter: Rewriter, rows: Value, matrices: Value, groups: int) -> Value:
    shape = (ROWS, matrices.shape[2])
    products = []
    for group in range(groups):
        pair = [
            rewriter.call(aten.select.int, value, 0, group, shape=value.shape[1:], like=value)
            for value in (rows, matrices)
        ]
        products.append(rewriter.call(aten.mm.default, *pair, shape=shape, like=rows))
    if groups == 1:
        return rewriter.call(aten.unsqueeze.default, products[0], 0, shape=(1, *shape), like=rows)
    return rewriter.call(aten.stack.default, products, 0, shape=(groups, *shape), like=rows)


def _swap_last_two(rewriter: Rewriter, value: Value) -> Value:
    """The last two dimensions swapped."""
    first, one, other = value.shape
    return rewriter.call(aten.transpose.int, value, 1, 2, shape=(first, other, one), like=value)
