"""Fast path: a backward pass that consists of one kernel call and the section after the loop.

The general backward pass looks values up in an environment, because chunks of time, offloading and other backends need
that. Here the index of each value in one list is known in advance.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from throughtime.backends.cpu.weight_views import WeightViews
from throughtime.backends.loop_backend import BackwardPass, BoundBackward, Cotangents, Gradients
from throughtime.compiler import Value
from throughtime.layout.initial_state import own_state
from throughtime.layout.previous_step import PreviousStep, previous
from throughtime.layout.step_layout import StepLayout
from throughtime.native.caching_allocator import as_contiguous

if TYPE_CHECKING:
    from throughtime.backends.cpu.loop import CpuLoop

_CPU = torch.device("cpu")


def bind(
    loop: CpuLoop, backward: BackwardPass, tensors: Sequence[Tensor], required: tuple[bool, ...]
) -> CpuBoundBackward | None:
    """The bound backward pass for the required gradients; None if it is more than a kernel and what follows it."""
    program, adjoint = backward.program, backward.adjoint
    if backward.works_before:
        return None
    after, gradients = backward.after_loop(required)
    weights, stored = _read_from_weights(backward, after.takes), adjoint.loop.stored
    env = {**dict(zip(program.tensors, tensors, strict=True)), **program.literals}
    with torch.no_grad():
        backward.run_invariant(env)
    views = WeightViews.of(loop, env, tensors, weights)
    if views is None or any(value.row_axis for value in (*stored, *loop.streams)):
        return None
    cotangents = [value for value in adjoint.output_cotangents if value is not None]
    before = [*cotangents, *backward.kept, *program.inputs]
    lagged = [old for _, old, _ in backward.lagged]
    taken = [old for old in lagged if old in after.takes]
    everything = [*before, *stored, *taken, *program.tensors, *weights, *after.gives]
    # Of equal values the first one counts.
    places = {value: place for place, value in reversed([*enumerate(everything)])}
    early = {*loop.streams, *(new for _, _, new in backward.lagged)}
    late = {*after.takes, *(value for value in gradients if value is not None)}
    if not early.issubset(before) or not late.issubset(places) or not set(loop.lagged).issubset(lagged):
        return None
    return CpuBoundBackward(backward, loop, required, views, places)


class CpuBoundBackward(BoundBackward):
    """The kernel of a backward pass and the section after it, with the index of all that they read in one list.

    The list holds the gradients of outputs, saved values and inputs; then what the kernel stores, states of the
    previous step, the cell's tensors and views of them; and last the results of the section after the loop.
    """

    def __init__(
        self,
        backward: BackwardPass,
        loop: CpuLoop,
        required: tuple[bool, ...],
        views: WeightViews,
        places: dict[Value, int],
    ) -> None:
        adjoint = backward.adjoint
        self._backward, self._kernel = backward, loop.kernel
        self._carries, self._invariant_states = adjoint.carries, adjoint.standing
        self._after, gradients = backward.after_loop(required)
        self._cotangents, self._views = adjoint.output_cotangents, views
        self._streams = [places[value] for value in loop.streams]
        # The buffers and indices of the states that are read as of the previous step: by the kernel, and by the section
        # after it, which may need a copy.
        olds = [old for _, old, _ in backward.lagged]
        self._states = [(places[new], index) for index, _, new in backward.lagged]
        self._in_kernel = [olds.index(value) for value in loop.lagged]
        taken = [old for old in olds if old in self._after.takes]
        self._after_it = [(olds.index(old), old not in self._after.takes_lagged) for old in taken]
        self._overwritten = [None if value is None else places[value] for value in backward.overwritten]
        self._takes = [places[value] for value in self._after.takes]
        self._gradients = [None if value is None else places[value] for value in gradients]

    def fits(self, tensors: Sequence[Tensor]) -> bool:
        return self._views.fit(tensors)

    def run(
        self,
        tensors: Sequence[Tensor],
        rows: Sequence[Tensor],
        saved: Sequence[Tensor],
        cotangents: Cotangents,
        steps: StepLayout,
    ) -> Gradients:
        backward, initial, donate = self._backward, cotangents.initial, cotangents.donate
        values: list[Any] = [
            as_contiguous(backward.no_cotangent(value, steps.total, _CPU) if cotangent is None else cotangent)
            for value, cotangent in zip(self._cotangents, cotangents.outputs, strict=True)
            if value is not None
        ]
        values += map(as_contiguous, (*saved, *rows))
        states = [(values[place], as_contiguous(initial[index])) for place, index in self._states]
        carried = [own_state(initial[index], cotangents.state[index]) for index in self._carries]
        # No kernel writes to a loop-invariant state.
        carried += [as_contiguous(initial[index]) for index in self._invariant_states]
        constants, matrices = self._views.addresses(tensors)
        division = self._kernel.divide(steps, 0, len(steps.counts), torch.get_num_threads())
        donated = None
        if donate is not None and donate():
            donated = [None if place is None else values[place] for place in self._overwritten]
        stored = backward.streams.make(steps.total, _CPU, donated=donated)
        self._kernel.launch(
            division,
            [
                *[values[place].data_ptr() for place in self._streams],
                *[states[which][0].data_ptr() for which in self._in_kernel],
                *[states[which][1].data_ptr() for which in self._in_kernel],
                *constants,
            ],
            matrices,
            [*[leaf.data_ptr() for leaf in carried], *[buffer.data_ptr() for buffer in stored]],
        )
        values += stored
        for which, as_copy in self._after_it:
            values.append(previous(steps, *states[which]) if as_copy else PreviousStep.of(*states[which], steps))
        values += tensors
        values += self._views.views(tensors)
        values += self._after(steps.total, None, *[values[place] for place in self._takes])
        of_states: list[Tensor | None] = [None] * len(initial)
        for index, gradient in zip(self._carries, carried[: len(self._carries)], strict=True):
            of_states[index] = gradient
        return [None if place is None else values[place] for place in self._gradients], of_states


def _read_from_weights(backward: BackwardPass, takes: Sequence[Value]) -> list[Value]:
    """The values read after the kernel that must be views of the cell's tensors, because nothing else holds them."""
    program, adjoint = backward.program, backward.adjoint
    elsewhere = {*adjoint.output_cotangents, *backward.kept, *program.inputs, *adjoint.loop.stored, *program.tensors}
    elsewhere.update(old for _, old, _ in backward.lagged)
    return [value for value in takes if value not in elsewhere]
