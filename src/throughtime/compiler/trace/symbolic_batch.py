"""The symbolic batch size: two traces of a step for different batch sizes, merged into one for any size."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from throughtime.compiler.errors import Uncompilable
from throughtime.compiler.ir.graph import ROWS, Dim, Folded, Graph, Node, Rows, Value
from throughtime.compiler.trace.call_log import COMPARED, DEPENDS
from throughtime.compiler.trace.trace import Source, Trace

_COMPUTES = "it computes with the number of rows in the batch"


def merge(one: Trace, other: Trace) -> Trace:
    """The trace for any number of rows; raises `Uncompilable` if the two differ in anything else."""
    return _SymbolicBatch(one, other).trace


class _SymbolicBatch:
    def __init__(self, one: Trace, other: Trace) -> None:
        self._made: dict[Value, Value] = {}
        self._rows = one.rows, other.rows
        self._objection: str | None = None
        if [node.target for node in one.graph.nodes] != [node.target for node in other.graph.nodes]:
            raise Uncompilable(DEPENDS)
        if len(one.literals) != len(other.literals):
            raise Uncompilable(DEPENDS)
        self._twins: dict[Value, Value] = {}
        for lists in zip(one.begun_with, other.begun_with, strict=True):
            self._pair(*lists)
        if not all(map(_is_same_literal, one.literals.values(), other.literals.values())):
            raise Uncompilable(_COMPUTES)
        self._pair(list(one.literals), list(other.literals))
        nodes = [self._node(a, b) for a, b in zip(one.graph.nodes, other.graph.nodes, strict=True)]
        for ones, others in zip((*one.ended_with, one.once), (*other.ended_with, other.once), strict=True):
            for a, b in zip(ones, others, strict=True):
                if (a is None) != (b is None) or (a is not None and self._twins[a] is not b):
                    raise Uncompilable(DEPENDS)
        self.trace = one.on_others(Graph(nodes), self._made.__getitem__)
        self.trace.is_plain = one.is_plain and other.is_plain
        self.trace.objection = self._objection

    def _pair(self, ones: Sequence[Value | None], others: Sequence[Value | None]) -> None:
        for one, other in zip(ones, others, strict=True):
            if (one is None) != (other is None):
                raise Uncompilable(DEPENDS)
            if one is not None and other is not None:
                self._value(one, other)

    def _value(self, one: Value, other: Value) -> Value:
        if one not in self._made:
            if len(one.shape) != len(other.shape) or one.dtype != other.dtype:
                raise Uncompilable(DEPENDS)
            shape = tuple(self._size(a, b) for a, b in zip(one.shape, other.shape, strict=True))
            if sum(not isinstance(size, int) for size in shape) > 1:
                raise Uncompilable(f"the rows of a batch meet each other ({one.name} has shape {list(shape)})")
            self._made[one] = Value(one.name, shape, one.dtype)
            self._twins[one] = other
        elif self._twins[one] is not other:
            raise Uncompilable(DEPENDS)
        return self._made[one]

    def _size(self, one: Any, other: Any) -> Dim:
        if one == other:
            return int(one)
        few, many = self._rows
        if (one, other) == (few, many):
            return ROWS
        if one > few and one * many == other * few:
            return Folded(one // few)
        sizes = f"{one} for {few} rows and {other} for {many}"
        if other > one:
            raise Uncompilable(f"it folds the rows of a batch into another dimension (a size of {sizes})")
        raise Uncompilable(f"{DEPENDS}, or on how often it has run (a number of {sizes})")

    def _argument(self, one: Any, other: Any) -> Any:
        if isinstance(one, Value):
            if not isinstance(other, Value) or one not in self._made or self._twins[one] is not other:
                raise Uncompilable(DEPENDS)
            return self._made[one]
        if isinstance(one, tuple | list):
            if type(one) is not type(other) or len(one) != len(other):
                raise Uncompilable(DEPENDS)
            return type(one)(self._argument(a, b) for a, b in zip(one, other, strict=True))
        if isinstance(one, dict):
            if one.keys() != other.keys():
                raise Uncompilable(DEPENDS)
            return {key: self._argument(part, other[key]) for key, part in one.items()}
        if type(one) is int and type(other) is int and one != other:
            return self._size(one, other)
        # Other objects only occur in operations without a rule, which are refused.
        plain = isinstance(one, (*COMPARED, int, Source))
        if type(one) is not type(other) or (plain and one != other and not (_is_nan(one) and _is_nan(other))):
            raise Uncompilable(f"{_COMPUTES} ({one} here, {other} there)")
        return one

    def _node(self, one: Node, other: Node) -> Node:
        args, kwargs = (self._argument(*pair) for pair in ((one.args, other.args), (one.kwargs, other.kwargs)))
        names = [argument.name for argument in one.target._schema.arguments]
        named = (*zip(names, args, strict=False), *kwargs.items())
        if any(name not in _SIZES and _has_rows(value) for name, value in named):
            self._objection = _COMPUTES
        results = tuple(self._value(*pair) for pair in zip(one.results, other.results, strict=True))
        return Node(one.target, args, kwargs, results)


# Arguments that may be the number of rows: sizes, and the end of a slice, which is checked later.
_SIZES = frozenset({"size", "sizes", "shape", "repeats", "input_sizes", "end"})


def _has_rows(argument: object) -> bool:
    """Whether an argument contains the number of rows."""
    return isinstance(argument, Rows | Folded) or (isinstance(argument, tuple | list) and any(map(_has_rows, argument)))


def _is_same_literal(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors have equal values; NaN equals NaN."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    return torch.allclose(one, other, rtol=0, atol=0, equal_nan=True)


def _is_nan(value: object) -> bool:
    return isinstance(value, float) and math.isnan(value)
