"""Rows of padded sequences to the packed rows of steps, and back: on a CPU in one copy each."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from throughtime.layout.length_sort import LengthSort
from throughtime.native import pack_rows
from throughtime.native.caching_allocator import as_contiguous, empty
from throughtime.native.threads import split_rows
from throughtime.native.toolchain import llvm

Leaves = Sequence[Tensor | None]
"""Tensors, or gradients of some as far as there are any."""


def can_move() -> bool:
    """Whether there is machine code for it."""
    return llvm.is_installed()


class Packing:
    """The rows of a batch of padded sequences to the order of the loop and back.

    Padded tensors begin with the axes `leading`. From the first step of a sequence to that of the next it is `row_step`
    rows, from a step to the next `time_step`. `positions` says where all packed rows lie among the padded ones, if
    torch has to move them.
    """

    def __init__(
        self,
        order: LengthSort,
        positions: Callable[[], Tensor],
        leading: tuple[int, int],
        *,
        row_step: int,
        time_step: int,
        backwards: bool,
    ) -> None:
        self.order, self._positions, self._leading = order, positions, leading
        batch = len(order.rows)
        time = math.prod(leading) // batch if batch else 0
        self._frame = (*order.addresses, int(backwards), row_step, time_step, time)
        self._state_frame = (*order.addresses, 0, 1, 1, 0)

    def pack(self, padded: Tensor) -> Tensor:
        """The rows of all steps [N, ...] of `padded`."""
        packed: Tensor = self.enter([padded], [])[0][0]
        return packed

    def unpack(self, packed: Tensor) -> Tensor:
        """The reverse, with zeros past the ends of sequences."""
        padded: Tensor = self.leave([packed], [])[0][0]
        return padded

    def enter(self, rows: Leaves, state: Leaves) -> tuple[list[Any], list[Any]]:
        """Padded rows packed, and a state in the order of the loop: all of them in one go."""
        go = _RowCopy()
        packed = [None if leaf is None else self._pack(leaf, go) for leaf in rows]
        inside = [None if leaf is None else self._reorder(leaf, go, unpack=False) for leaf in state]
        go.run()
        return packed, inside

    def leave(self, rows: Leaves, state: Leaves) -> tuple[list[Any], list[Any]]:
        """The reverse."""
        go = _RowCopy()
        padded = [None if leaf is None else self._unpack(leaf, go) for leaf in rows]
        outside = [None if leaf is None else self._reorder(leaf, go, unpack=True) for leaf in state]
        go.run()
        return padded, outside

    def _pack(self, padded: Tensor, go: _RowCopy) -> Tensor:
        if padded.requires_grad and torch.is_grad_enabled():
            packed: Tensor = _Pack.apply(self, padded)  # type: ignore[no-untyped-call]
            return packed
        source = go.source(padded)
        if source is None:
            return padded.reshape(-1, *padded.shape[2:]).index_select(0, self._positions())
        packed = empty((self.order.total, *padded.shape[2:]), padded.dtype, padded.device)
        go.add(*self._frames(packed, source))
        return packed

    def _unpack(self, packed: Tensor, go: _RowCopy) -> Tensor:
        if packed.requires_grad and torch.is_grad_enabled():
            padded: Tensor = _Unpack.apply(self, packed)  # type: ignore[no-untyped-call]
            return padded
        source = go.source(packed)
        if source is None:
            blank = packed.new_zeros(math.prod(self._leading), *packed.shape[1:])
            return blank.index_add(0, self._positions(), packed).reshape(*self._leading, *packed.shape[1:])
        padded = torch.empty(size=(*self._leading, *packed.shape[1:]), dtype=packed.dtype, device="cpu")
        go.add(*self._frames(source, padded, unpack=True))
        return padded

    def _reorder(self, leaf: Tensor, go: _RowCopy, *, unpack: bool) -> Tensor:
        if self.order.is_sorted:
            return leaf
        plain = not (leaf.requires_grad and torch.is_grad_enabled()) and leaf.device.type == "cpu"
        source = go.source(leaf) if plain else None
        if source is None:
            return self.order.unsort(leaf) if unpack else self.order.sort(leaf)
        moved = torch.empty(size=leaf.shape, dtype=leaf.dtype, device="cpu")
        packed, padded = (source, moved) if unpack else (moved, source)
        head, size = (packed.data_ptr(), padded.data_ptr()), leaf.dtype.itemsize * math.prod(leaf.shape[1:])
        go.add(array("q", (*head, *self._state_frame, 0, len(leaf), size, int(unpack))))
        return moved

    def _frames(self, packed: Tensor, padded: Tensor, *, unpack: bool = False) -> Iterator[array[int]]:
        size = packed.dtype.itemsize * math.prod(packed.shape[1:])
        head = (packed.data_ptr(), padded.data_ptr(), *self._frame)
        for first, last in self._shards(size * self.order.total):
            yield array("q", (*head, first, last, size, int(unpack)))

    def _shards(self, nbytes: int) -> list[tuple[int, int]]:
        """Ranges of rows with about as many steps, for each thread that is worth it."""
        count = min(torch.get_num_threads(), nbytes // pack_rows.thread_bytes.value)
        if count <= 1:
            return [(0, len(self.order.rows))]
        cuts = self.order.steps.cuts
        if count not in cuts:
            cuts[count] = split_rows.cut_rows(self.order.steps.lengths, count)
        # Sequences without a step are in none of the ranges, but have their padding.
        *most, (first, _) = cuts[count]
        return [*most, (first, len(self.order.rows))]


class _RowCopy:
    """Moves that are made together, once all of them are known."""

    def __init__(self) -> None:
        self._frames: list[array[int]] = []
        self._sources: list[Tensor] = []
        self._threads = 1

    def source(self, tensor: Tensor) -> Tensor | None:
        """The tensor side by side in memory; None if it has none: a batch of gradients that torch computes at once."""
        try:
            tensor.data_ptr()
        except RuntimeError:
            return None
        tensor = as_contiguous(tensor)
        # As long as it is read.
        self._sources.append(tensor)
        return tensor

    def add(self, *frames: array[int]) -> None:
        """One move in as many parts as threads are worth it."""
        self._frames += frames
        self._threads = max(self._threads, len(frames))

    def run(self) -> None:
        if self._frames:
            pack_rows.pack_rows(self._frames, self._threads)


class _Pack(torch.autograd.Function):
    """`Moves.pack`; its gradient is `Moves.unpack`."""

    @staticmethod
    def forward(ctx: Any, moves: Packing, padded: Tensor) -> Tensor:
        ctx.moves = moves
        return moves.pack(padded.detach())

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, Tensor]:
        return None, ctx.moves.unpack(gradient)


class _Unpack(torch.autograd.Function):
    """`Moves.unpack`; its gradient is `Moves.pack`."""

    @staticmethod
    def forward(ctx: Any, moves: Packing, packed: Tensor) -> Tensor:
        ctx.moves = moves
        return moves.unpack(packed.detach())

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, Tensor]:
        return None, ctx.moves.pack(gradient)
