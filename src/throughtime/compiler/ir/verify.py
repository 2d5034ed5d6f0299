"""The grammar of step graphs, checked after every pass."""

from __future__ import annotations

from collections.abc import Iterable

from throughtime.compiler.errors import VerificationError
from throughtime.compiler.ir.graph import ROWS, Graph, Value


def verify_graph(graph: Graph, given: Iterable[Value], results: Iterable[Value]) -> None:
    """Raise a `GrammarError` unless every value is defined before it is used, once, with at most one axis of rows."""
    known = set(given)
    for value in known:
        _check_value(value)
    for node in graph.nodes:
        for value in node.values:
            if value not in known:
                raise VerificationError(f"`{node}` uses {value} before it is defined")
        for value in node.results:
            if value in known:
                raise VerificationError(f"`{node}` defines {value} again")
            _check_value(value)
            known.add(value)
        if node.target._schema.is_mutable:
            raise VerificationError(f"`{node}` changes its arguments")
    for value in results:
        if value not in known:
            raise VerificationError(f"the result {value} is never computed")


def _check_value(value: Value) -> None:
    if value.shape.count(ROWS) > 1:
        raise VerificationError(f"{value.described} has rows along two axes")
