"""Gradient checkpointing: chunks of time that the backward pass recomputes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, TypeVar, cast

from torch.utils.checkpoint import checkpoint

from throughtime.cells._cell_types import CellLike
from throughtime.cells._rng import noise_of, set_noise

Function = TypeVar("Function", bound=Callable[..., Any])


def recomputed(function: Function, cell: CellLike) -> Function:
    """`function`, saving only its arguments. Its recomputation draws the same random numbers."""

    def run(*args: Any) -> Any:
        noise = noise_of(cell)
        contexts = (contextlib.nullcontext(), _Restored(cell, noise))
        return checkpoint(function, *args, use_reentrant=False, context_fn=lambda: contexts)

    return cast(Function, run)


class _Restored:
    """The cell's generators as they were before the forward pass, while it is recomputed; one entry for each pass."""

    def __init__(self, cell: CellLike, noise: dict[str, Any]) -> None:
        self._cell = cell
        self._noise = noise
        self._now: list[dict[str, Any]] = []

    def __enter__(self) -> None:
        self._now.append(noise_of(self._cell))
        set_noise(self._cell, self._noise)

    def __exit__(self, *_: object) -> None:
        set_noise(self._cell, self._now.pop())
