"""A loop of a program on the GPU backend: tensors for its streams, constants and matrices."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor

from throughtime._errors import problem
from throughtime.backends import triton
from throughtime.backends.loop_backend import LoopBackend
from throughtime.backends.torch_codegen import Env
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
    """The loop as the GPU backend takes it, or why it does not."""
    try:
        lowered = Lowered(loop, set(lagged))
    except Uncompilable as reason:
        return str(reason)
    turned = next((value for value in (*lowered.streams, *loop.stored) if value.row_axis), None)
    if turned is not None:
        return f"the rows of {turned.name} do not come first"
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
        """What a step of a dense batch should take."""
        return self._kernel.seconds(rows, device)

    def ranked_seconds(self, rows: int, device: torch.device) -> float:
        """The same as the rule for geometries has it, which says rather too much: for comparisons with a margin."""
        return self._kernel.seconds(rows, device, ranked=True)

    def held(self) -> AbstractContextManager[None]:
        """Within this, matrices are packed for the kernel once, however often it is launched."""
        return self._kernel.held()

    @property
    def source(self) -> str:
        """The kernel, for people."""
        return self._kernel.source

    def run(
        self,
        env: Env,
        lagged: LaggedStreams,
        carried: Sequence[Tensor],
        stored: Sequence[Tensor],
        steps: StepLayout,
        generators: Any,
        starts: Sequence[Tensor] | None = None,
    ) -> None:
        """Walk through all steps; `carried` [B, ...] and `stored` [N, ...] are written to.

        The walk begins with `starts` if they are given, and then nobody reads what `carried` was.
        """
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
            # The compiler has made larger kernels than the rule expected; from now on the choice knows.
            what = "the kernels of this cell do not fit this GPU"
            fix = 'Call again: the engine now takes another backend, as `tt.backend("aten")` does.'
            expected = "a kernel whose blocks are all on the GPU at once"
            raise RuntimeError(problem(what, got=str(reason), expected=expected, fix=fix)) from reason


def _flat(stream: Tensor) -> Tensor:
    """Rows side by side in memory, with their signs."""
    return _signed(stream).contiguous()


def _signed(tensor: Tensor) -> Tensor:
    """A tensor whose signs do not wait until somebody reads it: kernels read memory."""
    return tensor.resolve_neg() if tensor.is_neg() else tensor
