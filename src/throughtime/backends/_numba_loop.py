"""A loop of a program on the kernel backend: tensors for its streams, constants and matrices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from throughtime.backends import numba
from throughtime.backends._steps import Steps
from throughtime.backends._torch_code import Env
from throughtime.compiler import Loop, Lowered, Uncompilable, Value


def lower(loop: Loop, lagged: Sequence[Value]) -> Lowered | str:
    """The loop as the kernel backend takes it, or why it does not."""
    try:
        lowered = Lowered(loop, set(lagged))
    except Uncompilable as reason:
        return str(reason)
    return numba.refusal(lowered.program) or lowered


class NumbaLoop:
    """A loop as one call of a compiled kernel."""

    name = "numba"

    def __init__(self, lowered: Lowered) -> None:
        self._lowered = lowered
        self._kernel = numba.compile_loop(lowered.program)
        self._fills = [torch.full((row.width,), number, dtype=row.dtype) for row, number in lowered.fills]

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
        lowered = self._lowered
        self._kernel.run(
            [_flat(env[value]) for value in lowered.streams],
            [(_flat(stream), _flat(initial)) for stream, initial in map(lagged.__getitem__, lowered.lagged)],
            [*(env[value].contiguous() for value in lowered.constants), *self._fills],
            [env[value] for value in lowered.matrices],
            carried,
            stored,
            steps,
            0,
            len(steps.active),
            torch.get_num_threads(),
        )


def _flat(stream: Tensor) -> Tensor:
    """Rows [N, width] side by side in memory."""
    return stream.contiguous().flatten(1) if stream.ndim > 1 else stream.contiguous().unsqueeze(1)
