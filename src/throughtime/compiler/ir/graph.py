"""The step graph: ATen operations over a symbolic batch size. Plain data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch
from torch import Tensor

from throughtime._torch_internals import OpOverload
from throughtime.compiler.ir.ops import Operation, name_of, operation_of

Argument: TypeAlias = Any
"""An argument of a node: a value, a number, `ROWS`, a dtype, None, or nested tuples, lists and dicts of these."""


class Rows:
    """The symbolic number of rows."""

    def __repr__(self) -> str:
        return "n"

    def __deepcopy__(self, _: object) -> Rows:
        return self


ROWS = Rows()


@dataclass(frozen=True)
class Folded:
    """The number of rows times a constant: a cell has folded rows and other dimensions into one.

    Only a trace has it; `unfold_rows` gives the rows their own axis again.
    """

    times: int

    def __repr__(self) -> str:
        return f"{self.times} * n"


Dim = int | Rows | Folded


@dataclass(eq=False)
class Value:
    """A tensor in a graph. `shape` has at most one `ROWS`: the batch axis."""

    name: str
    shape: tuple[Dim, ...]
    dtype: torch.dtype

    def __repr__(self) -> str:
        return self.name

    @property
    def described(self) -> str:
        """The name with dtype and shape, as programs are printed."""
        return f"{self.name}: {str(self.dtype).removeprefix('torch.')}{list(self.shape)}"

    @property
    def row_axis(self) -> int | None:
        """The batch axis; None if there is none."""
        return next((axis for axis, size in enumerate(self.shape) if size is ROWS), None)

    @property
    def has_rows(self) -> bool:
        """Whether it has a batch axis."""
        return self.row_axis is not None

    @property
    def row_size(self) -> int:
        """The number of elements of one row, or of the whole if it has no rows."""
        size = 1
        for dim in self.shape:
            size *= dim if isinstance(dim, int) else 1
        return size

    @property
    def row_shape(self) -> tuple[int, ...]:
        """The shape of one row, or of the whole if it has no rows."""
        return tuple(size for size in self.shape if isinstance(size, int))

    @property
    def row_bytes(self) -> int:
        """The bytes of one row, or of the whole if it has no rows."""
        return self.row_size * self.dtype.itemsize

    def sized(self, rows: int) -> tuple[int, ...]:
        """The shape for `rows` rows."""
        return tuple(size if isinstance(size, int) else rows for size in self.shape)

    def rows_first(self, tensor: Tensor) -> Tensor:
        """A tensor of this value as a stream: a view with its rows along the first axis."""
        return tensor.movedim(self.row_axis or 0, 0)

    def rows_placed(self, stream: Tensor) -> Tensor:
        """The reverse: a stream with its rows along the batch axis of the value."""
        axis = self.row_axis
        return stream.movedim(0, axis) if axis else stream


@dataclass(eq=False)
class Node:
    """`results = target(*args, **kwargs)`; arguments contain values, and `ROWS` for the number of rows."""

    target: OpOverload
    args: tuple[Argument, ...]
    kwargs: dict[str, Argument]
    results: tuple[Value, ...]

    @property
    def values(self) -> list[Value]:
        """The values among the arguments, in order."""
        return values_in((self.args, self.kwargs))

    @property
    def result(self) -> Value:
        """The only result."""
        (value,) = self.results
        return value

    @property
    def name(self) -> str:
        """The name of the operation in the operation table: `mm`, without its overload."""
        return name_of(self.target)

    @property
    def title(self) -> str:
        """The name of the operation for messages: `aten.mm`, or that of a user's library."""
        return f"{self.target.namespace}.{self.target.overloadpacket.__name__}"

    @property
    def operation(self) -> Operation:
        """The line of the operation table."""
        return operation_of(self.target)

    @property
    def is_random(self) -> bool:
        """Whether it draws random numbers: such a node is never merged with another."""
        return torch.Tag.nondeterministic_seeded in self.target.tags

    @property
    def is_pointwise(self) -> bool:
        """Whether every element of the result comes from the elements at its own place."""
        return self.operation.is_pointwise

    def has_arg(self, name: str) -> bool:
        """Whether the operation's schema has an argument of this name."""
        return any(argument.name == name for argument in self.target._schema.arguments)

    def arg(self, name: str) -> Argument:
        """An argument by the name it has in the operation's schema, its default if it was left out."""
        for position, argument in enumerate(self.target._schema.arguments):
            if argument.name == name:
                if position < len(self.args):
                    return self.args[position]
                return self.kwargs.get(name, argument.default_value if argument.has_default_value() else None)
        raise KeyError(f"{self.target} has no argument {name}")

    def substituted(self, replace: Callable[[Value], Value]) -> Node:
        """The same operation on other values."""
        swap = {value: replace(value) for value in self.values}
        if all(one is other for one, other in swap.items()):
            return self
        args, kwargs = map_values(swap.__getitem__, (self.args, self.kwargs))
        return Node(self.target, args, kwargs, self.results)

    def __str__(self) -> str:
        shown = [str(arg) for arg in self.args] + [f"{key}={value}" for key, value in self.kwargs.items()]
        return f"{', '.join(value.described for value in self.results)} = {self.name}({', '.join(shown)})"


