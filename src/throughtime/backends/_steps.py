"""Where the rows of every step lie in a stream."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from throughtime.backends._memory import empty

_captured: list[Tensor] = []
"""What graphs that somebody has recorded copy from, at every replay."""


def sent(tensor: Tensor, device: torch.device) -> Tensor:
    """A tensor of the CPU on a device; a GPU fetches it when it gets there, and nobody waits."""
    if device.type != "cuda":
        return tensor.to(device)
    pinned = tensor.pin_memory()
    if torch.cuda.is_current_stream_capturing():
        _captured.append(pinned)
    return pinned.to(device, non_blocking=True)


@dataclass(frozen=True)
class Steps:
    """Where the rows of every step lie in a stream: row r of step t is at `offset[t] + r * row_stride`.

    `active` and `offset` are contiguous int64 tensors [T] on the CPU; `active[t]` rows are alive at step t, never more
    than at the step before. `row_stride` is 1 for packed or time-major rows, T for a dense batch-major batch.
    """

    active: Tensor
    offset: Tensor
    row_stride: int
    batch_size: int

    @cached_property
    def counts(self) -> list[int]:
        """The rows alive at each step."""
        counts: list[int] = self.active.tolist()
        return counts

    @cached_property
    def starts(self) -> list[int]:
        """Where the first row of each step lies."""
        starts: list[int] = self.offset.tolist()
        return starts

    @cached_property
    def tables(self) -> dict[Any, Tensor]:
        """What a backend has worked out about these steps and sent to a device: the backward pass needs it again."""
        return {}

    @cached_property
    def total(self) -> int:
        """The number of rows of all steps: the sum of the lengths."""
        return sum(self.counts)

    @cached_property
    def cuts(self) -> dict[int, list[tuple[int, int]]]:
        """Ranges of rows for so many threads; the walks forward and back share them."""
        return {}

    @property
    def is_ragged(self) -> bool:
        """Whether rows end at different steps: then they lie packed, step by step."""
        return self.row_stride == 1 and self.counts[-1] != self.counts[0]

    def block(self, first: int, last: int) -> tuple[Steps, slice]:
        """Steps `first` to `last`, not included, as steps of their own, and which rows of a stream are theirs.

        Only where the rows of one step lie side by side.
        """
        assert self.row_stride == 1
        start = min(self.starts[first], self.starts[last - 1])
        active, offset = self.active[first:last], self.offset[first:last] - start
        return Steps(active, offset, 1, self.counts[first]), slice(start, start + sum(self.counts[first:last]))

    def positions(self, step: int) -> Tensor:
        """Where the rows of one step lie."""
        return self.starts[step] + self.row_stride * torch.arange(self.counts[step])

    def rows(self, stream: Tensor, step: int) -> Tensor:
        """The rows of one step, as a view."""
        start, count = self.starts[step], self.counts[step]
        if self.row_stride == 1:
            return stream[start : start + count]
        return stream[start : start + (count - 1) * self.row_stride + 1 : self.row_stride]

    def split(self, stream: Tensor) -> list[Tensor]:
        """The rows of every step, side by side in memory: some operations of torch silently rely on that."""
        if self.row_stride == 1 and self.starts[0] == 0:
            return list(stream.split(self.counts))
        if self.row_stride == 1:
            return [self.rows(stream, step) for step in range(len(self.counts))]
        by_time = stream.unflatten(0, (self.batch_size, self.row_stride)).transpose(0, 1).contiguous()
        return [by_time[start] for start in self.starts]

    def previous(self, stream: Tensor, initial: Tensor) -> Tensor:
        """For every row of every step the row of the step before it; for the first step, that of `initial`."""
        first = self.counts[0]
        if len(self.counts) == 1:
            return initial[:first]
        ahead = self.starts[0] == 0
        shifted = empty(stream.shape, stream.dtype, stream.device)
        if self.row_stride != 1:
            folded, start = stream.view(self.batch_size, -1, *stream.shape[1:]), initial.unsqueeze(1)
            parts = [start, folded[:, :-1]] if ahead else [folded[:, 1:], start]
            torch.cat(parts, 1, out=shifted.view(folded.shape))
            return shifted
        if self.counts[-1] == first:
            # Dense and time-major: in reverse, the step before lies one step later.
            parts = [initial[:first], stream[:-first]] if ahead else [stream[first:], initial[:first]]
            return torch.cat(parts, out=shifted)
        shifted[:first] = initial[:first]
        torch.index_select(stream, 0, sent(self._index_before, stream.device), out=shifted[first:])
        return shifted

    @cached_property
    def _index_before(self) -> Tensor:
        """For every packed row but those of the first step, where the row of the step before lies."""
        active = self.active.numpy()
        return torch.from_numpy(np.arange(active[0], self.total) - np.repeat(active[:-1], active[1:]))
