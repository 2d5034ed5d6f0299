"""Unfolded values: replacements of values with folded rows, with a batch axis of their own."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from throughtime.compiler.errors import Uncompilable
from throughtime.compiler.ir.graph import ROWS, Argument, Dim, Folded, Node, Value, map_values
from throughtime.compiler.passes.rewriter import Rewriter

aten = torch.ops.aten

Order = tuple[int, int]
"""The sizes of a folded dimension beside the rows: outside of them, and inside."""


@dataclass(frozen=True)
class Unfolded:
    """The replacement of a value with a folded dimension: rows and the other sizes have their own axes."""

    value: Value
    axis: int
    """The index of the folded dimension."""
    order: Order

    @property
    def extra(self) -> int:
        """The number of additional axes."""
        return sum(size > 1 for size in self.order)

    @property
    def row_axis(self) -> int:
        """The batch axis."""
        return self.axis + (self.order[0] > 1)

    def dims(self, dim: int) -> list[int]:
        """The axis for a dimension of the folded value."""
        if dim == self.axis:
            return list(range(dim, dim + self.extra + 1))
        return [dim + self.extra * (dim > self.axis)]


def folded_axis(value: Value) -> int | None:
    """The folded dimension of a value; None if there is none."""
    return next((axis for axis, size in enumerate(value.shape) if isinstance(size, Folded)), None)


class Unfolding:
    """The nodes so far, on unfolded values. With `by_slots`, matmuls go slot by slot."""

    def __init__(self, *, by_slots: bool) -> None:
        self.rewriter, self.by_slots = Rewriter(), by_slots
        self._found: dict[Value, Unfolded] = {}
        # Values whose rows are all equal can be made in any order.
        self._alike: dict[Value, Callable[[Order], Unfolded]] = {}

    def order(self, values: Sequence[Value], node: Node) -> Order:
        """The order in which rows are folded, which must be the same in all folded values."""
        folded = [value for value in values if folded_axis(value) is not None]
        orders = {self._found[value].order for value in folded if value in self._found}
        if len(orders) > 1:
            refuse(node, "joins rows that are folded in different orders")
        return orders.pop() if orders else (1, times_of(folded[0]))

    def get(self, value: Value, order: Order | None = None) -> Unfolded:
        """The replacement of a folded value; `order` is used if all its rows are equal."""
        if value not in self._found:
            self._found[value] = self._alike[value](order or (1, times_of(value)))
        return self._found[value]

    def plain(self, value: Value) -> Value:
        """The replacement of a value, folded or not."""
        return self.rewriter.resolve(value) if folded_axis(value) is None else self.get(value).value

    def set(self, old: Value, new: Value, order: Order) -> None:
        """Replace `old` by `new` from here on."""
        axis = folded_axis(old)
        if axis is None:
            self.rewriter.replace(old, new)
        else:
            self._found[old] = Unfolded(new, axis, order)

    def set_alike(self, old: Value, make: Callable[[Order], Value]) -> None:
        """The same for a value whose rows are all equal: it is made when its order is known."""
        axis = folded_axis(old)
        assert axis is not None
        self._alike[old] = lambda order: Unfolded(make(order), axis, order)

    def again(self, node: Node, order: Order, values: dict[Value, Value], **changed: Argument) -> None:
        """The same operation on other values, with some arguments changed, by their names in the schema."""
        names = [argument.name for argument in node.target._schema.arguments]
        args, kwargs = map_values(lambda value: values.get(value) or self.plain(value), (node.args, node.kwargs))
        given = dict(zip(names, args, strict=False)) | kwargs | changed
        results = tuple(Value(value.name, unfolded_shape(value, order), value.dtype) for value in node.results)
        positional = tuple(given.pop(name) for name in names[: len(args)])
        self.rewriter.nodes.append(Node(node.target, positional, given, results))
        for old, new in zip(node.results, results, strict=True):
            self.set(old, new, order)

    def reshaped(self, value: Value, shape: Sequence[Dim]) -> Value:
        """The same elements in another shape."""
        if tuple(shape) == value.shape:
            return value
        return self.rewriter.call(aten.reshape.default, value, list(shape), shape=shape, like=value)

    def permuted(self, value: Value, order: Sequence[int]) -> Value:
        """The same elements along axes in another order."""
        if list(order) == sorted(order):
            return value
        shape = [value.shape[axis] for axis in order]
        return self.rewriter.call(aten.permute.default, value, list(order), shape=shape, like=value)


def unfolded_shape(value: Value, order: Order) -> tuple[Dim, ...]:
    """The shape of a value once its rows have an axis of their own."""
    axis = folded_axis(value)
    if axis is None:
        return value.shape
    before, after = order
    sizes = [size for size in (before, ROWS, after) if size != 1]
    return (*value.shape[:axis], *sizes, *value.shape[axis + 1 :])


def times_of(value: Value) -> int:
    """The number of entries of each row in the folded dimension."""
    size = value.shape[folded_axis(value) or 0]
    assert isinstance(size, Folded)
    return size.times


def size_ahead(shape: Sequence[Dim]) -> int:
    """The number of elements before each row, in memory order."""
    axis = next((axis for axis, size in enumerate(shape) if not isinstance(size, int)), 0)
    return math.prod(size for size in shape[:axis] if isinstance(size, int))


def refuse(node: Node, what: str) -> None:
    """Raise `Uncompilable`."""
    raise Uncompilable(f"it folds the rows of a batch into another dimension, where {node.title} {what}")