@dataclass
class Graph:
    """Nodes in topological order, and the values of them that are used outside of the graph."""

    nodes: list[Node] = field(default_factory=list)
    results: frozenset[Value] = frozenset()

    def producers(self) -> dict[Value, Node]:
        """The node that computes each value."""
        return {value: node for node in self.nodes for value in node.results}

    def users(self) -> dict[Value, list[Node]]:
        """The nodes that use each value."""
        found: dict[Value, list[Node]] = {}
        for node in self.nodes:
            for value in set(node.values):
                found.setdefault(value, []).append(node)
        return found

    def needed_for(self, values: Iterable[Value]) -> list[Node]:
        """The nodes that `values` depend on, in order."""
        wanted = set(values)
        kept = []
        for node in reversed(self.nodes):
            if wanted.intersection(node.results):
                kept.append(node)
                wanted.update(node.values)
        return kept[::-1]

    def numbers(self) -> set[int]:
        """Every size of a value that a node computes, and every integer among the arguments."""
        shapes = (value.shape for node in self.nodes for value in node.results)
        return set(_numbers_in([*shapes, *((node.args, node.kwargs) for node in self.nodes)]))

    def __str__(self) -> str:
        return "\n".join(map(str, self.nodes))


def _numbers_in(tree: Argument) -> Iterator[int]:
    if isinstance(tree, int):
        yield tree
    elif isinstance(tree, tuple | list):
        for part in tree:
            yield from _numbers_in(part)
    elif isinstance(tree, dict):
        yield from _numbers_in(tuple(tree.values()))


def values_in(tree: Argument) -> list[Value]:
    """The values in nested tuples, lists and dicts, in order."""
    found: list[Value] = []
    _collect(tree, found)
    return found


def _collect(tree: Argument, found: list[Value]) -> None:
    if isinstance(tree, Value):
        found.append(tree)
    elif isinstance(tree, tuple | list):
        for part in tree:
            _collect(part, found)
    elif isinstance(tree, dict):
        for part in tree.values():
            _collect(part, found)


def map_values(change: Callable[[Value], Argument], tree: Argument) -> Argument:
    """The same nested tuples, lists and dicts with every value replaced."""
    if isinstance(tree, Value):
        return change(tree)
    if isinstance(tree, tuple | list):
        return type(tree)(map_values(change, part) for part in tree)
    if isinstance(tree, dict):
        return {key: map_values(change, part) for key, part in tree.items()}
    return tree


def taken_by(nodes: Iterable[Node], gives: Iterable[Value] = ()) -> list[Value]:
    """The values that nodes read, or pass on in `gives`, and do not compute, in order."""
    made: set[Value] = set()
    used: list[Value] = []
    for node in nodes:
        made.update(node.results)
        used += node.values
    return list(dict.fromkeys(value for value in (*used, *gives) if value not in made))


def depends_on(nodes: Sequence[Node], roots: Iterable[Value]) -> set[Value]:
    """The roots and all values that depend on any of them."""
    reached = set(roots)
    for node in nodes:
        if not reached.isdisjoint(node.values):
            reached.update(node.results)
    return reached
