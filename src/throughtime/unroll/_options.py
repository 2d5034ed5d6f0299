"""The options of an unroll: everything but the cell, the sequences and the state."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from functools import cached_property

import torch

from throughtime.runtime.offload.tensor_pages import is_swapped


@dataclass(frozen=True)
class UnrollOptions:
    """Options after their checks; `dynamic_rnn` documents them.

    Attributes:
        dtype: Of the outputs, and of a zero state; None takes that of the state.
        time_major: Whether padded sequences are [T, B, ...] instead of [B, T, ...].
        reverse: Run each sequence from its last step to its first.
        all_states: Return the state after every step too.
        parallel_iterations: Precompute at most this number of steps at a time; None for all.
        swap_memory: Offload the values saved for the backward pass to the host.
        checkpoint_every: Save the state only every `checkpoint_every` steps and recompute the rest; None saves all.
    """

    dtype: torch.dtype | None = None
    time_major: bool = False
    reverse: bool = False
    all_states: bool = False
    parallel_iterations: int | None = None
    swap_memory: bool = False
    checkpoint_every: int | None = None

    @cached_property
    def key(self) -> Hashable:
        """For a cache: hashed faster than the object, and computed once for options that are reused."""
        return tuple(vars(self).values())

    def cuts_time(self, device: torch.device) -> bool:
        """Whether an unroll on a device runs in chunks of time."""
        in_chunks = self.parallel_iterations is not None or self.checkpoint_every is not None
        return in_chunks or (self.swap_memory and is_swapped(device))
