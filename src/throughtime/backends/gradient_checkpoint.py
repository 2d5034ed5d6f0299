"""Recomputing instead of storing: blocks of steps that are walked again when the backward pass needs them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from torch.utils.checkpoint import checkpoint

from throughtime.cells._rng import noise_of, set_noise


def recomputed(walk: Callable[..., Any], cell: Any) -> Callable[..., Any]:
    """`walk`, storing only what enters it. The second walk draws the same random numbers as the first."""

    def run(*args: Any) -> Any:
        noise = noise_of(cell)
        contexts = (contextlib.nullcontext(), _Restored(cell, noise))
        return checkpoint(walk, *args, use_reentrant=False, context_fn=lambda: contexts)

    return run


class _Restored:
    """The cell as it was before its first walk, for as long as it walks again; entered once for each backward pass."""

    def __init__(self, cell: Any, noise: dict[str, Any]) -> None:
        self._cell = cell
        self._noise = noise
        self._now: list[dict[str, Any]] = []

    def __enter__(self) -> None:
        self._now.append(noise_of(self._cell))
        set_noise(self._cell, self._noise)

    def __exit__(self, *_: object) -> None:
        set_noise(self._cell, self._now.pop())
