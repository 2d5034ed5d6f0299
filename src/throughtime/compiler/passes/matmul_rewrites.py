"""Products in the form in which torch computes them fastest; the values are the same up to rounding."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

from throughtime._setting import Setting
from throughtime.compiler import ROWS, Graph, Node, Value
from throughtime.compiler.ir.gemm_ops import OVER_ROWS, TIMES

aten = torch.ops.aten

_WIDE = 128
"""Features from which on a product of its own is fast enough: to join rows takes time and memory."""

_PANEL = 16
"""Columns of float32 that a tile of such a product has, with vectors of 32 bytes."""
narrowest = Setting(8)
"""Columns of a gradient that are worth a panel, which has twice as many; a turned one has its sums in the rest."""
_PLAIN: tuple[set[torch.dtype], ...] = ({torch.float32}, {torch.float64})


def rewrite_matmuls(
    nodes: Sequence[Node], gives: Iterable[Value], *, on_gpu: bool = False, by_kernels: bool = False
) -> list[Node]:
    """The same values from fewer and faster operations, in an order that keeps little in memory.

    On a GPU every operation is a launch, which takes the host longer than many take the card. Beside kernels of the CPU
    large products are made `by_kernels`, too.
    """
    gives = list(gives)
    wanted = set(gives)
    changes = _ON_GPU if on_gpu else _ON_CPU
    if by_kernels and not any(node.is_random for node in nodes):
        changes = (_flatten_sums, _gather_over_rows, *changes, _gather_times)
    for change in changes:
        nodes = Graph(change(nodes, wanted)).needed_for(wanted)
    if any(node.is_random for node in nodes):
        # Random numbers are drawn in the order of the cell.
        return list(nodes)
    return _sums_first(_when_needed(nodes, gives))


def _when_needed(nodes: Sequence[Node], gives: Sequence[Value]) -> list[Node]:
    """Every value is computed for whoever needs it first, and no sooner."""
    made = Graph(list(nodes)).producers()
    order: dict[int, Node] = {}
    # Values to compute, on top of those that need them; deep graphs are no matter.
    stack = [(value, False) for value in reversed(gives)]
    while stack:
        value, ready = stack.pop()
        node = made.get(value)
        if node is None or id(node) in order:
            continue
        if ready:
            order[id(node)] = node
        else:
            stack += [(value, True), *((other, False) for other in reversed(node.values))]
    return list(order.values())


def _sums_first(nodes: Sequence[Node]) -> list[Node]:
    """What sums over rows runs as soon as it can, so that the rows can be let go."""
    place: dict[Value, int] = {}
    order: list[tuple[int, int, Node]] = []
    for index, node in enumerate(nodes):
        sums = node.name == "t" or not any(value.has_rows for value in node.results)
        at = max((place.get(value, -1) for value in node.values), default=-1) if sums else index
        place.update(dict.fromkeys(node.results, at))
        order.append((at, index, node))
    return [node for _, _, node in sorted(order, key=lambda entry: entry[:2])]


def _fuse_bias(nodes: Sequence[Node], gives: set[Value]) -> list[Node]:
    """`x @ W` and then `+ b` is one operation of torch, which goes over the result once instead of twice."""
    graph = Graph(list(nodes))
    made, users = graph.producers(), graph.users()
    fused: dict[int, Node] = {}
    for node in nodes:
        if node.target is not aten.add.Tensor or node.arg("alpha") != 1:
            continue
        product, bias = node.args[:2]
        inner = made.get(product) if isinstance(product, Value) else None
        if inner is None or inner.name != "mm" or product in gives or len(users[product]) != 1:
            continue
        if isinstance(bias, Value) and bias.shape == product.shape[1:] and bias.dtype == product.dtype:
            fused[id(node)] = Node(aten.addmm.default, (bias, *inner.args), {}, node.results)
    return [fused.get(id(node), node) for node in nodes]


def _join_gradients(nodes: Sequence[Node], gives: set[Value]) -> list[Node]:
    """The gradients of parts of one matrix, `cat([xᵀ @ g, hᵀ @ g])`, are one larger product, `cat([x, h])ᵀ @ g`."""
    graph = Graph(list(nodes))
    made, users = graph.producers(), graph.users()
    changed: list[Node] = []
    joins: dict[tuple[Value, ...], Value] = {}
    for node in nodes:
        if node.name == "cat" and node.arg("dim") == 1:
            joins[tuple(node.args[0])] = node.result
        parts = node.args[0] if node.name == "cat" and node.arg("dim") == 0 else []
        products = [_over_rows(made, part) for part in parts]
        found = [pair for pair in products if pair is not None]
        shared = {right for _, right in found}
        alone = all(part not in gives and len(users[part]) == 1 for part in parts)
        if len(parts) < 2 or len(found) != len(parts) or len(shared) != 1 or not alone:
            changed.append(node)
            continue
        lefts, (right,) = tuple(left for left, _ in found), shared
        width = sum(left.row_size for left in lefts)
        if min(left.row_size for left in lefts) >= _WIDE:
            changed.append(node)
            continue
        # The sum of the same rows, for a bias, may have joined them already.
        joined = joins.get(lefts)
        if joined is None:
            joined = joins[lefts] = Value(f"{node.result.name}_joined", (ROWS, width), right.dtype)
            changed.append(Node(aten.cat.default, (list(lefts), 1), {}, (joined,)))
        turned = Value(f"{node.result.name}_turned", (width, ROWS), right.dtype)
        changed += [
            Node(aten.t.default, (joined,), {}, (turned,)),
            Node(aten.mm.default, (turned, right), {}, node.results),
        ]
    return changed


def _split_sums(nodes: Sequence[Node], gives: set[Value]) -> list[Node]:
    """The sum over the rows of a join is the join of sums, where nothing else needs the rows side by side."""
    graph = Graph(list(nodes))
    made, users = graph.producers(), graph.users()

    def is_sum(node: Node) -> bool:
        return node.target is aten.sum.dim_IntList and node.arg("dim") == [0] and bool(node.arg("keepdim"))

    changed: list[Node] = []
    for node in nodes:
        joined = made.get(node.values[0]) if is_sum(node) else None
        source = None if joined is None or joined.name != "cat" or joined.arg("dim") != 1 else joined.result
        if joined is None or source is None or source in gives or not all(map(is_sum, users[source])):
            changed.append(node)
            continue
        sums = []
        for index, part in enumerate(joined.args[0]):
            sums.append(Value(f"{node.result.name}_{index}_part", (1, part.row_size), node.result.dtype))
            changed.append(Node(node.target, (part, *node.args[1:]), node.kwargs, (sums[-1],)))
        changed.append(Node(aten.cat.default, (sums, 1), {}, node.results))
    return changed


def add_products(nodes: Sequence[Node], gives: Iterable[Value]) -> list[Node]:
    """`x @ W + h @ U` with the second product added to the first where that lies: a third of the way through memory."""
    wanted = set(gives)
    graph = Graph(list(nodes))
    made, users = graph.producers(), graph.users()

    def is_used_up(value: object) -> bool:
        return isinstance(value, Value) and value in made and value not in wanted and len(users[value]) == 1

    fused: dict[int, Node] = {}
    for node in nodes:
        if node.target is not aten.add.Tensor or node.arg("alpha") != 1 or not all(map(is_used_up, node.args)):
            continue
        total, product = node.args
        # The sum is fresh memory of this function: the result of another sum or product, never of a view.
        fresh = made[total].name in ("add", "mm") and total.shape == product.shape and total.dtype == product.dtype
        if made[product].name == "mm" and fresh:
            fused[id(node)] = Node(aten.addmm_.default, (total, *made[product].args), {}, node.results)
    return [fused.get(id(node), node) for node in nodes]


def _flatten_sums(nodes: Sequence[Node], gives: set[Value]) -> list[Node]:
    """A sum over rows [1, n] that is then seen as [n] is one in the first place."""
    graph = Graph(list(nodes))
    made, users = graph.producers(), graph.users()
    plain: dict[int, Node] = {}
    for node in nodes:
        inner = made.get(node.values[0]) if node.target is aten.view.default else None
        if inner is None or inner.target is not aten.sum.dim_IntList or inner.result in gives:
            continue
        flat = inner.arg("dim") == [0] and inner.arg("keepdim") and len(users[inner.result]) == 1
        if flat and node.result.shape == inner.result.shape[1:]:
            plain[id(node)] = Node(inner.target, (inner.args[0], [0]), inner.kwargs, node.results)
    return [plain.get(id(node), node) for node in nodes]


def _gather_over_rows(nodes: Sequence[Node], gives: set[Value]) -> list[Node]:
    """Products that sum over rows, `aᵀ @ g`, with sums over rows of either side, for a bias, as one operation.

    It reads rows where they lie, one below the other: no part is copied to be joined, nor a state of the step before.
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
"""Products, and joins of some one below the other: for each the products it consists of, and their `a`."""


