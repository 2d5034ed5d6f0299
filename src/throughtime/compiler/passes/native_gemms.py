"""Weight-gradient and input-gradient GEMMs of the CPU backend in the place of matmuls and sums of torch."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from throughtime._setting import Setting
from throughtime.compiler.ir.gemm_ops import OVER_ROWS, PRODUCT_OVER_ROWS, TIMES
from throughtime.compiler.ir.graph import Graph, Node, Value
from throughtime.compiler.passes.matmul_rewrites import weight_gradient_operands
from throughtime.compiler.passes.section_order import compute_when_needed

aten = torch.ops.aten


_PANEL = 16
"""Columns of a tile of such a GEMM in float32, with vectors of 32 bytes."""


narrowest = Setting(8)
"""The fewest columns of a gradient for a panel, which has twice as many."""


_DTYPES: tuple[set[torch.dtype], ...] = ({torch.float32}, {torch.float64})


def use_weight_gradient_gemm(nodes: Sequence[Node], gives: set[Value]) -> list[Node]:
    """Matmuls that sum over rows, `aᵀ @ g`, and sums over the rows of `a` or `g`, for a bias, as one operation.

    It reads rows in place: nothing is copied to be concatenated, nor to be shifted to the previous step.
    """
    nodes, results = list(nodes), [value for node in nodes for value in node.results if value in gives]
    for total in nodes:
        if total.target is aten.sum.dim_IntList and total.args[1:] == ([0],):
            found = _products_of_sums(total, nodes, gives)
            if found is not None:
                nodes = _as_one(nodes, results, *found, total)
    for g, wholes in _by_right_side(_products_over_rows(nodes, gives)).items():
        if sum(map(len, wholes.values())) > 1:
            nodes = _as_one(nodes, results, g, wholes)
    return nodes


_Wholes = dict[Value, dict[Value, Value]]
"""Matmuls, and concatenations of some along the first axis: for each its matmuls, with their `a`."""


def _as_one(
    nodes: list[Node], results: Sequence[Value], g: Value, wholes: _Wholes, total: Node | None = None
) -> list[Node]:
    """Nodes with some matmuls with `g`, and the sum of `g` or of `a`, as one operation."""
    producer = Graph(nodes).producers().get(g)
    pieces = producer.args[0] if producer is not None and _is_concat(producer) else [g]
    lefts = [left for parts in wholes.values() for left in parts.values()]
    # The operation always computes the sum, used or not.
    sums = Value(f"{g.name}_sums", (g.row_size,), g.dtype) if total is None else total.result
    gone = {sums, *wholes, *(part for parts in wholes.values() for part in parts)}
    before = {value for node in Graph(nodes).needed_for([*pieces, *lefts]) for value in node.results}
    dtypes = {value.dtype for value in (g, sums, *pieces, *lefts)}
    is_turned = total is not None and g is not total.values[0]
    is_narrow = g.row_size < narrowest.value and not is_turned
    if is_narrow or dtypes not in _DTYPES or gone & before:
        return nodes
    heights = {whole: sum(left.row_size for left in parts.values()) for whole, parts in wholes.items()}
    made = _as_one_operation(g, pieces, lefts, heights, sums, sum_parts=is_turned)
    return compute_when_needed([*(node for node in nodes if gone.isdisjoint(node.results)), *made], results)


def _products_over_rows(nodes: Sequence[Node], gives: set[Value]) -> dict[Value, tuple[Value, dict[Value, Value]]]:
    """Matmuls that sum over rows, and concatenations of some with one `g`: that `g`, and the matmuls of each."""
    graph = Graph(list(nodes))
    made, users = graph.producers(), graph.users()
    operands = {node.results[0]: weight_gradient_operands(made, node.results[0]) for node in nodes}
    products = {product: pair for product, pair in operands.items() if pair is not None}
    joined = {}
    for node in nodes:
        parts = node.args[0] if node.name == "cat" and node.arg("dim") == 0 else []
        alone = all(part in products and part not in gives and users[part] == [node] for part in parts)
        if parts and alone and len(set(parts)) == len(parts) and len({products[part][1] for part in parts}) == 1:
            joined[node.result] = parts
    inside = {part for parts in joined.values() for part in parts}
    wholes = joined | {product: [product] for product in products if product not in inside}
    return {
        whole: (products[parts[0]][1], {part: products[part][0] for part in parts}) for whole, parts in wholes.items()
    }


def _by_right_side(found: dict[Value, tuple[Value, dict[Value, Value]]]) -> dict[Value, _Wholes]:
    """The same, grouped by `g`."""
    grouped: dict[Value, _Wholes] = {}
    for whole, (g, parts) in found.items():
        grouped.setdefault(g, {})[whole] = parts
    return grouped


def _products_of_sums(total: Node, nodes: Sequence[Node], gives: set[Value]) -> tuple[Value, _Wholes] | None:
    """Matmuls with the summed value: as the `g` of some, or else as the `a` of one."""
    found = _products_over_rows(nodes, gives)
    source: Value = total.values[0]
    with_it = _by_right_side(found).get(source)
    if with_it:
        return source, with_it
    producer = Graph(list(nodes)).producers().get(source)
    pieces = producer.args[0] if producer is not None and _is_concat(producer) else [source]
    widths = {whole: g.row_size for whole, (g, parts) in found.items() if list(parts.values()) in (pieces, [source])}
    # A panel that is not full has room for the sum; if all are full, one more must be a small share.
    with_room = [whole for whole in widths if widths[whole] % _PANEL]
    best = min(with_room, key=widths.__getitem__) if with_room else max(widths, key=widths.__getitem__, default=None)
    if best is None or (not with_room and widths[best] < 4 * _PANEL):
        return None
    g, parts = found[best]
    return g, {best: parts}


def _as_one_operation(
    g: Value, pieces: Sequence[Value], lefts: list[Value], heights: dict[Value, int], sums: Value, *, sum_parts: bool
) -> list[Node]:
    """One operation for all matmuls, and slices of it if there are several; `g` may be a concatenation of pieces."""
    arguments = (list(pieces), lefts, sum_parts)
    if len(heights) == 1:
        return [Node(OVER_ROWS, arguments, {}, (*heights, sums))]
    below = Value(f"{g.name}weight_gradient_operands", (sum(heights.values()), g.row_size), g.dtype)
    nodes, start = [Node(OVER_ROWS, arguments, {}, (below, sums))], 0
    for whole, height in heights.items():
        nodes.append(Node(aten.slice.Tensor, (below, 0, start, start + height), {}, (whole,)))
        start += height
    return nodes


def _is_concat(node: Node) -> bool:
    """Whether a node concatenates features."""
    return node.name == "cat" and node.arg("dim") == 1


def use_single_weight_gradient_gemm(nodes: Sequence[Node], gives: set[Value]) -> list[Node]:
    """The products `aᵀ @ g` that remain, one operation each; torch computes those of a concat in their places."""
    graph = Graph(list(nodes))
    made, users = graph.producers(), graph.users()
    changed = []
    for node in nodes:
        pair = weight_gradient_operands(made, node.results[0])
        is_joined = any(user.name == "cat" for user in users.get(node.results[0], []))
        if (
            pair is None
            or is_joined
            or pair[1].row_size < narrowest.value
            or {one.dtype for one in pair} not in _DTYPES
        ):
            changed.append(node)
        else:
            changed.append(Node(PRODUCT_OVER_ROWS, pair, {}, node.results))
    return changed


def use_input_gradient_gemm(nodes: Sequence[Node], gives: set[Value]) -> list[Node]:
    """Matmuls of rows with matrices, and sums of such matmuls that nothing else uses, as one operation.

    Nodes are in topological order, so the terms of a sum are known before the sum.
    """
    users = Graph(list(nodes)).users()
    terms: dict[Value, list[tuple[Value, Value]]] = {}
    changed: list[Node] = []
    for node in nodes:
        pairs = _terms(node, terms, users, gives)
        if pairs is None:
            changed.append(node)
            continue
        terms[node.result] = pairs
        rows, matrices = (list(side) for side in zip(*pairs, strict=True))
        changed.append(Node(TIMES, (rows, matrices), {}, node.results))
    return changed


def _terms(
    node: Node, terms: dict[Value, list[tuple[Value, Value]]], users: dict[Value, list[Node]], gives: set[Value]
) -> list[tuple[Value, Value]] | None:
    """The rows and matrices of the matmuls that a node sums; None for other nodes."""
    if node.name == "mm":
        rows, matrix = node.args
        plain = {rows.dtype, matrix.dtype} in _DTYPES
        by_rows = rows.row_axis == 0 and not matrix.has_rows
        return [(rows, matrix)] if plain and by_rows else None
    if node.target is not aten.add.Tensor or node.arg("alpha") != 1:
        return None
    parts = node.args[:2]
    alone = all(isinstance(part, Value) and part in terms and len(users[part]) == 1 for part in parts)
    if not alone or not gives.isdisjoint(parts) or {part.dtype for part in parts} != {node.result.dtype}:
        return None
    return [pair for part in parts for pair in terms[part]]
