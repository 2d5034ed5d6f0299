"""The data of tracing: signatures of steps, traced tensors, traces."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from throughtime._pytree import Nest
from throughtime._torch_internals import tree_leaves, tree_map_only
from throughtime.cells._cell_types import CellLike
from throughtime.compiler.errors import Uncompilable
from throughtime.compiler.ir.graph import Graph, Value
from throughtime.compiler.trace.functionalize import Memory, View

CheckedCall = Callable[[CellLike, Nest, Nest], tuple[Nest, Nest]]
"""A step with its results checked: from a cell, inputs and state to outputs and new state."""
StepCall = Callable[[CellLike, Nest, Nest], tuple[list[Tensor], list[Tensor]]]
"""The same with the leaves of its results: those of the outputs, and those of the new state."""

FEW = 2
"""The smaller number of rows that a step is traced for."""
MANY = (67, 71, 73, 79, 83, 89, 97, 101, 103, 107, 109, 113, 127, 131, 137, 139)
"""The larger number is the first of these that is no size in the cell.

They are far enough from the smaller one to reveal cells that treat small batches differently, and small enough to be
fast.
"""


@dataclass(frozen=True)
class Source:
    """A random number generator of the cell: which module it belongs to, on which device."""

    path: str
    device: torch.device

    def __repr__(self) -> str:
        return f"generator of {self.path or 'the cell'}"


class Seen(NamedTuple):
    """A tensor in a call: the calls and positions at which it occurred before."""

    places: frozenset[tuple[int, int]]
    shape: tuple[int, ...]
    dtype: torch.dtype


class Call(NamedTuple):
    """A call of a torch function: its arguments, and the leaves of its results."""

    function: object
    given: Any
    returned: tuple[object, ...]


@dataclass
class Trace:
    """One step as a graph and, if it is differentiated, its gradients of tensors, inputs and state."""

    graph: Graph
    tensors: list[Value]
    inputs: list[Value]
    state: list[Value]
    outputs: list[Value]
    new_state: list[Value]
    # Random numbers that are drawn once for a sequence: those that modules hold.
    once: list[Value]
    # Cotangents of outputs and new state (None where there is no gradient), and where the backward part begins.
    output_cotangents: list[Value | None]
    state_cotangents: list[Value | None]
    backward_start: int
    # Gradients of tensors, inputs and state; None where there is none.
    tensor_gradients: list[Value | None]
    input_gradients: list[Value | None]
    state_gradients: list[Value | None]
    # Values baked into the graph, such as `torch.tensor(3.0)` inside of a step.
    literals: dict[Value, Tensor]
    device: torch.device
    # The number of rows that it was recorded for.
    rows: int
    calls: list[Call]
    # Whether the nodes suffice to differentiate the gradient: nothing is detached or has a custom gradient.
    is_plain: bool
    # Why it cannot be compiled, unless the rules for rows find a better reason.
    objection: str | None = None

    @property
    def begun_with(self) -> tuple[Sequence[Value | None], ...]:
        """The inputs of a step and of its gradient, list by list."""
        return self.tensors, self.inputs, self.state, self.output_cotangents, self.state_cotangents

    @property
    def ended_with(self) -> tuple[Sequence[Value | None], ...]:
        """The results of a step and of its gradient, list by list."""
        return self.outputs, self.new_state, self.tensor_gradients, self.input_gradients, self.state_gradients

    @property
    def given(self) -> list[Value]:
        """All values that no node computes."""
        return [*self.tensors, *self.inputs, *self.state, *self.literals, *self.cotangents]

    @property
    def cotangents(self) -> list[Value]:
        """The cotangents of outputs and new state."""
        return [value for value in (*self.output_cotangents, *self.state_cotangents) if value is not None]

    @property
    def recurring_cotangents(self) -> list[Value]:
        """The cotangents of the new state, which the backward loop carries."""
        return [value for value in self.state_cotangents if value is not None]

    @property
    def results(self) -> list[Value]:
        """All values that a program needs of the trace."""
        return [value for values in self.ended_with for value in values if value is not None]

    def resolve(self, change: Callable[[Value], Value]) -> None:
        """Replace the results by other values."""
        self.outputs, self.new_state = [*map(change, self.outputs)], [*map(change, self.new_state)]
        self.tensor_gradients = _each(change, self.tensor_gradients)
        self.input_gradients = _each(change, self.input_gradients)
        self.state_gradients = _each(change, self.state_gradients)

    def on_others(self, graph: Graph, change: Callable[[Value], Value]) -> Trace:
        """The same trace with another graph, on other values."""
        found = replace(
            self,
            graph=graph,
            tensors=[*map(change, self.tensors)],
            inputs=[*map(change, self.inputs)],
            state=[*map(change, self.state)],
            once=[*map(change, self.once)],
            output_cotangents=_each(change, self.output_cotangents),
            state_cotangents=_each(change, self.state_cotangents),
            literals={change(value): literal for value, literal in self.literals.items()},
        )
        found.resolve(change)
        return found


def _each(change: Callable[[Value], Value], values: Sequence[Value | None]) -> list[Value | None]:
    return [None if value is None else change(value) for value in values]


@dataclass(frozen=True)
class Leaf:
    """A leaf of the inputs or of the state; a shape of None means that it has no rows."""

    shape: tuple[int, ...] | None
    dtype: torch.dtype
    device: torch.device
    name: str

    def zeros(self, rows: int) -> Tensor:
        """A tensor of `rows` rows."""
        shape = () if self.shape is None else (rows, *self.shape)
        return torch.zeros(shape, dtype=self.dtype, device=self.device)


@dataclass(frozen=True)
class StepSignature:
    """The signature of a step: structures and leaves of its inputs and state."""

    inputs: Nest
    input_leaves: tuple[Leaf, ...]
    state: Nest
    state_leaves: tuple[Leaf, ...]


ESCAPED = "it keeps a tensor of one step and uses it outside of the step"


class TracedTensor(Tensor):
    """A tensor with shape, dtype and device, but without values.

    It is a chain of `views` into a `Memory`. After its trace it is usable only if it was computed from literals.
    """

    held: Tensor
    owner: object
    """The trace that it belongs to."""
    memory: Memory
    views: tuple[View, ...]

    @staticmethod
    def __new__(  # noqa: PYI034
        cls, inner: Tensor, memory: Memory, views: tuple[View, ...], owner: object, *, requires_grad: bool = False
    ) -> TracedTensor:
        made: TracedTensor = Tensor._make_wrapper_subclass(
            cls,
            inner.shape,
            strides=inner.stride(),
            storage_offset=inner.storage_offset(),
            dtype=inner.dtype,
            layout=inner.layout,
            device=inner.device,
            requires_grad=requires_grad,
        )
        made.held, made.memory, made.views, made.owner = inner, memory, views, owner
        return made

    def shows(self, value: Value) -> TracedTensor:
        """Note the current value, which is valid until the memory is written to."""
        self._shown, self._writes = value, self.memory.writes
        return self

    @property
    def value(self) -> Value:
        """Its current value in the graph."""
        if self._writes != self.memory.writes:
            self.shows(self.memory.read(self.views))
        return self._shown

    @property
    def constant(self) -> bool:
        """Whether it was computed from literals alone, without random numbers."""
        return self.memory.constant

    def __repr__(self, *, tensor_contents: object = None) -> str:  # type: ignore[override]
        return f"Traced({self.value.described})"

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if all(leaf.constant for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, TracedTensor)):
            args, kwargs = tree_map_only(TracedTensor, lambda leaf: leaf.held, (args, kwargs or {}))
            return func(*args, **kwargs)
        raise Uncompilable(ESCAPED)
