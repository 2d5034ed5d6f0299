"""A loop of a program on the GPU backend: the tensors of its streams, constants and matrices."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager

import torch
from torch import Tensor

from throughtime._errors import problem
from throughtime.backends import triton
from throughtime.backends.loop_backend import LoopBackend
from throughtime.backends.torch_codegen import Env, Generators
from throughtime.backends.triton.target import takes_kernels
from throughtime.compiler import Loop, Lowered, Uncompilable, Value
from throughtime.layout.previous_step import LaggedStreams
from throughtime.layout.step_layout import StepLayout


def unsupported_reason(device: torch.device) -> str | None:
    """Why this backend is not for a device, or None."""
    if takes_kernels(device):
        return None
    return f"it is for CUDA devices, and the tensors are on {device}"


def lower(loop: Loop, lagged: Sequence[Value]) -> Lowered | str:
    """The loop lowered for the GPU backend, or why it does not support it."""
    try:
        lowered = Lowered(loop, set(lagged))
    except Uncompilable as reason:
        return str(reason)
    transposed = next((value for value in (*lowered.streams, *loop.stored) if value.row_axis), None)
    if transposed is not None:
        return f"the rows of {transposed.name} do not come first"
    return triton.unsupported_reason(lowered.program) or lowered


class TritonLoop(LoopBackend):
    """A loop as one launch of a kernel."""

    on_gpu = takes_starts = True

    def __init__(self, lowered: Lowered) -> None:
        self._lowered = lowered
        self._kernel = triton.LoopKernel(lowered.program)
        self.takes = [*lowered.streams, *lowered.constants, *lowered.matrices]
        self._fills: dict[torch.device, list[Tensor]] = {}

    def unsupported_reason(self, device: torch.device, *, must: bool) -> str | None:
        """Why the kernel cannot be launched on a device, or None."""
        return self._kernel.unfit(device)

    def seconds(self, rows: int, device: torch.device) -> float:
        """The estimated time of a step of a dense batch."""
        return self._kernel.seconds(rows, device)

    def ranked_seconds(self, rows: int, device: torch.device) -> float:
        """The estimate of the tiling rule, which is rather high: for comparisons with a margin."""
        return self._kernel.seconds(rows, device, ranked=True)

    def held(self) -> AbstractContextManager[None]:
        """A context in which matrices are packed for the kernel once for all launches."""
        return self._kernel.held()

    @property
    def source(self) -> str:
        return self._kernel.source

    def run(
        self,
        env: Env,
        lagged: LaggedStreams,
        carried: Sequence[Tensor],
        stored: Sequence[Tensor],
        steps: StepLayout,
        generators: Generators | None,
        starts: Sequence[Tensor] | None = None,
    ) -> None:
        device = carried[0].device
        begin = carried if starts is None else [_flat(start) for start in starts]
        if device.type == "cuda" and device.index != torch.cuda.current_device():
            with torch.cuda.device(device):
                self._launch(env, lagged, begin, carried, stored, steps)
        else:
            self._launch(env, lagged, begin, carried, stored, steps)

    def _launch(
        self,
        env: Env,
        lagged: LaggedStreams,
        starts: Sequence[Tensor],
        carried: Sequence[Tensor],
        stored: Sequence[Tensor],
        steps: StepLayout,
    ) -> None:
        lowered, device = self._lowered, carried[0].device
        fills = self._fills.get(device)
        if fills is None:
            fills = self._fills[device] = [
                torch.full((row.width,), number, dtype=row.dtype, device=device) for row, number in lowered.fills
            ]
        try:
            self._kernel.run(
                [_flat(env[value]) for value in lowered.streams],
                [(_flat(stream), _flat(first)) for stream, first in map(lagged.__getitem__, lowered.lagged)],
                [*(_flat(env[value]) for value in lowered.constants), *fills],
                [_signed(env[value]) for value in lowered.matrices],
                starts,
                carried,
                stored,
                steps,
            )
        except triton.NoTilingError as reason:
            # The compiled kernels are larger than the rule expected; later calls select another backend.
            what = "the kernels of this cell do not fit this GPU"
            fix = 'Call again: the engine now takes another backend, as `tt.backend("aten")` does.'
            expected = "a kernel whose blocks are all on the GPU at once"
            raise RuntimeError(problem(what, got=str(reason), expected=expected, fix=fix)) from reason


def _flat(stream: Tensor) -> Tensor:
    """A contiguous tensor without the negative bit."""
    return _signed(stream).contiguous()


def _signed(tensor: Tensor) -> Tensor:
    """A tensor without the negative bit: kernels read raw memory, and torch negates lazily."""
    return tensor.resolve_neg() if tensor.is_neg() else tensor
