"""Recomputing instead of storing: blocks of steps that are walked again when the backward pass needs them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from torch.utils.checkpoint import checkpoint

from throughtime.cells._draws import drawing


def recomputed(walk: Callable[..., Any], cell: Any) -> Callable[..., Any]:
    """`walk`, storing only what enters it. The second walk draws the same random numbers as the first."""

    def run(*args: Any) -> Any:
        noise = _noise_of(cell)
        contexts = (contextlib.nullcontext(), _Restored(cell, noise))
        return checkpoint(walk, *args, use_reentrant=False, context_fn=lambda: contexts)

    return run


class _Restored:
    """The cell as it was before its first walk, for as long as it walks again; entered once for each backward pass."""

    def __init__(self, cell: Any, noise: list[Any]) -> None:
        self._cell = cell
        self._noise = noise
        self._now: list[list[Any]] = []

    def __enter__(self) -> None:
        self._now.append(_noise_of(self._cell))
        _set_noise(self._cell, self._noise)

    def __exit__(self, *_: object) -> None:
        _set_noise(self._cell, self._now.pop())


def _noise_of(cell: Any) -> list[Any]:
    """The state of every source of randomness inside the cell; torch's own generators are torch's to restore."""
    return [module.noise_state() for _, module in drawing(cell)]


def _set_noise(cell: Any, noise: list[Any]) -> None:
    for (_, module), state in zip(drawing(cell), noise, strict=True):
        module.set_noise_state(state)
