"""Recomputing instead of storing: blocks of steps that are walked again when the backward pass needs them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from torch import nn
from torch.utils.checkpoint import checkpoint


def recomputed(walk: Callable[..., Any], cell: Any) -> Callable[..., Any]:
    """`walk`, storing only what enters it. The second walk draws the same random numbers as the first."""

    def run(*args: Any) -> Any:
        noise = _noise_of(cell)
        return checkpoint(
            walk,
            *args,
            use_reentrant=False,
            context_fn=lambda: (contextlib.nullcontext(), _restored(cell, noise)),
        )

    return run


def _noise_of(cell: Any) -> list[Any]:
    """The state of every source of randomness inside the cell; torch's own generators are torch's to restore."""
    return [module.noise_state() for module in _noisy(cell)]


@contextlib.contextmanager
def _restored(cell: Any, noise: list[Any]) -> Iterator[None]:
    """The cell as it was before its first walk, for as long as it walks again."""
    now = _noise_of(cell)
    _set_noise(cell, noise)
    try:
        yield
    finally:
        _set_noise(cell, now)


def _set_noise(cell: Any, noise: list[Any]) -> None:
    for module, state in zip(_noisy(cell), noise, strict=True):
        module.set_noise_state(state)


def _noisy(cell: Any) -> list[Any]:
    if not isinstance(cell, nn.Module):
        return []
    return [module for module in cell.modules() if hasattr(module, "noise_state")]
