"""Rows of padded sequences to the packed rows of steps, and back: on a CPU in one copy each."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from throughtime.backends import numba
from throughtime.backends._memory import empty
from throughtime.backends._order import Order


def can_move() -> bool:
    """Whether there is machine code for it."""
    return numba.is_installed()


class Moves:
    """The rows of a batch of padded sequences to the order of the loop and back.

    From the first step of a sequence to that of the next it is `row_step` rows, from a step to the next `time_step`.
    `positions` says where all packed rows lie among the padded ones, if torch has to move them.
    """

    def __init__(
        self,
        order: Order,
        positions: Callable[[], Tensor],
        *,
        time: int,
        row_step: int,
        time_step: int,
        backwards: bool,
    ) -> None:
        self.order, self._positions = order, positions
        self._padded = len(order.rows) * time
        self._frame = (*order.addresses, int(backwards), row_step, time_step, time)

    def pack(self, padded: Tensor) -> Tensor:
        """The rows of all steps [N, ...] of `padded` [B T, ...]."""
        if padded.requires_grad and torch.is_grad_enabled():
            packed: Tensor = _Pack.apply(self, padded)  # type: ignore[no-untyped-call]
            return packed
        if not _has_memory(padded):
            return padded.index_select(0, self._positions())
        padded = padded.resolve_neg().contiguous()
        packed = empty((self.order.total, *padded.shape[1:]), padded.dtype, padded.device)
        self._move(packed, padded, unpack=False)
        return packed

    def unpack(self, packed: Tensor) -> Tensor:
        """The reverse, with zeros past the ends of sequences."""
        if packed.requires_grad and torch.is_grad_enabled():
            padded: Tensor = _Unpack.apply(self, packed)  # type: ignore[no-untyped-call]
            return padded
        if not _has_memory(packed):
            return packed.new_zeros(self._padded, *packed.shape[1:]).index_add(0, self._positions(), packed)
        packed = packed.resolve_neg().contiguous()
        padded = torch.empty(self._padded, *packed.shape[1:], dtype=packed.dtype, device="cpu")
        self._move(packed, padded, unpack=True)
        return padded

    def _move(self, packed: Tensor, padded: Tensor, *, unpack: bool) -> None:
        size = packed.dtype.itemsize * math.prod(packed.shape[1:])
        head = (packed.data_ptr(), padded.data_ptr(), *self._frame)
        shards = self._shards(size * self.order.total)
        numba.move([array("q", (*head, first, last, size, int(unpack))) for first, last in shards])

    def _shards(self, nbytes: int) -> list[tuple[int, int]]:
        """Ranges of rows with about as many steps, for each thread that is worth it."""
        count = min(torch.get_num_threads(), nbytes // numba.WORTH_A_THREAD)
        if count <= 1:
            return [(0, len(self.order.length))]
        steps = np.cumsum(self.order.length)
        cuts = np.searchsorted(steps, steps[-1] * np.arange(1, count) / count).tolist()
        return list(zip([0, *cuts], [*cuts, len(self.order.length)], strict=True))


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
