"""Two traces of the same step for different numbers of rows, made into one for any number."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from throughtime.compiler._errors import Uncompilable
from throughtime.compiler._graph import ROWS, Dim, Graph, Node, Value
from throughtime.compiler._traced import BATCHES, Trace

_DEPENDS = "what it does depends on the number of rows in the batch"
_GIVEN = ("tensors", "inputs", "state", "output_tangents", "state_tangents")
_COMPUTED = ("outputs", "new_state", "once", "tensor_gradients", "input_gradients", "state_gradients")


def merge(one: Trace, other: Trace, single: Trace) -> Trace:
    """The trace for any number of rows; raises `Uncompilable` if the three differ in more than that.

    A single row is only compared: where there is one of everything, nothing tells which ones are rows.
    """
    merged = _Merge(one, other).trace
    _check_single(merged, single)
    return merged


def _check_single(merged: Trace, single: Trace) -> None:
    """For one row, the step must do what it does for many."""
    forward = merged.graph.nodes[: merged.backward_start]
    if [node.target for node in forward] != [node.target for node in single.graph.nodes]:
        raise Uncompilable(_DEPENDS)
    for node, alone in zip(forward, single.graph.nodes, strict=True):
        shapes = zip(node.results, alone.results, strict=True)
        if any(tuple(1 if size is ROWS else size for size in many.shape) != one.shape for many, one in shapes):
            raise Uncompilable(_DEPENDS)


class _Merge:
    def __init__(self, one: Trace, other: Trace) -> None:
        self._made: dict[Value, Value] = {}
        self._objection: str | None = None
        if [node.target for node in one.graph.nodes] != [node.target for node in other.graph.nodes]:
            raise Uncompilable(_DEPENDS)
        self._twins: dict[Value, Value] = {}
        for field in _GIVEN:
            self._pair(getattr(one, field), getattr(other, field))
        self._pair(list(one.literals), list(other.literals))
        nodes = [self._node(a, b) for a, b in zip(one.graph.nodes, other.graph.nodes, strict=True)]
        for field in _COMPUTED:
            for a, b in zip(getattr(one, field), getattr(other, field), strict=True):
                if (a is None) != (b is None) or (a is not None and self._twins[a] is not b):
                    raise Uncompilable(_DEPENDS)
        merged: dict[str, Any] = {
            field: [None if value is None else self._made[value] for value in getattr(one, field)]
            for field in (*_GIVEN, *_COMPUTED)
        }
        literals = {self._made[value]: literal for value, literal in one.literals.items()}
        self.trace = Trace(
            graph=Graph(nodes), backward_start=one.backward_start, device=one.device, literals=literals, **merged
        )
        self.trace.objection = self._objection

    def _pair(self, ones: Sequence[Value | None], others: Sequence[Value | None]) -> None:
        for one, other in zip(ones, others, strict=True):
            if one is not None and other is not None:
                self._value(one, other)

    def _value(self, one: Value, other: Value) -> Value:
        if one not in self._made:
            if len(one.shape) != len(other.shape):
                raise Uncompilable(_DEPENDS)
            shape = tuple(self._size(a, b) for a, b in zip(one.shape, other.shape, strict=True))
            if shape.count(ROWS) > 1:
                raise Uncompilable(f"the rows of a batch meet each other ({one.name} has shape {list(shape)})")
            self._made[one] = Value(one.name, shape, one.dtype)
            self._twins[one] = other
        elif self._twins[one] is not other:
            raise Uncompilable(_DEPENDS)
        return self._made[one]

    def _size(self, one: Any, other: Any) -> Dim:
        if one == other:
            return int(one)
        if (one, other) == BATCHES:
            return ROWS
        raise Uncompilable(
            f"it folds the rows of a batch into another dimension (a size of {one} for {BATCHES[0]} rows "
            f"and of {other} for {BATCHES[1]})"
        )

    def _argument(self, one: Any, other: Any) -> Any:
        if isinstance(one, Value):
            if not isinstance(other, Value) or one not in self._made or self._twins[one] is not other:
                raise Uncompilable(_DEPENDS)
            return self._made[one]
        if isinstance(one, tuple | list):
            if len(one) != len(other):
                raise Uncompilable(_DEPENDS)
            return type(one)(self._argument(a, b) for a, b in zip(one, other, strict=True))
        if isinstance(one, dict):
            return {key: self._argument(part, other[key]) for key, part in one.items()}
        if type(one) is int and type(other) is int and one != other:
            return self._size(one, other)
        if one != other and not (_is_nan(one) and _is_nan(other)):
            raise Uncompilable(f"it computes with the number of rows in the batch ({one} here, {other} there)")
        return one

    def _node(self, one: Node, other: Node) -> Node:
        args, kwargs = (self._argument(*pair) for pair in ((one.args, other.args), (one.kwargs, other.kwargs)))
        for argument, value in zip(one.target._schema.arguments, args, strict=False):
            if value is ROWS and "int" not in str(argument.type).lower():
                self._objection = "it computes with the number of rows in the batch"
        results = tuple(self._value(*pair) for pair in zip(one.results, other.results, strict=True))
        return Node(one.target, args, kwargs, results)


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)
