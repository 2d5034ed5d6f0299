"""Rows of padded sequences to the packed rows of steps, and back: on a CPU in one copy each."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from throughtime.backends import numba
from throughtime.backends._memory import empty

Places = NDArray[np.int64]


def can_move() -> bool:
    """Whether there is machine code for it."""
    return numba.is_installed()


class Moves:
    """Where the rows of a batch of padded sequences lie, in the order of the loop: longest first.

    `begin` is the place of the first step of each row among all padded rows, `time_step` the distance to the next.
    `positions` says where all packed rows lie among the padded ones, if torch has to move them.
    """

    def __init__(
        self,
        begin: Places,
        length: Places,
        active: Places,
        positions: Callable[[], Tensor],
        *,
        time: int,
        time_step: int,
        backwards: bool,
    ) -> None:
        self._positions = positions
        self._begin, self._length = np.ascontiguousarray(begin), np.ascontiguousarray(length)
        self._offset = np.cumsum(active) - active
        self._total = int(length.sum())
        self._time, self._time_step, self._backwards = time, time_step, backwards

    def pack(self, padded: Tensor) -> Tensor:
        """The rows of all steps [N, ...] of `padded` [B T, ...]."""
        if padded.requires_grad and torch.is_grad_enabled():
            packed: Tensor = _Pack.apply(self, padded)  # type: ignore[no-untyped-call]
            return packed
        if not _has_memory(padded):
            return padded.index_select(0, self._positions())
        padded = padded.resolve_neg().contiguous()
        packed = empty((self._total, *padded.shape[1:]), padded.dtype, padded.device)
        self._move(packed, padded, unpack=False)
        return packed

    def unpack(self, packed: Tensor) -> Tensor:
        """The reverse, with zeros past the ends of sequences."""
        if packed.requires_grad and torch.is_grad_enabled():
            padded: Tensor = _Unpack.apply(self, packed)  # type: ignore[no-untyped-call]
            return padded
        count = len(self._begin) * self._time
        if not _has_memory(packed):
            return packed.new_zeros(count, *packed.shape[1:]).index_add(0, self._positions(), packed)
        packed = packed.resolve_neg().contiguous()
        padded = torch.empty(count, *packed.shape[1:], dtype=packed.dtype, device="cpu")
        self._move(packed, padded, unpack=True)
        return padded

    def _move(self, packed: Tensor, padded: Tensor, *, unpack: bool) -> None:
        size = packed.dtype.itemsize * math.prod(packed.shape[1:])
        tables = (self._offset.ctypes.data, self._begin.ctypes.data, self._length.ctypes.data)
        ways = (int(self._backwards), self._time_step, self._time)
        frames = [
            array("q", (packed.data_ptr(), padded.data_ptr(), *tables, *ways, first, last, size, int(unpack)))
            for first, last in self._shards(size * self._total)
        ]
        numba.move(frames)

    def _shards(self, nbytes: int) -> list[tuple[int, int]]:
        """Ranges of rows with about as many steps, for each thread that is worth it."""
        count = max(1, min(torch.get_num_threads(), nbytes // numba.WORTH_A_THREAD))
        if count == 1:
            return [(0, len(self._length))]
        steps = np.cumsum(self._length)
        cuts = np.searchsorted(steps, steps[-1] * np.arange(1, count) / count).tolist()
        return list(zip([0, *cuts], [*cuts, len(self._length)], strict=True))


def _has_memory(tensor: Tensor) -> bool:
    """Whether there is memory to copy: a batch of gradients that torch computes at once has none of its own."""
    try:
        tensor.data_ptr()
    except RuntimeError:
        return False
    return True


class _Pack(torch.autograd.Function):
    """`Moves.pack`; its gradient is `Moves.unpack`."""

    @staticmethod
    def forward(ctx: Any, moves: Moves, padded: Tensor) -> Tensor:
        ctx.moves = moves
        return moves.pack(padded.detach())

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, Tensor]:
        return None, ctx.moves.unpack(gradient)


class _Unpack(torch.autograd.Function):
    """`Moves.unpack`; its gradient is `Moves.pack`."""

    @staticmethod
    def forward(ctx: Any, moves: Moves, packed: Tensor) -> Tensor:
        ctx.moves = moves
        return moves.unpack(packed.detach())

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, Tensor]:
        return None, ctx.moves.pack(gradient)


def shifted(stream: Tensor, initial: Tensor, active: Tensor, offset: Tensor) -> Tensor | None:
    """For every packed row the row of the step before, of `initial` for the first step; None where torch must do it."""
    if stream.device.type != "cpu" or not numba.is_installed():
        return None
    stream = stream.resolve_neg().contiguous()
    out = empty(stream.shape, stream.dtype, stream.device)
    first = int(active[0])
    out[:first] = initial[:first]
    size = stream.dtype.itemsize * math.prod(stream.shape[1:])
    numba.shift(
        array("q", (stream.data_ptr(), out.data_ptr(), offset.data_ptr(), active.data_ptr(), len(active), size))
    )
    return out