def _as_one(
    nodes: list[Node], results: Sequence[Value], g: Value, wholes: _Wholes, total: Node | None = None
) -> list[Node]:
    """Nodes with some products with `g`, and the sum of it or of what it is multiplied with, in one operation."""
    producer = Graph(nodes).producers().get(g)
    pieces = producer.args[0] if producer is not None and _is_join(producer) else [g]
    lefts = [left for parts in wholes.values() for left in parts.values()]
    # Nobody asks for the sum, but it is made all the same.
    sums = Value(f"{g.name}_sums", (g.row_size,), g.dtype) if total is None else total.result
    gone = {sums, *wholes, *(part for parts in wholes.values() for part in parts)}
    before = {value for node in Graph(nodes).needed_for([*pieces, *lefts]) for value in node.results}
    dtypes = {value.dtype for value in (g, sums, *pieces, *lefts)}
    is_turned = total is not None and g is not total.values[0]
    is_narrow = g.row_size < narrowest.value and not is_turned
    if is_narrow or dtypes not in _PLAIN or gone & before:
        return nodes
    heights = {whole: sum(left.row_size for left in parts.values()) for whole, parts in wholes.items()}
    made = _as_one_operation(g, pieces, lefts, heights, sums, sum_parts=is_turned)
    return _when_needed([*(node for node in nodes if gone.isdisjoint(node.results)), *made], results)


