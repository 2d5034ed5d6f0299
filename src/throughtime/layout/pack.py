"""Packing: from the tensors of a caller to the rows of a loop, and back.

A loop runs on rows [N, ...]: one for each real step of each sequence. There is one `Packing` for each way of storing a
batch; what a call uses is decided once, by its schedule (`unroll/_schedule.py`).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from throughtime.layout.length_sort import LengthSort
from throughtime.native import pack_rows
from throughtime.native.caching_allocator import as_contiguous, empty
from throughtime.native.threads import split_rows
from throughtime.native.toolchain import llvm

Leaves = Sequence[Tensor | None]
"""Tensors, or gradients of tensors: None where there is none."""
LeafLists = tuple[list[Any], list[Any]]
"""The leaves of sequences and those of a state: tensors, or None where None was given."""


class Packing(ABC):
    """Between the tensors of a caller and those of a loop: sequences and rows [N, ...], a state in both orders.

    The gradient of `pack` is `unpack`, and the reverse, so a backward pass packs the gradients of outputs and unpacks
    those of inputs. If it `copies`, packed tensors are new ones; otherwise they are views. `leading` are the first two
    axes of sequences that are stored in the order of the rows; None for other sequences.
    """

    copies: ClassVar[bool] = False
    leading: tuple[int, int] | None = None

    @abstractmethod
    def pack(self, sequences: Leaves, state: Leaves) -> LeafLists:
        """The rows of sequences, and a state in the order of the loop."""

    @abstractmethod
    def unpack(self, rows: Leaves, state: Leaves) -> LeafLists:
        """Sequences of rows, zeros past their ends, and a state in the order of the batch."""


class RowsAsGiven(Packing):
    """The caller has packed the rows."""

    def pack(self, sequences: Leaves, state: Leaves) -> LeafLists:
        return list(sequences), list(state)

    def unpack(self, rows: Leaves, state: Leaves) -> LeafLists:
        return list(rows), list(state)


AS_GIVEN = RowsAsGiven()


class FlattenedAxes(Packing):
    """Sequences of one length: batch and time become one axis, and nothing is copied."""

    def __init__(self, leading: tuple[int, int]) -> None:
        self.leading: tuple[int, int] = leading

    def pack(self, sequences: Leaves, state: Leaves) -> LeafLists:
        return [None if leaf is None else leaf.flatten(0, 1) for leaf in sequences], list(state)

    def unpack(self, rows: Leaves, state: Leaves) -> LeafLists:
        sequences = [None if leaf is None else leaf.unflatten(0, self.leading) for leaf in rows]
        if not torch.is_grad_enabled():
            # An autograd function must not return views, or its results could not be changed in place.
            sequences = [None if leaf is None else leaf.detach() for leaf in sequences]
        return sequences, list(state)


def has_row_copy() -> bool:
    """Whether there is native code to copy rows."""
    return llvm.is_installed()


class LengthPacking(Packing):
    """Padded sequences on a CPU: one copy packs their real rows, sorted by length, and one unpacks them.

    Padded tensors begin with the axes `shape`. The first steps of two sequences are `row_step` rows apart, two steps of
    a sequence `time_step`. `positions` are the indices of packed rows among the padded ones, for tensors that torch has
    to copy.
    """

    copies = True

    def __init__(
        self,
        order: LengthSort,
        positions: Callable[[], Tensor],
        shape: tuple[int, int],
        *,
        row_step: int,
        time_step: int,
        backwards: bool,
    ) -> None:
        self.order, self._positions, self._shape = order, positions, shape
        batch = len(order.rows)
        time = math.prod(shape) // batch if batch else 0
        self._frame = (*order.addresses, int(backwards), row_step, time_step, time)
        self._state_frame = (*order.addresses, 0, 1, 1, 0)

    def pack(self, sequences: Leaves, state: Leaves) -> LeafLists:
        copy = _RowCopy()
        packed = [None if leaf is None else self._pack(leaf, copy) for leaf in sequences]
        inside = [None if leaf is None else self._reorder(leaf, copy, unpack=False) for leaf in state]
        copy.run()
        return packed, inside

    def unpack(self, rows: Leaves, state: Leaves) -> LeafLists:
        copy = _RowCopy()
        padded = [None if leaf is None else self._unpack(leaf, copy) for leaf in rows]
        outside = [None if leaf is None else self._reorder(leaf, copy, unpack=True) for leaf in state]
        copy.run()
        return padded, outside

    def pack_one(self, padded: Tensor) -> Tensor:
        """The rows of one tensor."""
        packed: Tensor = self.pack([padded], [])[0][0]
        return packed

    def unpack_one(self, packed: Tensor) -> Tensor:
        """The padded tensor of the rows of one."""
        padded: Tensor = self.unpack([packed], [])[0][0]
        return padded

    def _pack(self, padded: Tensor, copy: _RowCopy) -> Tensor:
        if padded.requires_grad and torch.is_grad_enabled():
            packed: Tensor = _Pack.apply(self, padded)  # type: ignore[no-untyped-call]
            return packed
        source = copy.source(padded)
        if source is None:
            return padded.reshape(-1, *padded.shape[2:]).index_select(0, self._positions())
        packed = empty((self.order.total, *padded.shape[2:]), padded.dtype, padded.device)
        copy.add(*self._frames(packed, source))
        return packed

    def _unpack(self, packed: Tensor, copy: _RowCopy) -> Tensor:
        if packed.requires_grad and torch.is_grad_enabled():
            padded: Tensor = _Unpack.apply(self, packed)  # type: ignore[no-untyped-call]
            return padded
        source = copy.source(packed)
        if source is None:
            blank = packed.new_zeros(math.prod(self._shape), *packed.shape[1:])
            return blank.index_add(0, self._positions(), packed).reshape(*self._shape, *packed.shape[1:])
        padded = torch.empty(size=(*self._shape, *packed.shape[1:]), dtype=packed.dtype, device="cpu")
        copy.add(*self._frames(source, padded, unpack=True))
        return padded

    def _reorder(self, leaf: Tensor, copy: _RowCopy, *, unpack: bool) -> Tensor:
        if self.order.is_sorted:
            return leaf
        plain = not (leaf.requires_grad and torch.is_grad_enabled()) and leaf.device.type == "cpu"
        source = copy.source(leaf) if plain else None
        if source is None:
            return self.order.unsort(leaf) if unpack else self.order.sort(leaf)
        moved = torch.empty(size=leaf.shape, dtype=leaf.dtype, device="cpu")
        packed, padded = (source, moved) if unpack else (moved, source)
        head, size = (packed.data_ptr(), padded.data_ptr()), leaf.dtype.itemsize * math.prod(leaf.shape[1:])
        copy.add(array("q", (*head, *self._state_frame, 0, len(leaf), size, int(unpack))))
        return moved

    def _frames(self, packed: Tensor, padded: Tensor, *, unpack: bool = False) -> Iterator[array[int]]:
        size = packed.dtype.itemsize * math.prod(packed.shape[1:])
        head = (packed.data_ptr(), padded.data_ptr(), *self._frame)
        for first, last in self._shards(size * self.order.total):
            yield array("q", (*head, first, last, size, int(unpack)))

    def _shards(self, nbytes: int) -> list[tuple[int, int]]:
        """Ranges of rows with about equal numbers of steps, one for each thread that pays off."""
        count = min(torch.get_num_threads(), nbytes // pack_rows.thread_bytes.value)
        if count <= 1:
            return [(0, len(self.order.rows))]
        cuts = self.order.steps.cuts
        if count not in cuts:
            cuts[count] = split_rows.cut_rows(self.order.steps.lengths, count)
        # Sequences without a step are in none of the ranges, but their padding has to be written.
        *most, (first, _) = cuts[count]
        return [*most, (first, len(self.order.rows))]


class _RowCopy:
    """Copies of rows, collected first and then made by one call."""

    def __init__(self) -> None:
        self._frames: list[array[int]] = []
        self._sources: list[Tensor] = []
        self._threads = 1

    def source(self, tensor: Tensor) -> Tensor | None:
        """The tensor, contiguous; None if it has no memory, as a batch of gradients that torch computes together."""
        try:
            tensor.data_ptr()
        except RuntimeError:
            return None
        tensor = as_contiguous(tensor)
        # Held until the copy is made.
        self._sources.append(tensor)
        return tensor

    def add(self, *frames: array[int]) -> None:
        """One copy, in a part for each thread."""
        self._frames += frames
        self._threads = max(self._threads, len(frames))

    def run(self) -> None:
        if self._frames:
            pack_rows.pack_rows(self._frames, self._threads)


class _Pack(torch.autograd.Function):
    """`LengthPacking.pack_one`; its gradient is `unpack_one`."""

    @staticmethod
    def forward(ctx: Any, packing: LengthPacking, padded: Tensor) -> Tensor:
        ctx.packing = packing
        return packing.pack_one(padded.detach())

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, Tensor]:
        return None, ctx.packing.unpack_one(gradient)


class _Unpack(torch.autograd.Function):
    """`LengthPacking.unpack_one`; its gradient is `pack_one`."""

    @staticmethod
    def forward(ctx: Any, packing: LengthPacking, packed: Tensor) -> Tensor:
        ctx.packing = packing
        return packing.unpack_one(packed.detach())

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, Tensor]:
        return None, ctx.packing.pack_one(gradient)
