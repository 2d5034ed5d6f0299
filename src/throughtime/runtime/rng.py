"""Random numbers of a compiled unroll: its generators, and how to replay them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from throughtime.cells._rng import noise_of, set_noise
from throughtime.compiler import Source


class RngState:
    """The state of a cell's generators when an unroll began."""

    def __init__(self, cell: Any, device: torch.device, *, is_random: bool) -> None:
        self.cell = cell
        self._device = device
        self._states: tuple[torch.Tensor, torch.Tensor | None, dict[str, Any]] | None = None
        if is_random:
            on_device = torch.cuda.get_rng_state(device) if device.type == "cuda" else None
            self._states = (torch.get_rng_state(), on_device, noise_of(self.cell))

    def generator(self, source: Source) -> torch.Generator:
        """The generator of the cell that a program names."""
        generator: torch.Generator = self.cell.get_submodule(source.path).generator(source.device)
        return generator

    @contextlib.contextmanager
    def again(self) -> Iterator[None]:
        """A context that replays the random numbers of the unroll; after it, the generators are as before."""
        if self._states is None:
            yield
            return
        cpu, on_device, modules = self._states
        now = noise_of(self.cell)
        with torch.random.fork_rng([self._device] if on_device is not None else []):
            torch.set_rng_state(cpu)
            if on_device is not None:
                torch.cuda.set_rng_state(on_device, self._device)
            set_noise(self.cell, modules)
            try:
                yield
            finally:
                set_noise(self.cell, now)
