"""A backward pass that is a kernel and what is made of its results, for a forward pass that is nothing but a kernel.

The general way looks values up by what they are, since blocks of steps, swapping and other backends need that. Here it
is known once and for all at which number of a list each of them is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from throughtime.backends.cpu.loop import CpuLoop
from throughtime.compiler import Value
from throughtime.layout.previous_step import PreviousStep, previous
from throughtime.layout.step_layout import StepLayout
from throughtime.native.caching_allocator import as_contiguous
from throughtime.runtime.backward import Backward
from throughtime.runtime.initial_state import own_state
from throughtime.runtime.weight_views import WeightViews

_CPU = torch.device("cpu")


class BoundBackward:
    """The kernel of a backward pass and what follows it, with the numbers of all that they read in one list.

    It has gradients of outputs, what the forward pass has kept and inputs; then what the kernel stores, states as they
    were at the step before, the cell's tensors and parts of them; and in the end what is made of all that.
    """

    def __init__(
        self,
        backward: Backward,
        loop: CpuLoop,
        wanted: tuple[bool, ...],
        parts: WeightViews,
        numbers: dict[Value, int],
    ) -> None:
        adjoint = backward.adjoint
        self._backward, self._kernel = backward, loop.kernel
        self._carries, self._standing = adjoint.carries, adjoint.standing
        self._after, gradients = backward.after_loop(wanted)
        self._cotangents, self._parts = adjoint.output_cotangents, parts
        self._streams = [numbers[value] for value in loop.streams]
        # Streams of states, and which states these are; who reads them as they were at the step before: the kernel, and
        # what follows it, which may want a copy.
        olds = [old for _, old, _ in backward.lagged]
        self._states = [(numbers[new], index) for index, _, new in backward.lagged]
        self._in_kernel = [olds.index(value) for value in loop.lagged]
        taken = [old for old in olds if old in self._after.takes]
        self._after_it = [(olds.index(old), old not in self._after.takes_lagged) for old in taken]
        self._overwritten = [None if value is None else numbers[value] for value in backward.overwritten]
        self._takes = [numbers[value] for value in self._after.takes]
        self._found = [None if value is None else numbers[value] for value in gradients]

    @classmethod
    def of(cls, backward: Backward, tensors: Sequence[Tensor], wanted: tuple[bool, ...]) -> BoundBackward | None:
        """The direct way back for gradients that are wanted; None if there is more to it."""
        program, adjoint, loop = backward.program, backward.adjoint, backward.loop
        if not isinstance(loop, CpuLoop) or backward.works_before:
            return None
        after, gradients = backward.after_loop(wanted)
        views, stored = _views(backward, after.takes), adjoint.loop.stored
        env = {**dict(zip(program.tensors, tensors, strict=True)), **program.literals}
        with torch.no_grad():
            backward.run_invariant(env)
        parts = WeightViews.of(loop, env, tensors, views)
        if parts is None or any(value.row_axis for value in (*stored, *loop.streams)):
            return None
        cotangents = [value for value in adjoint.output_cotangents if value is not None]
        before = [*cotangents, *backward.kept, *program.inputs]
        lagged = [old for _, old, _ in backward.lagged]
        taken = [old for old in lagged if old in after.takes]
        everything = [*before, *stored, *taken, *program.tensors, *views, *after.gives]
        # The first of several that are the same.
        numbers = {value: number for number, value in reversed([*enumerate(everything)])}
        early = {*loop.streams, *(new for _, _, new in backward.lagged)}
        late = {*after.takes, *(value for value in gradients if value is not None)}
        if not early.issubset(before) or not late.issubset(numbers) or not set(loop.lagged).issubset(lagged):
            return None
        return cls(backward, loop, wanted, parts, numbers)

    def fits(self, tensors: Sequence[Tensor]) -> bool:
        """Whether the cell's tensors lie in memory as they did."""
        return self._parts.fit(tensors)

    def run(
        self,
        tensors: Sequence[Tensor],
        rows: Sequence[Tensor],
        initial: Sequence[Tensor],
        kept: Sequence[Tensor],
        output_cotangents: Sequence[Tensor | None],
        state_cotangents: Sequence[Tensor | None],
        steps: StepLayout,
        *,
        overwrite: Callable[[], bool] | None,
    ) -> tuple[list[Tensor | None], list[Tensor | None]]:
        """Gradients of tensors and inputs, and of the initial state, as `Backward.run` gives them."""
        backward = self._backward
        there: list[Any] = [
            as_contiguous(backward.no_cotangent(value, steps.total, _CPU) if cotangent is None else cotangent)
            for value, cotangent in zip(self._cotangents, output_cotangents, strict=True)
            if value is not None
        ]
        there += map(as_contiguous, (*kept, *rows))
        states = [(there[number], as_contiguous(initial[index])) for number, index in self._states]
        carried = [own_state(initial[index], state_cotangents[index]) for index in self._carries]
        # No kernel writes to what it carries on as it is.
        carried += [as_contiguous(initial[index]) for index in self._standing]
        constants, matrices = self._parts.addresses(tensors)
        division = self._kernel.divide(steps, 0, len(steps.counts), torch.get_num_threads())
        is_mine = overwrite is not None and overwrite()
        places = [None if number is None else there[number] for number in self._overwritten] if is_mine else None
        stored = backward.streams.make(steps.total, _CPU, places=places)
        self._kernel.launch(
            division,
            [
                *[there[number].data_ptr() for number in self._streams],
                *[states[which][0].data_ptr() for which in self._in_kernel],
                *[states[which][1].data_ptr() for which in self._in_kernel],
                *constants,
            ],
            matrices,
            [*[leaf.data_ptr() for leaf in carried], *[stream.data_ptr() for stream in stored]],
        )
        there += stored
        for which, as_copy in self._after_it:
            there.append(previous(steps, *states[which]) if as_copy else PreviousStep.of(*states[which], steps))
        there += tensors
        there += self._parts.views(tensors)
        there += self._after(steps.total, None, *[there[number] for number in self._takes])
        of_states: list[Tensor | None] = [None] * len(initial)
        for index, gradient in zip(self._carries, carried[: len(self._carries)], strict=True):
            of_states[index] = gradient
        return [None if number is None else there[number] for number in self._found], of_states


def _views(backward: Backward, takes: Sequence[Value]) -> list[Value]:
    """What is read after the kernel that must be a part of one of the cell's tensors, since nothing else has it."""
    program, adjoint = backward.program, backward.adjoint
    elsewhere = {*adjoint.output_cotangents, *backward.kept, *program.inputs, *adjoint.loop.stored, *program.tensors}
    elsewhere.update(old for _, old, _ in backward.lagged)
    return [value for value in takes if value not in elsewhere]
