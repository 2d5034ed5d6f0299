"""Memory for what a loop stores at every step."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from throughtime.backends.torch_codegen import Env
from throughtime.compiler import Value
from throughtime.native.caching_allocator import empty


class StepBuffers:
    """One buffer [N, ...] for each stored value. Those that are `visible` to the caller are allocated by torch."""

    def __init__(self, stored: Sequence[Value], visible: set[Value]) -> None:
        self._stored = stored
        self._shapes = [(value in visible, value.row_shape, value.dtype) for value in stored]
        self._allocated = [None] * len(stored)
        self._transposed = [value for value in stored if value.row_axis]

    def make(
        self, rows: int, device: torch.device, *, hidden: bool = False, donated: Sequence[Tensor | None] | None = None
    ) -> list[Tensor]:
        """A buffer [rows, ...] for each value. `hidden`: no buffer is visible to the caller, whatever its value.

        A value with a `donated` buffer overwrites that one.
        """
        return [
            given.view(rows, *shape)
            if given is not None
            else torch.empty(size=(rows, *shape), dtype=dtype, device=device)
            if visible and not hidden
            else empty((rows, *shape), dtype, device)
            for (visible, shape, dtype), given in zip(self._shapes, donated or self._allocated, strict=True)
        ]

    def enter(self, env: Env, buffers: Sequence[Tensor]) -> None:
        """Add the buffers to `env` under the values that they hold."""
        env.update(zip(self._stored, buffers, strict=True))
        for value in self._transposed:
            env[value] = value.rows_placed(env[value])
