"""A compiled step: sections of nodes, forward and backward, by the time at which they can run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor

from throughtime.compiler.ir.graph import Value
from throughtime.compiler.ir.sections import Loop, Section

if TYPE_CHECKING:
    from throughtime.compiler.trace.rerun_cell import CellRerun


@dataclass
class Adjoint:
    """The backward program: sections as in `Program`, with a loop from the last step to the first.

    The loop carries the gradients of the states with the indices `carries`, then the states with the indices
    `standing`, which it reads and no step changes. `saved` are the forward values that it reads, `lagged` the states
    that it reads as they were before a step.
    """

    output_cotangents: list[Value | None]
    carries: list[int]
    standing: list[int]
    tensor_gradients: list[Value | None]
    input_gradients: list[Value | None]
    invariant: Section
    before: Section
    loop: Loop
    after: Section
    saved: list[Value]
    lagged: list[Value]

    @property
    def gradients(self) -> list[Value]:
        """The results, apart from the gradients of the state."""
        return [value for value in (*self.tensor_gradients, *self.input_gradients) if value is not None]


@dataclass
class Program:
    """One step of a cell, in sections by the time at which they can run.

    `tensors` are those of the cell, in the order of its fingerprint. Sections run in the order of their fields:
    `random` (random numbers that depend on shapes alone), `invariant` (from parameters alone), `before` (for the rows
    of all steps), `loop` (step by step), `after` (for the rows of all steps).
    """

    name: str
    tensors: list[Value]
    inputs: list[Value]
    state: list[Value]
    outputs: list[Value]
    new_state: list[Value]
    literals: dict[Value, Tensor]
    random: Section
    invariant: Section
    before: Section
    loop: Loop
    after: Section
    adjoint: Adjoint | None
    # Runs the cell again where torch differentiates the gradient; None if the nodes suffice for that.
    replay: CellRerun | None = None

    @property
    def states(self) -> list[tuple[Value, Value]]:
        """Each state with the new state that replaces it."""
        return list(zip(self.state, self.new_state, strict=True))

    @property
    def saved(self) -> list[Value]:
        """What the forward pass saves for the backward pass.

        A state as it was before a step is saved as the new state of the previous step.
        """
        if self.adjoint is None:
            return []
        lagged = set(self.adjoint.lagged)
        return list(dict.fromkeys([*(new for old, new in self.states if old in lagged), *self.adjoint.saved]))
