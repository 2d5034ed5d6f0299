"""The grammar of step graphs, checked after every pass."""

from __future__ import annotations

from collections.abc import Iterable

from throughtime.compiler._errors import GrammarError
from throughtime.compiler._graph import ROWS, Graph, Value


def check_graph(graph: Graph, given: Iterable[Value], results: Iterable[Value]) -> None:
    """Raise a `GrammarError` unless every value is defined before it is used, once, with at most one axis of rows."""
    known = set(given)
    for value in known:
        _check_value(value)
    for node in graph.nodes:
        for value in node.values:
            if value not in known:
                raise GrammarError(f"`{node}` uses {value} before it is defined")
        for value in node.results:
            if value in known:
                raise GrammarError(f"`{node}` defines {value} again")
            _check_value(value)
            known.add(value)
        if node.target._schema.is_mutable:
            raise GrammarError(f"`{node}` changes its arguments")
    for value in results:
        if value not in known:
            raise GrammarError(f"the result {value} is never computed")


def _check_value(value: Value) -> None:
    if value.shape.count(ROWS) > 1:
        raise GrammarError(f"{value.described} has rows along two axes")
