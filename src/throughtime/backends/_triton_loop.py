"""A loop of a program on the GPU backend: tensors for its streams, constants and matrices."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from throughtime._errors import problem
from throughtime.backends import triton
from throughtime.backends._steps import Steps
from throughtime.backends._torch_code import Env
from throughtime.compiler import Loop, Lowered, Uncompilable, Value


def missing(device: torch.device) -> str | None:
    """What a device lacks for this backend, or None."""
    if device.type == "cuda" or triton.is_interpreted():
        return None
    return f"it is for CUDA devices, and the tensors are on {device}"


def lower(loop: Loop, lagged: Sequence[Value]) -> Lowered | str:
    """The loop as the GPU backend takes it, or why it does not."""
    try:
        lowered = Lowered(loop, set(lagged))
    except Uncompilable as reason:
        return str(reason)
    return triton.refusal(lowered.program) or lowered


class TritonLoop:
    """A loop as one launch of a kernel."""

    name = "triton"

    def __init__(self, lowered: Lowered) -> None:
        self._lowered = lowered
        self._kernel = triton.LoopKernel(lowered.program)
        self.takes = [*lowered.streams, *lowered.constants, *lowered.matrices]
        self._fills: dict[torch.device, list[Tensor]] = {}

    def unfit(self, device: torch.device) -> str | None:
        """Why the kernel cannot be launched on a device, or None."""
        return self._kernel.unfit(device)

    @property
    def source(self) -> str:
        """The kernel, for people."""
        return self._kernel.source

    def run(
        self,
        env: Env,
        lagged: dict[Value, tuple[Tensor, Tensor]],
        carried: Sequence[Tensor],
        stored: Sequence[Tensor],
        steps: Steps,
        generators: Any,
    ) -> None:
        """Walk through all steps; `carried` [B, ...] and `stored` [N, ...] change in place."""
        lowered, device = self._lowered, carried[0].device
        if device not in self._fills:
            self._fills[device] = [
                torch.full((row.width,), number, dtype=row.dtype, device=device) for row, number in lowered.fills
            ]
        elsewhere = device.type == "cuda" and device.index != torch.cuda.current_device()
        with torch.cuda.device(device) if elsewhere else contextlib.nullcontext():
            try:
                self._kernel.run(
                    [_flat(env[value]) for value in lowered.streams],
                    [(_flat(stream), _flat(initial)) for stream, initial in map(lagged.__getitem__, lowered.lagged)],
                    [*(env[value].contiguous() for value in lowered.constants), *self._fills[device]],
                    [env[value] for value in lowered.matrices],
                    carried,
                    stored,
                    steps,
                )
            except triton.NoGeometryError as reason:
                # The compiler has made larger kernels than the rule expected; from now on the choice knows.
                what = "the kernels of this cell do not fit this GPU"
                fix = 'Call again: the engine now takes another backend, as `tt.backend("aten")` does.'
                expected = "a kernel whose blocks are all on the GPU at once"
                raise RuntimeError(problem(what, got=str(reason), expected=expected, fix=fix)) from reason


def _flat(stream: Tensor) -> Tensor:
    """Rows side by side in memory."""
    return stream.contiguous()
