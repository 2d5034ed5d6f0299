"""A forward pass that is nothing but its kernel: small networks are called often, and every microsecond counts.

An unroll often has no work outside of its kernel. Where all that the kernel reads lies in the inputs, in the state, or
in a known place of one of the cell's tensors, its addresses are all there is to find out at a call.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from throughtime.backends.cpu.loop import CpuLoop
from throughtime.layout.step_layout import StepLayout
from throughtime.native.caching_allocator import empty
from throughtime.runtime.bound_backward import BoundBackward
from throughtime.runtime.forward import Executable
from throughtime.runtime.weight_views import WeightViews

_CPU = torch.device("cpu")


class BoundCall:
    """The kernel of a call, with places for all that it reads and writes."""

    def __init__(self, executable: Executable, loop: CpuLoop, steps: StepLayout, parts: WeightViews) -> None:
        program = executable.program
        stored, outputs = program.loop.stored, set(program.outputs)
        self._kernel = loop.kernel
        self._threads = torch.get_num_threads()
        self._usual = steps, self._kernel.divide(steps, 0, len(steps.counts), self._threads)
        self._inputs = [program.inputs.index(value) for value in loop.streams]
        self._parts = parts
        self._shapes = [(value in outputs, value.row_shape, value.dtype) for value in stored]
        self._outputs = [stored.index(value) for value in program.outputs]
        self._kept = [] if program.adjoint is None else [stored.index(value) for value in executable.kept]
        self._way_back = executable.backward
        self._backwards: dict[tuple[bool, ...], BoundBackward | None] = {}

    @classmethod
    def of(cls, executable: Executable, steps: StepLayout, tensors: Sequence[Tensor]) -> BoundCall | None:
        """The direct way of a call like one that has just run; None if there is more to it than a kernel."""
        program, loop = executable.program, executable.loops[0]
        if not isinstance(loop, CpuLoop) or not steps.total or loop.lagged:
            return None
        if program.random.nodes or executable.works_before or program.after.nodes:
            return None
        outputs, stored = set(program.outputs), set(program.loop.stored)
        kept = set() if program.adjoint is None else set(executable.kept)
        if not stored.issuperset(outputs | kept) or len(outputs) < len(program.outputs):
            return None
        if any(tensor.is_neg() for tensor in tensors):
            # Their signs wait until somebody reads them, and a kernel reads memory.
            return None
        if any(value.row_axis for value in stored) or not set(program.inputs).issuperset(loop.streams):
            return None
        env = {**dict(zip(program.tensors, tensors, strict=True)), **program.literals}
        with torch.no_grad():
            executable.run_invariant(env)
        parts = WeightViews.of(loop, env, tensors)
        return None if parts is None else cls(executable, loop, steps, parts)

    def fits(self, tensors: Sequence[Tensor], inputs: Sequence[Tensor]) -> bool:
        """Whether everything lies in memory as it did."""
        if torch.get_num_threads() != self._threads:
            return False
        for leaf in inputs:
            if not leaf.is_contiguous() or leaf.is_neg():
                return False
        return self._parts.fit(tensors)

    def backward(self, tensors: Sequence[Tensor], wanted: tuple[bool, ...]) -> BoundBackward | None:
        """The way back to the gradients that are wanted; None if there is none that is as direct."""
        if wanted not in self._backwards:
            way = self._way_back
            self._backwards[wanted] = None if way is None else BoundBackward.of(way, tensors, wanted)
        found = self._backwards[wanted]
        return found if found is not None and found.fits(tensors) else None

    def forward(
        self,
        tensors: Sequence[Tensor],
        inputs: Sequence[Tensor],
        carried: Sequence[Tensor],
        steps: StepLayout,
        leading: tuple[int, int] | None,
    ) -> tuple[list[Tensor], list[Tensor]]:
        """The outputs and what the backward pass needs, for arguments that fit; `carried` changes to the final state.

        Both have rows [N, ...], but outputs the axes `leading`, if they are given.
        """
        rows = steps.total
        stored = [
            empty((rows, *shape), dtype, _CPU)
            if leading is None or not visible
            else torch.empty(size=(*leading, *shape), dtype=dtype, device=_CPU)
            for visible, shape, dtype in self._shapes
        ]
        constants, matrices = self._parts.addresses(tensors)
        usual, division = self._usual
        if steps is not usual:
            division = self._kernel.divide(steps, 0, len(steps.counts), self._threads)
        self._kernel.launch(
            division,
            [*[inputs[index].data_ptr() for index in self._inputs], *constants],
            matrices,
            [*[leaf.data_ptr() for leaf in carried], *[stream.data_ptr() for stream in stored]],
        )
        return [stored[place] for place in self._outputs], [stored[place] for place in self._kept]
