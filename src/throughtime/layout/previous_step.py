"""States of the previous step: for every row the row of the step before, and for the first step that of `initial`.

A backward pass reads the state that each step started from, and the forward pass saves the state after each step.
`previous` makes a shifted copy; `PreviousStep` only holds the positions, for native code that can read in place.
"""

from __future__ import annotations

import math
from array import array
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from throughtime.compiler import Value
from throughtime.layout.step_layout import StepLayout, sent_once
from throughtime.native import pack_rows
from throughtime.native.caching_allocator import as_contiguous, empty
from throughtime.native.gemm import weight_gradient
from throughtime.native.toolchain import llvm

LaggedStreams = dict[Value, tuple[Tensor, Tensor]]
"""Buffers that a loop reads at the rows of the previous step, each with the rows that its first step reads."""


class PreviousStep(NamedTuple):
    """A buffer read at the rows of the previous step, at the first step `initial`: positions instead of a copy.

    `before` is the position of each row in the buffer, `~r` for row r of `initial`.
    """

    stream: Tensor
    initial: Tensor
    before: Tensor

    @property
    def shape(self) -> torch.Size:
        return self.stream.shape

    @property
    def device(self) -> torch.device:
        return self.stream.device

    def placed(self) -> weight_gradient.StridedRows:
        """The arguments of a native GEMM."""
        stream = self.stream
        width, size = stream.shape[1], stream.dtype.itemsize
        addresses = (self.before.data_ptr(), self.initial.data_ptr())
        return weight_gradient.StridedRows(stream.data_ptr(), width * size, width, *addresses)

    def tensor(self) -> Tensor:
        """The copy."""
        # Negative positions count from the end.
        return torch.cat([self.stream, self.initial.flip(0)])[self.before]

    @classmethod
    def of(cls, stream: Tensor, initial: Tensor, steps: StepLayout) -> PreviousStep:
        before = steps.tables.get("rows before")
        if before is None:
            before = torch.empty(steps.total, dtype=torch.int64, device="cpu")
            addresses = (table.data_ptr() for table in (before, steps.offset, steps.active))
            pack_rows.before(array("q", (*addresses, len(steps.active), steps.row_stride)))
            # Published when complete: another thread may read it.
            steps.tables["rows before"] = before
        return cls(as_contiguous(stream), as_contiguous(initial), before)


def previous(steps: StepLayout, stream: Tensor, initial: Tensor) -> Tensor:
    """For every row of every step the row of the step before it; for the first step, that of `initial`."""
    found = by_kernel(steps, stream, initial) if steps.is_ragged else None
    return by_torch(steps, stream, initial) if found is None else found


def by_kernel(steps: StepLayout, stream: Tensor, initial: Tensor) -> Tensor | None:
    """The same for packed rows by one native copy; None where torch has to copy."""
    if stream.device.type != "cpu" or not llvm.is_installed():
        return None
    stream, initial = as_contiguous(stream), as_contiguous(initial)
    out = empty(tuple(stream.shape), stream.dtype, stream.device)
    size = stream.dtype.itemsize * math.prod(stream.shape[1:])
    addresses = (leaf.data_ptr() for leaf in (stream, initial, out, steps.offset, steps.active))
    pack_rows.shift(array("q", (*addresses, len(steps.active), size)))
    return out


def by_torch(steps: StepLayout, stream: Tensor, initial: Tensor) -> Tensor:
    """The same for any rows by torch operations."""
    first = steps.counts[0]
    if len(steps.counts) == 1:
        return initial[:first]
    ahead = steps.starts[0] == 0
    shifted = empty(stream.shape, stream.dtype, stream.device)
    if steps.row_stride != 1:
        folded, start = stream.view(steps.batch_size, -1, *stream.shape[1:]), initial.unsqueeze(1)
        parts = [start, folded[:, :-1]] if ahead else [folded[:, 1:], start]
        torch.cat(parts, 1, out=shifted.view(folded.shape))
        return shifted
    if steps.counts[-1] == first:
        # Dense and time-major: in reverse, the previous step is stored after this one.
        parts = [initial[:first], stream[:-first]] if ahead else [stream[first:], initial[:first]]
        return torch.cat(parts, out=shifted)
    shifted[:first] = initial[:first]
    index = sent_once(steps.tables, "before", partial(_index_before, steps), stream.device)
    torch.index_select(stream, 0, index, out=shifted[first:])
    return shifted


def _index_before(steps: StepLayout) -> Tensor:
    """For every packed row but those of the first step, the position of its row in the previous step."""
    active = steps.active.numpy().astype(np.int32)
    return torch.from_numpy(np.arange(active[0], steps.total, dtype=np.int32) - np.repeat(active[:-1], active[1:]))
