"""The positions of the rows of every step in a buffer of all rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from throughtime._torch_internals import current_raw_stream
from throughtime.layout.shared_zeros import are_shared_zeros

_captured: list[Tensor] = []
"""Pinned memory that captured CUDA graphs copy from at every replay."""


def sent(tensor: Tensor, device: torch.device) -> Tensor:
    """A tensor of the CPU on a device; the copy to a GPU is asynchronous."""
    if device.type != "cuda":
        return tensor.to(device)
    pinned = tensor.pin_memory()
    if torch.cuda.is_current_stream_capturing():
        _captured.append(pinned)
    return pinned.to(device, non_blocking=True)


def sent_once(tables: dict[Any, Tensor], name: Any, make: Callable[[], Tensor], device: torch.device) -> Tensor:
    """The table of a name on a device, made and copied at the first use.

    Once for each CUDA stream, because another stream could read the table before the copy is done. A CUDA graph that is
    being captured contains a copy of its own.
    """
    stream = 0
    if device.type == "cuda":
        if torch.cuda.is_current_stream_capturing():
            return sent(make(), device)
        stream = current_raw_stream(device.index)
    key = (name, device, stream)
    found = tables.get(key)
    if found is None:
        # Not an inference tensor, even if the first call is inference: later calls may train.
        with torch.inference_mode(False):
            found = tables[key] = sent(make(), device)
    return found


@dataclass(frozen=True)
class StepLayout:
    """The positions of the rows of every step: row r of step t is at `offset[t] + r * row_stride`.

    `active` and `offset` are contiguous int64 tensors [T] on the CPU; `active[t]` rows run at step t, never more than
    at the step before. `row_stride` is 1 for packed or time-major rows, T for a dense batch-major batch. Row r of
    a step is row `order[r]` of every state; if that is None, it is row r.
    """

    active: Tensor
    offset: Tensor
    row_stride: int
    batch_size: int
    order: Tensor | None = None

    def ordered(self, order: Tensor) -> StepLayout:
        """The same for states in another order; cached tables are shared."""
        steps = object.__new__(StepLayout)
        vars(steps).update(vars(self), tables=self.tables, counts=self.counts, starts=self.starts, order=order)
        return steps

    def sorted(self, state: Tensor) -> Tensor:
        """The rows of a state in the order of the steps."""
        if self.order is None or are_shared_zeros(state):
            return state
        return state.index_select(0, self._order_on(state.device))

    def unsorted(self, state: Tensor) -> Tensor:
        """The rows of a state in its own order."""
        if self.order is None:
            return state
        return torch.zeros_like(state).index_copy(0, self._order_on(state.device), state)

    def _order_on(self, device: torch.device) -> Tensor:
        assert self.order is not None
        order = self.order
        if order.device == device:
            return order
        return sent_once(self.tables, ("order", order.numpy().tobytes()), lambda: order, device)

    @cached_property
    def counts(self) -> list[int]:
        """The number of rows of each step."""
        counts: list[int] = self.active.tolist()
        return counts

    @cached_property
    def starts(self) -> list[int]:
        """The position of the first row of each step."""
        starts: list[int] = self.offset.tolist()
        return starts

    @cached_property
    def tables(self) -> dict[Any, Tensor]:
        """Tables of these steps, on devices too: the backward pass reads them again."""
        return {}

    @cached_property
    def total(self) -> int:
        """The number of rows of all steps: the sum of the lengths."""
        return sum(self.counts)

    @cached_property
    def lengths(self) -> list[int]:
        """The number of steps of each row."""
        active = self.active.numpy()
        lengths: list[int] = (
            len(active) - active[::-1].searchsorted(np.arange(self.batch_size), side="right")
        ).tolist()
        return lengths

    @cached_property
    def cuts(self) -> dict[int, list[tuple[int, int]]]:
        """Ranges of rows by the number of threads; both passes share them."""
        return {}

    @property
    def is_full(self) -> bool:
        """Whether all rows run at all steps."""
        return self.counts[-1] == self.batch_size

    @property
    def is_ragged(self) -> bool:
        """Whether rows end at different steps: then they are packed, step by step."""
        return self.row_stride == 1 and self.counts[-1] != self.counts[0]

    def block(self, first: int, last: int) -> tuple[StepLayout, slice]:
        """Steps `first` to `last`, not included, as a layout of their own, and the slice of their rows.

        Requires the rows of each step to be contiguous.
        """
        assert self.row_stride == 1
        start = min(self.starts[first], self.starts[last - 1])
        active, offset = self.active[first:last], self.offset[first:last] - start
        return StepLayout(active, offset, 1, self.counts[first]), slice(start, start + sum(self.counts[first:last]))

    def positions(self, step: int) -> Tensor:
        """The positions of the rows of one step."""
        return self.starts[step] + self.row_stride * torch.arange(self.counts[step])

    def by_step(self, device: torch.device) -> Tensor:
        """For each row its index when all steps are concatenated."""
        return torch.argsort(torch.cat([self.positions(step) for step in range(len(self.counts))])).to(device)

    def rows(self, stream: Tensor, step: int) -> Tensor:
        """The rows of one step, as a view."""
        start, count = self.starts[step], self.counts[step]
        if self.row_stride == 1:
            return stream[start : start + count]
        return stream[start : start + (count - 1) * self.row_stride + 1 : self.row_stride]

    def split(self, stream: Tensor) -> list[Tensor]:
        """The rows of every step, contiguous: some torch operations rely on that without a check."""
        if self.row_stride == 1 and self.starts[0] == 0:
            return list(stream.split(self.counts))
        if self.row_stride == 1:
            return [self.rows(stream, step) for step in range(len(self.counts))]
        by_time = stream.unflatten(0, (self.batch_size, self.row_stride)).transpose(0, 1).contiguous()
        return [by_time[start] for start in self.starts]
