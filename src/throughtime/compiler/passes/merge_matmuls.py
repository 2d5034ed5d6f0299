"""Horizontal merging of matmuls, and split-K: few and large matmuls in a step on a GPU.

The compiler splits matmuls so that state-independent parts can leave the loop; the rest is merged again here.
`a @ A + b @ B` is `[a b] @ [A; B]`, and `a @ A`, `a @ B` are slices of `a @ [A B]`. The kernel that computes the rows
concatenates them; matrices are concatenated once a call, when they are copied to static buffers.

A matmul with many features and few columns, as in backward steps, leaves most multiprocessors idle: it is split along
its features (split-K), and the kernel that reads the result adds the parts.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate
from typing import NamedTuple

import torch

from throughtime._setting import Setting
from throughtime.compiler.ir.graph import ROWS, Graph, Node, Value
from throughtime.compiler.ir.sections import Loop
from throughtime.compiler.ir.verify import verify_graph

aten = torch.ops.aten


PARTS = 4
"""Parts of split-K: 8192 features, 2048 columns take 31 µs in float32, 23 in four parts; 16 and 8 in bfloat16."""
deep_bytes = Setting(1 << 24)
"""Smaller matrices are not split: the sum of the parts may be one kernel more."""


class MergedMatmul(NamedTuple):
    """Matrices concatenated along `dim`."""

    parts: tuple[Value, ...]
    dim: int


class MergedMatmuls(NamedTuple):
    """A loop with merged matmuls; its concatenated matrices (`joined`); the parts of split-K matmuls (`deep`)."""

    loop: Loop
    joined: dict[Value, MergedMatmul]
    deep: dict[Value, list[Value]]


def unmerged(loop: Loop) -> MergedMatmuls:
    """The loop before merging."""
    return MergedMatmuls(loop, {}, {})


def verify_merged(original: Loop, products: MergedMatmuls) -> None:
    """Raise a `VerificationError` unless the results come from what the original loop reads and joined matrices."""
    given = {*original.reads, *original.found, *products.joined}
    verify_graph(Graph(products.loop.nodes), given, _results(original))


def _results(loop: Loop) -> set[Value]:
    return {*loop.stored, *(after for _, after in loop.carried)}


def _matrices(products: MergedMatmuls) -> set[Value]:
    return {*products.joined, *(value for value in products.loop.reads if not value.has_rows)}


def _is_product(node: Node | None, outside: set[Value]) -> bool:
    """Whether a node multiplies rows with a matrix from `outside`."""
    return node is not None and node.name == "mm" and node.args[0].row_axis == 0 and node.args[1] in outside


def _is_sum(node: Node) -> bool:
    if node.target is not aten.add.Tensor or node.arg("alpha") != 1 or len(node.result.shape) != 2:
        return False
    return all(isinstance(arg, Value) and arg.shape == node.result.shape for arg in node.args[:2])


def merge_summed_matmuls(products: MergedMatmuls) -> MergedMatmuls:
    """`a @ A + b @ B` becomes `[a b] @ [A; B]`."""
    loop, joined = products.loop, dict(products.joined)
    wanted = _results(loop)
    nodes = Graph(_join_sums(loop.nodes, wanted, _matrices(products), joined)).needed_for(wanted)
    return products._replace(loop=replace(loop, nodes=nodes), joined=joined)


def merge_parallel_matmuls(products: MergedMatmuls) -> MergedMatmuls:
    """`a @ A` and `a @ B` become slices of `a @ [A B]`."""
    loop, joined = products.loop, dict(products.joined)
    wanted = _results(loop)
    outside = {value for value in loop.reads if not value.has_rows} - set(joined)
    nodes = Graph(_join_beside(loop.nodes, wanted, outside, joined)).needed_for(wanted)
    return products._replace(loop=replace(loop, nodes=nodes), joined=joined)


def split_deep_matmuls(products: MergedMatmuls) -> MergedMatmuls:
    """Split-K: a product with many more features than columns becomes a sum of several."""
    loop, deep = products.loop, dict(products.deep)
    outside = _matrices(products)
    nodes = [part for node in loop.nodes for part in _split_deep(node, outside, deep)]
    return products._replace(loop=replace(loop, nodes=nodes), deep=deep)


def _join_sums(
    nodes: list[Node], wanted: set[Value], outside: set[Value], joined: dict[Value, MergedMatmul]
) -> list[Node]:
    """Sums of matmuls become matmuls of concatenated rows."""
    made, users = Graph(nodes).producers(), Graph(nodes).users()

    def is_inner(value: Value) -> bool:
        """Whether a value is only a term of a sum."""
        used = users.get(value, [])
        return value not in wanted and len(used) == 1 and _is_sum(used[0]) and used[0].args[0] is not used[0].args[1]

    def terms(node: Node) -> list[Value]:
        found: list[Value] = []
        for arg in node.args[:2]:
            inner = made.get(arg)
            found += terms(inner) if inner is not None and _is_sum(inner) and is_inner(arg) else [arg]
        return found

    changed: list[Node] = []
    for node in nodes:
        found = terms(node) if _is_sum(node) and not is_inner(node.result) else []
        products = [made[term] for term in found if _is_product(made.get(term), outside) and is_inner(term)]
        if len(products) < 2 or len({product.result.dtype for product in products}) > 1:
            changed.append(node)
            continue
        others = [term for term in found if term not in {product.result for product in products}]
        lefts, rights = zip(*(product.args for product in products), strict=True)
        name, dtype, shape = node.result.name, node.result.dtype, node.result.shape
        depth = sum(left.shape[1] for left in lefts)
        rows, matrix = Value(f"{name}_rows", (ROWS, depth), dtype), Value(f"{name}_matrix", (depth, shape[1]), dtype)
        joined[matrix] = MergedMatmul(rights, 0)
        total = node.result if not others else Value(f"{name}_product", shape, dtype)
        changed.append(Node(aten.cat.default, (list(lefts), 1), {}, (rows,)))
        changed.append(Node(aten.mm.default, (rows, matrix), {}, (total,)))
        for index, other in enumerate(others):
            result = node.result if index == len(others) - 1 else Value(f"{name}_sum_{index}", shape, dtype)
            changed.append(Node(aten.add.Tensor, (total, other), {}, (result,)))
            total = result
    return changed


def _join_beside(
    nodes: list[Node], wanted: set[Value], outside: set[Value], joined: dict[Value, MergedMatmul]
) -> list[Node]:
    """Matmuls of the same rows become one, and slices of it."""
    by_left: dict[Value, list[Node]] = {}
    for node in nodes:
        if _is_product(node, outside) and node.result not in wanted:
            by_left.setdefault(node.args[0], []).append(node)
    beside = {id(node): found for found in by_left.values() for node in found}
    changed: list[Node] = []
    for node in nodes:
        together = beside.get(id(node), [])
        if len(together) < 2:
            changed.append(node)
        if len(together) < 2 or node is not together[0]:
            continue
        widths = [one.result.row_size for one in together]
        name, dtype, depth = node.result.name, node.result.dtype, node.args[0].shape[1]
        matrix = Value(f"{name}_matrix", (depth, sum(widths)), dtype)
        whole = Value(f"{name}_whole", (ROWS, sum(widths)), dtype)
        joined[matrix] = MergedMatmul(tuple(one.args[1] for one in together), 1)
        changed.append(Node(aten.mm.default, (node.args[0], matrix), {}, (whole,)))
        for one, stop, width in zip(together, accumulate(widths), widths, strict=True):
            changed.append(Node(aten.slice.Tensor, (whole, 1, stop - width, stop), {}, one.results))
    return changed


def _split_deep(node: Node, outside: set[Value], deep: dict[Value, list[Value]]) -> list[Node]:
    """A deep matmul as a sum of several."""
    if not _is_product(node, outside):
        return [node]
    left, matrix = node.args
    depth, width = matrix.shape
    if depth < 2 * width or depth % PARTS or depth * width * matrix.dtype.itemsize < deep_bytes.value:
        return [node]
    name, dtype, each = node.result.name, node.result.dtype, depth // PARTS
    # Parts in half precision are summed in float32.
    precise = torch.float32 if dtype.itemsize == 2 else dtype
    cut = Value(f"{name}_cut", (ROWS, PARTS, each), dtype)
    apart = Value(f"{name}_apart", (PARTS, ROWS, each), dtype)
    pieces = Value(f"{name}_pieces", (PARTS, each, width), dtype)
    products = Value(f"{name}_products", (PARTS, ROWS, width), precise)
    multiply = aten.bmm.default if precise == dtype else aten.bmm.dtype
    options = () if precise == dtype else (precise,)
    nodes = [
        Node(aten.view.default, (left, [ROWS, PARTS, each]), {}, (cut,)),
        Node(aten.transpose.int, (cut, 0, 1), {}, (apart,)),
        Node(aten.view.default, (matrix, [PARTS, each, width]), {}, (pieces,)),
        Node(multiply, (apart, pieces, *options), {}, (products,)),
    ]
    parts = [Value(f"{name}_part_{index}", (ROWS, width), precise) for index in range(PARTS)]
    nodes += [Node(aten.select.int, (products, 0, index), {}, (part,)) for index, part in enumerate(parts)]
    deep[node.result] = parts
    return [*nodes, *sum_of(parts, node.result)]


def sum_of(parts: list[Value], result: Value) -> list[Node]:
    """Nodes that add parts, which may have a higher precision than their sum."""
    nodes: list[Node] = []
    total, precise = parts[0], parts[0].dtype
    for index, part in enumerate(parts[1:], 1):
        is_last = index == len(parts) - 1 and precise == result.dtype
        found = result if is_last else Value(f"{result.name}_sum_{index}", result.shape, precise)
        nodes.append(Node(aten.add.Tensor, (total, part), {}, (found,)))
        total = found
    if precise != result.dtype:
        nodes.append(Node(aten._to_copy.default, (total,), {"dtype": result.dtype}, (result,)))
    return nodes
