"""Fast path: a forward pass that consists of one kernel call.

Most unrolls compute nothing outside the kernel. Where everything that the kernel reads is an input, the state, or a
view of one of the cell's tensors at a known offset, a call has only to collect addresses.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from throughtime.backends.cpu.weight_views import WeightViews
from throughtime.backends.loop_backend import BoundBackward, BoundCall, ForwardPass
from throughtime.layout.step_layout import StepLayout
from throughtime.native.caching_allocator import empty

if TYPE_CHECKING:
    from throughtime.backends.cpu.loop import CpuLoop

_CPU = torch.device("cpu")


def bind(loop: CpuLoop, forward: ForwardPass, steps: StepLayout, tensors: Sequence[Tensor]) -> CpuBoundCall | None:
    """The bound call of a loop; None if the kernel reads something that is found only by running the program."""
    program = forward.program
    outputs, stored = set(program.outputs), set(program.loop.stored)
    if not steps.total or loop.lagged or not stored.issuperset({*outputs, *forward.kept}):
        return None
    if len(outputs) < len(program.outputs) or any(value.row_axis for value in stored):
        return None
    # Tensors with the negative bit set are negated lazily; the kernel reads raw memory.
    if any(tensor.is_neg() for tensor in tensors) or not set(program.inputs).issuperset(loop.streams):
        return None
    views = WeightViews.of(loop, forward.invariant_values(), tensors)
    return None if views is None else CpuBoundCall(loop, forward, steps, views)


class CpuBoundCall(BoundCall):
    """The kernel of a loop with the index of everything that it reads and writes."""

    def __init__(self, loop: CpuLoop, forward: ForwardPass, steps: StepLayout, views: WeightViews) -> None:
        program = forward.program
        stored, outputs = program.loop.stored, set(program.outputs)
        self._kernel = loop.kernel
        self._threads = torch.get_num_threads()
        self._usual = steps, self._kernel.divide(steps, 0, len(steps.counts), self._threads)
        self._inputs = [program.inputs.index(value) for value in loop.streams]
        self._views = views
        self._shapes = [(value in outputs, value.row_shape, value.dtype) for value in stored]
        self._outputs = [stored.index(value) for value in program.outputs]
        self._saved = [stored.index(value) for value in forward.kept]
        self._backward = forward.backward
        self._backwards: dict[tuple[bool, ...], BoundBackward | None] = {}

    def fits(self, tensors: Sequence[Tensor], inputs: Sequence[Tensor]) -> bool:
        if torch.get_num_threads() != self._threads:
            return False
        for leaf in inputs:
            if not leaf.is_contiguous() or leaf.is_neg():
                return False
        return self._views.fit(tensors)

    def launch(
        self,
        tensors: Sequence[Tensor],
        inputs: Sequence[Tensor],
        carried: Sequence[Tensor],
        steps: StepLayout,
        leading: tuple[int, int] | None,
    ) -> tuple[list[Tensor], list[Tensor]]:
        rows = steps.total
        stored = [
            empty((rows, *shape), dtype, _CPU)
            if leading is None or not visible
            else torch.empty(size=(*leading, *shape), dtype=dtype, device=_CPU)
            for visible, shape, dtype in self._shapes
        ]
        constants, matrices = self._views.addresses(tensors)
        usual, division = self._usual
        if steps is not usual:
            division = self._kernel.divide(steps, 0, len(steps.counts), self._threads)
        self._kernel.launch(
            division,
            [*[inputs[index].data_ptr() for index in self._inputs], *constants],
            matrices,
            [*[leaf.data_ptr() for leaf in carried], *[buffer.data_ptr() for buffer in stored]],
        )
        return [stored[place] for place in self._outputs], [stored[place] for place in self._saved]

    def backward(self, tensors: Sequence[Tensor], required: tuple[bool, ...]) -> BoundBackward | None:
        if required not in self._backwards:
            general = self._backward
            bound = None if general is None else general.loop.bind_backward(general, tensors, required)
            self._backwards[required] = bound
        found = self._backwards[required]
        return found if found is not None and found.fits(tensors) else None
