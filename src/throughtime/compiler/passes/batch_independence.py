"""Proof that the rows of a batch are independent, operation by operation, by the rules in `row_rules.py`.

An operation on rows without a rule is refused, so a cell whose rows interact is never compiled. In the backward part
rows may be summed: the gradient of a parameter is a sum over rows, and only linear operations may follow it.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch

from throughtime.compiler.errors import Uncompilable
from throughtime.compiler.ir.graph import Graph, Node, Value
from throughtime.compiler.ir.ops import Linear
from throughtime.compiler.passes.row_rules import ROW_RULES, refuse


def check_batch_independence(graph: Graph, backward_start: int, gradients: Iterable[Value] = ()) -> None:
    """Raise `Uncompilable` unless rows are independent, and the `gradients` of parameters are sums over rows."""
    # Zero is the sum of any number of zeros.
    totals, zeros = set[Value](), set[Value]()
    for position, node in enumerate(graph.nodes):
        if not totals.isdisjoint(node.values):
            _check_linear(node, totals, zeros)
            totals.update(node.results)
        elif any(value.has_rows for value in (*node.values, *node.results)):
            summed = _apply_rule(node)
            if summed and (position < backward_start or (node.name == "index_put" and node.args[0] not in zeros)):
                refuse(node, "adds them up or mixes them")
            totals.update(summed)
        elif _is_zero(node, zeros):
            zeros.update(node.results)
    for gradient in gradients:
        if gradient not in totals and gradient not in zeros:
            raise Uncompilable(f"its gradient of a parameter is not a sum over rows ({gradient.name})")


def _is_zero(node: Node, zeros: set[Value]) -> bool:
    """Whether a value without rows is zero, such as the gradient of a constant function."""
    if node.name in ("full", "scalar_tensor"):
        return bool(node.arg("fill_value" if node.name == "full" else "s") == 0)
    moved = bool(node.values) and zeros.issuperset(node.values) and _is_linear(node, node.values, zeros)
    return node.name == "zeros" or moved


def check_random(graph: Graph, once: list[Value]) -> None:
    """Raise `Uncompilable` for random numbers without rows, unless they are drawn once for a sequence (`once`)."""
    for_sequence = set(map(id, graph.needed_for(once)))
    for node in graph.nodes:
        if node.is_random and id(node) not in for_sequence and not any(value.has_rows for value in node.results):
            raise Uncompilable(f"it draws random numbers at every step that all rows share ({node.title})")


def _apply_rule(node: Node) -> set[Value]:
    """The results that are sums over rows; all others are proven to be independent from row to row."""
    operation = node.operation
    if not operation.makes_rows and not any(value.has_rows for value in node.values):
        refuse(node, "gives them what belongs to their places")
    if operation.rows is None:
        raise Uncompilable(f"it uses {node.title}, which is not known to treat the rows of a batch separately")
    return ROW_RULES[operation.rows](node) or set()


def _check_linear(node: Node, totals: set[Value], zeros: set[Value]) -> None:
    """An operation on a sum over rows must be linear: it is applied once, to the sum over all steps."""
    among = [value for value in node.values if value in totals]
    if any(value.has_rows for value in (*node.values, *node.results)):
        raise Uncompilable(f"{node.title} joins a sum over rows with rows")
    if not _is_linear(node, among, totals | zeros) or not all(_is_continuous(value.dtype) for value in node.results):
        raise Uncompilable(f"its gradient is not a sum over rows ({node.title} of one)")


def _is_linear(node: Node, among: list[Value], summed: set[Value]) -> bool:
    """Whether a node is linear in the `summed` values that it takes, of which it has `among` as arguments."""
    linear = node.operation.linear
    if linear is Linear.ALL:
        # Those that are joined or added, without indices.
        parts = {"cat": node.args[0], "stack": node.args[0], "index_put": node.args[::2], "index_add": node.args[::3]}
        joined = parts.get(node.name, node.args[:2])
        return all(isinstance(part, Value) and part in summed for part in joined)
    if node.name == "where":
        return node.args[0] not in summed and all(part in summed for part in node.args[1:])
    if len(among) != 1:
        return False
    if linear is Linear.FIRST or (node.is_pointwise and node.name.endswith("_backward")):
        rounds = "mode" in node.target._overloadname and node.arg("rounding_mode") is not None
        return node.args[0] is among[0] and not rounds
    return linear is Linear.ONE


def _is_continuous(dtype: torch.dtype) -> bool:
    return dtype.is_floating_point or dtype.is_complex