def _products_over_rows(nodes: Sequence[Node], gives: set[Value]) -> dict[Value, tuple[Value, dict[Value, Value]]]:
    """Products that sum over rows, and joins of some with one `g`: that, and the products each consists of."""
    graph = Graph(list(nodes))
    made, users = graph.producers(), graph.users()
    products = {node.results[0]: pair for node in nodes if (pair := _over_rows(made, node.results[0])) is not None}
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
    """Those with one `g` together."""
    grouped: dict[Value, _Wholes] = {}
    for whole, (g, parts) in found.items():
        grouped.setdefault(g, {})[whole] = parts
    return grouped


def _products_of_sums(total: Node, nodes: Sequence[Node], gives: set[Value]) -> tuple[Value, _Wholes] | None:
    """Products with what is summed up: as the `g` of some, or else as the `a` of one."""
    found = _products_over_rows(nodes, gives)
    source: Value = total.values[0]
    with_it = _by_right_side(found).get(source)
    if with_it:
        return source, with_it
    producer = Graph(list(nodes)).producers().get(source)
    pieces = producer.args[0] if producer is not None and _is_join(producer) else [source]
    widths = {whole: g.row_size for whole, (g, parts) in found.items() if list(parts.values()) in (pieces, [source])}
    # A panel that is not full has room for the sum; where all are, one more must be a small part of many.
    with_room = [whole for whole in widths if widths[whole] % _PANEL]
    best = min(with_room, key=widths.__getitem__) if with_room else max(widths, key=widths.__getitem__, default=None)
    if best is None or (not with_room and widths[best] < 4 * _PANEL):
        return None
    g, parts = found[best]
    return g, {best: parts}


def _as_one_operation(
    g: Value, pieces: Sequence[Value], lefts: list[Value], heights: dict[Value, int], sums: Value, *, sum_parts: bool
) -> list[Node]:
    """All of them below each other, of which each is a part if there are several; `g` may be the join of pieces."""
    arguments = (list(pieces), lefts, sum_parts)
    if len(heights) == 1:
        return [Node(OVER_ROWS, arguments, {}, (*heights, sums))]
    below = Value(f"{g.name}_over_rows", (sum(heights.values()), g.row_size), g.dtype)
    nodes, start = [Node(OVER_ROWS, arguments, {}, (below, sums))], 0
    for whole, height in heights.items():
        nodes.append(Node(aten.slice.Tensor, (below, 0, start, start + height), {}, (whole,)))
        start += height
    return nodes


def _is_join(node: Node) -> bool:
    """Whether rows are put side by side."""
    return node.name == "cat" and node.arg("dim") == 1


def _gather_times(nodes: Sequence[Node], gives: set[Value]) -> list[Node]:
    """Products of all rows with matrices, and sums of such products that nobody needs by themselves, as one operation.

    Nodes are in the order of their values: what is gathered for a sum is there when the sum of that sum comes.
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
    """The rows and matrices that a node is the sum of products of, if it is nothing else."""
    if node.name == "mm":
        rows, matrix = node.args
        plain = {rows.dtype, matrix.dtype} in _PLAIN
        by_rows = rows.row_axis == 0 and not matrix.has_rows
        return [(rows, matrix)] if plain and by_rows else None
    if node.target is not aten.add.Tensor or node.arg("alpha") != 1:
        return None
    parts = node.args[:2]
    alone = all(isinstance(part, Value) and part in terms and len(users[part]) == 1 for part in parts)
    if not alone or not gives.isdisjoint(parts) or {part.dtype for part in parts} != {node.result.dtype}:
        return None
    return [pair for part in parts for pair in terms[part]]


def _over_rows(made: dict[Value, Node], product: Value) -> tuple[Value, Value] | None:
    """`a` and `g`, both [n, ...], of a product `aᵀ @ g`, which sums over rows."""
    node = made.get(product)
    if node is None or node.name != "mm":
        return None
    left, right = node.args
    turned = made.get(left)
    if turned is None or turned.target is not aten.t.default or right.row_axis != 0:
        return None
    source: Value = turned.args[0]
    return (source, right) if source.row_axis == 0 else None


_ON_CPU = (_join_gradients, _split_sums, _fuse_bias)
_ON_GPU = (_join_gradients, _split_sums, _fuse_bias, add_products, _flatten_sums)
