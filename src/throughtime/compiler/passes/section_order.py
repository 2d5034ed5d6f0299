"""The order of nodes in a section: late and close to their users, so that little memory is held."""

from __future__ import annotations

from collections.abc import Sequence

from throughtime.compiler.ir.graph import Graph, Node, Value


def order_section(nodes: Sequence[Node], gives: Sequence[Value]) -> list[Node]:
    """The order that holds little memory; random numbers are drawn in the order of the cell."""
    if any(node.is_random for node in nodes):
        return list(nodes)
    return _sum_rows_early(compute_when_needed(nodes, gives))


def compute_when_needed(nodes: Sequence[Node], gives: Sequence[Value]) -> list[Node]:
    """Every value is computed right before its first use (depth first, without recursion: graphs may be deep)."""
    made = Graph(list(nodes)).producers()
    order: dict[int, Node] = {}
    # Values to compute, on top of those that need them.
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


def _sum_rows_early(nodes: Sequence[Node]) -> list[Node]:
    """Sums over rows run as soon as they can, so that the rows are freed."""
    place: dict[Value, int] = {}
    order: list[tuple[int, int, Node]] = []
    for index, node in enumerate(nodes):
        sums = node.name == "t" or not any(value.has_rows for value in node.results)
        at = max((place.get(value, -1) for value in node.values), default=-1) if sums else index
        place.update(dict.fromkeys(node.results, at))
        order.append((at, index, node))
    return [node for _, _, node in sorted(order, key=lambda entry: entry[:2])]
