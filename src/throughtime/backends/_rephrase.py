"""Products in the form in which torch computes them fastest; the values are the same up to rounding."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

from throughtime.compiler import ROWS, Graph, Node, Value

aten = torch.ops.aten


def rephrase(nodes: Sequence[Node], gives: Iterable[Value]) -> list[Node]:
    """The same values from fewer and faster operations."""
    wanted = set(gives)
    for change in (_join_gradients, _turn_gradients, _fuse_bias):
        nodes = Graph(change(nodes, wanted)).needed_for(wanted)
    return list(nodes)


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
    for node in nodes:
        parts = node.args[0] if node.name == "cat" and node.arg("dim") == 0 else []
        products = [_over_rows(made, part) for part in parts]
        found = [pair for pair in products if pair is not None]
        shared = {right for _, right in found}
        alone = all(part not in gives and len(users[part]) == 1 for part in parts)
        if len(parts) < 2 or len(found) != len(parts) or len(shared) != 1 or not alone:
            changed.append(node)
            continue
        lefts, (right,) = [left for left, _ in found], shared
        width = sum(left.row_size for left in lefts)
        joined = Value(f"{node.result.name}_joined", (ROWS, width), right.dtype)
        turned = Value(f"{node.result.name}_turned", (width, ROWS), right.dtype)
        changed += [
            Node(aten.cat.default, (lefts, 1), {}, (joined,)),
            Node(aten.t.default, (joined,), {}, (turned,)),
            Node(aten.mm.default, (turned, right), {}, node.results),
        ]
    return changed


def _turn_gradients(nodes: Sequence[Node], _gives: set[Value]) -> list[Node]:
    """`xᵀ @ g` is slow where `g` is the wider of the two; `(gᵀ @ x)ᵀ` is not."""
    made = Graph(list(nodes)).producers()
    changed: list[Node] = []
    for node in nodes:
        pair = _over_rows(made, node.results[0]) if node.name == "mm" else None
        if pair is None or pair[1].row_size <= pair[0].row_size:
            changed.append(node)
            continue
        left, right = pair
        name, dtype = node.result.name, node.result.dtype
        wide = Value(f"{name}_wide", (right.row_size, ROWS), dtype)
        product = Value(f"{name}_product", (right.row_size, left.row_size), dtype)
        back = Value(f"{name}_back", (left.row_size, right.row_size), dtype)
        changed += [
            Node(aten.t.default, (right,), {}, (wide,)),
            Node(aten.mm.default, (wide, left), {}, (product,)),
            Node(aten.t.default, (product,), {}, (back,)),
            # As a parameter lies in memory: torch would copy its gradient otherwise.
            Node(aten.clone.default, (back,), {"memory_format": torch.contiguous_format}, node.results),
        ]
    return changed


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
