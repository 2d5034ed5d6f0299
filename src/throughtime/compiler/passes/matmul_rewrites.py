"""Matmuls around the loop in the forms that torch computes fastest. Values are the same up to rounding."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from throughtime.compiler.ir.graph import ROWS, Graph, Node, Value

aten = torch.ops.aten


_WIDE = 128
"""From this width on matmuls are not merged: to concatenate rows takes time and memory."""


def fuse_bias(nodes: Sequence[Node], gives: set[Value]) -> list[Node]:
    """`x @ W + b` becomes `addmm`, which writes the result once instead of twice."""
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


def merge_weight_gradients(nodes: Sequence[Node], gives: set[Value]) -> list[Node]:
    """Gradients of parts of one matrix, `cat([xᵀ @ g, hᵀ @ g])`, become one matmul, `cat([x, h])ᵀ @ g`."""
    graph = Graph(list(nodes))
    made, users = graph.producers(), graph.users()
    changed: list[Node] = []
    joins: dict[tuple[Value, ...], Value] = {}
    for node in nodes:
        if node.name == "cat" and node.arg("dim") == 1:
            joins[tuple(node.args[0])] = node.result
        parts = node.args[0] if node.name == "cat" and node.arg("dim") == 0 else []
        products = [weight_gradient_operands(made, part) for part in parts]
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
        # A sum of the same rows, for a bias, may have concatenated them already.
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


def sum_before_concat(nodes: Sequence[Node], gives: set[Value]) -> list[Node]:
    """The sum over the rows of a concatenation becomes a concatenation of sums, unless others need the former."""
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


def accumulate_matmuls(nodes: Sequence[Node], gives: set[Value]) -> list[Node]:
    """`x @ W + h @ U` with the second matmul accumulated onto the first in place: a third of the memory traffic."""
    graph = Graph(list(nodes))
    made, users = graph.producers(), graph.users()

    def is_used_up(value: object) -> bool:
        return isinstance(value, Value) and value in made and value not in gives and len(users[value]) == 1

    fused: dict[int, Node] = {}
    for node in nodes:
        if node.target is not aten.add.Tensor or node.arg("alpha") != 1 or not all(map(is_used_up, node.args)):
            continue
        total, product = node.args
        # The sum must own its memory: the result of another sum or matmul, not a view.
        fresh = made[total].name in ("add", "mm") and total.shape == product.shape and total.dtype == product.dtype
        if made[product].name == "mm" and fresh:
            fused[id(node)] = Node(aten.addmm_.default, (total, *made[product].args), {}, node.results)
    return [fused.get(id(node), node) for node in nodes]


def flatten_sums(nodes: Sequence[Node], gives: set[Value]) -> list[Node]:
    """A sum over rows of shape [1, n] that is viewed as [n] becomes a sum of shape [n]."""
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


def weight_gradient_operands(made: dict[Value, Node], product: Value) -> tuple[Value, Value] | None:
    """`a` and `g`, both [n, ...], of a matmul `aᵀ @ g`, which sums over rows; None for other nodes."""
    node = made.get(product)
    if node is None or node.name != "mm":
        return None
    left, right = node.args
    turned = made.get(left)
    if turned is None or turned.target is not aten.t.default or right.row_axis != 0:
        return None
    source: Value = turned.args[0]
    return (source, right) if source.row_axis == 0 else None
