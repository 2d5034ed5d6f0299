"""A backward pass that is a kernel and what is made of its results, for a forward pass that is nothing but a kernel.

The general way looks values up by what they are, since blocks of steps, swapping and other backends need that. Here it
is known once and for all in which place of a list each of them is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from throughtime.backends._again import previous
from throughtime.backends._execute import Executable
from throughtime.backends._gradients import Lagged
from throughtime.backends._memory import side_by_side
from throughtime.backends._numba_loop import NumbaLoop
from throughtime.backends._places import Place, are_strides, find_places, strides_of
from throughtime.backends._steps import Steps
from throughtime.compiler import Value

_CPU = torch.device("cpu")


class _View(NamedTuple):
    """A part of one of the tensors of a cell, for operations of torch."""

    place: Place
    shape: tuple[int, ...]
    size: int

    def of(self, tensors: Sequence[Tensor]) -> Tensor:
        tensor = tensors[self.place.tensor]
        return tensor.as_strided(
            self.shape, self.place.strides, tensor.storage_offset() + self.place.offset // self.size
        )


class DirectBackward:
    """The kernel of a backward pass and what follows it, with places for all that they read.

    They are those of one list: gradients of outputs, what the forward pass has kept, inputs, what the kernel stores,
    states of the step before, the cell's tensors and parts of them.
    """

    def __init__(
        self,
        executable: Executable,
        wanted: tuple[bool, ...],
        tensors: Sequence[Tensor],
        places: dict[Value, Place],
    ) -> None:
        program, adjoint, loop = executable.program, executable.program.adjoint, executable.loops[1]
        assert adjoint is not None
        self._executable, self._kernel, self._carries = executable, loop.kernel, adjoint.carries
        self._after, gradients = executable.after_backward(wanted)
        self._tangents = adjoint.output_tangents
        own = [value for value in self._after.takes if value in places]
        self._views = [_View(places[value], value.shape, value.dtype.itemsize) for value in own]  # type: ignore[arg-type]
        tangents = [value for value in self._tangents if value is not None]
        # What there is before the kernel runs, and then after it.
        before = [*tangents, *executable.kept, *program.inputs]
        self._states = [(before.index(new), index) for index, _, new in executable.lagged]
        olds = [old for _, old, _ in executable.lagged]
        lagged = [old for old in olds if old in self._after.takes]
        # Which of these to look up, and whether there must be a copy of them.
        self._lags = [(olds.index(old), old not in self._after.takes_lagged) for old in lagged]
        there = [*before, *adjoint.loop.stored, *lagged, *program.tensors, *own]
        where = {value: place for place, value in reversed([*enumerate(there)])}
        self._streams = [where[value] for value in loop.streams]
        self._lagged = [olds.index(value) for value in loop.lagged]
        self._constants = [given if isinstance(given, Tensor) else places[given] for given in loop.constants]
        self._matrices = [places[value] for value in loop.matrices]
        self._takes = [where[value] for value in self._after.takes]
        where |= {value: len(there) + place for place, value in enumerate(self._after.gives)}
        self._found = [None if value is None else where[value] for value in gradients]
        self._strides = strides_of(places.values(), tensors)

    @classmethod
    def of(cls, executable: Executable, tensors: Sequence[Tensor], wanted: tuple[bool, ...]) -> DirectBackward | None:
        """The direct way back for gradients that are wanted; None if there is more to it."""
        program, adjoint, loop = executable.program, executable.program.adjoint, executable.loops[1]
        if adjoint is None or not isinstance(loop, NumbaLoop) or executable.works_before_adjoint:
            return None
        after, gradients = executable.after_backward(wanted)
        before = {*adjoint.output_tangents, *executable.kept, *program.inputs}
        lagged = {old for _, old, _ in executable.lagged}
        if any(new not in before for _, _, new in executable.lagged) or not lagged.issuperset(loop.lagged):
            return None
        there = {*before, *adjoint.loop.stored, *lagged, *program.tensors}
        env = dict(zip(program.tensors, tensors, strict=True))
        with torch.no_grad():
            executable.run_adjoint_invariant(env)
        read = [*loop.matrices, *(given for given in loop.constants if isinstance(given, Value))]
        read += [value for value in after.takes if value not in there]
        places = find_places(read, env, tensors)
        if (
            places is None
            or not before.issuperset(loop.streams)
            or any(value.row_axis for value in adjoint.loop.stored)
        ):
            return None
        known = {*there, *places, *after.gives, None}
        return cls(executable, wanted, tensors, places) if known.issuperset([*after.takes, *gradients]) else None

    def fits(self, tensors: Sequence[Tensor]) -> bool:
        """Whether the cell's tensors lie in memory as they did."""
        return are_strides(self._strides, tensors)

    def run(
        self,
        tensors: Sequence[Tensor],
        rows: Sequence[Tensor],
        initial: Sequence[Tensor],
        kept: Sequence[Tensor],
        output_tangents: Sequence[Tensor | None],
        state_tangents: Sequence[Tensor | None],
        steps: Steps,
    ) -> tuple[list[Tensor | None], list[Tensor | None]]:
        """Gradients of tensors and inputs, and of the initial state, as `Executable.backward` gives them."""
        executable = self._executable
        there: list[Any] = [
            side_by_side(executable.no_tangent(value, steps.total, _CPU) if tangent is None else tangent)
            for value, tangent in zip(self._tangents, output_tangents, strict=True)
            if value is not None
        ]
        there += map(side_by_side, (*kept, *rows))
        stored = executable.adjoint_streams.make(steps.total, _CPU)
        carried = [
            torch.zeros(initial[index].shape, dtype=initial[index].dtype, device=_CPU)
            if (given := state_tangents[index]) is None
            else given.clone(memory_format=torch.contiguous_format)
            for index in self._carries
        ]
        lagged = [(there[place], side_by_side(initial[index])) for place, index in self._states]
        starts = [tensor.data_ptr() for tensor in tensors]
        self._kernel.launch(
            self._kernel.divide(steps, 0, len(steps.counts), torch.get_num_threads()),
            [
                *[there[place].data_ptr() for place in self._streams],
                *[lagged[place][0].data_ptr() for place in self._lagged],
                *[lagged[place][1].data_ptr() for place in self._lagged],
                *[
                    starts[given.tensor] + given.offset if isinstance(given, Place) else given.data_ptr()
                    for given in self._constants
                ],
            ],
            [(starts[tensor] + offset, *strides) for tensor, offset, strides in self._matrices],
            [*[leaf.data_ptr() for leaf in carried], *[stream.data_ptr() for stream in stored]],
        )
        there += stored
        for place, as_copy in self._lags:
            there.append(previous(steps, *lagged[place]) if as_copy else Lagged.of(*lagged[place], steps))
        there += tensors
        there += [view.of(tensors) for view in self._views]
        there += self._after(steps.total, None, *[there[place] for place in self._takes])
        states: list[Tensor | None] = [None] * len(initial)
        for index, gradient in zip(self._carries, carried, strict=True):
            states[index] = gradient
        return [None if place is None else there[place] for place in self._found], states
