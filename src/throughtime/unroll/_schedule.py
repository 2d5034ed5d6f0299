"""Which rows run at which step, and the conversion between a batch format and the rows of a loop."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from throughtime import _pytree
from throughtime._active_modes import intercepting_mode
from throughtime._pytree import Nest
from throughtime.backends.checked_cell import is_row_leaf
from throughtime.layout.length_sort import LengthSort
from throughtime.layout.pack import FlattenedAxes, LeafLists, Leaves, LengthPacking, Packing, has_row_copy
from throughtime.layout.shared_zeros import are_shared_zeros
from throughtime.layout.step_layout import StepLayout, sent
from throughtime.unroll._batch_format import BatchFormat, Packed, Padded, packed_lengths


class Schedule(Packing):
    """Which rows run at each step: sorted so that the rows of a step are the first ones of the step before.

    It packs with torch operations, which autograd and active modes see. `packing` does the same inside one operation,
    where that is possible.
    """

    copies = True

    def __init__(self, form: BatchFormat) -> None:
        self.form = form

    @property
    @abstractmethod
    def active(self) -> list[int]:
        """The number of rows that run at each step."""

    @property
    @abstractmethod
    def steps(self) -> StepLayout:
        """The positions of the rows of every step among all rows."""

    @abstractmethod
    def rows(self, leaf: Nest) -> Tensor:
        """The rows [N, ...] of all steps of `leaf`."""

    @abstractmethod
    def restore(self, rows: Tensor, fill: Tensor | None = None) -> Nest:
        """Rows of all steps in the format of the inputs; past the end of a sequence zeros, or its row of `fill`."""

    @abstractmethod
    def split(self, rows: Tensor) -> Sequence[Tensor]:
        """The rows of each step, from those of all steps."""

    def take(self, leaf: Nest) -> Sequence[Tensor]:
        """The rows of `leaf` for each step."""
        return self.split(self.rows(leaf))

    @abstractmethod
    def put(self, steps: Sequence[Tensor], fill: Tensor | None = None) -> Nest:
        """The rows of each step in the format of the inputs; past the end of a sequence zeros, or its row of `fill`."""

    @abstractmethod
    def packing(self, leaves: Sequence[Nest]) -> Packing | None:
        """What packs leaves like these inside an operation; None where torch operations have to."""

    def order(self) -> Tensor | None:
        """The index in the batch of each row of the loop, on any device; None if the order is the same."""
        return None

    @abstractmethod
    def sort(self, state: Nest) -> Nest:
        """A state in the order of the loop."""

    @abstractmethod
    def unsort(self, state: Nest) -> Nest:
        """A state in the order of the batch."""

    def pack(self, sequences: Leaves, state: Leaves) -> LeafLists:
        return [None if leaf is None else self.rows(leaf) for leaf in sequences], self.sort(list(state))

    def unpack(self, rows: Leaves, state: Leaves) -> LeafLists:
        return [None if leaf is None else self.restore(leaf) for leaf in rows], self.unsort(list(state))

    def unpack_states(self, states: Sequence[Any], final: Sequence[Tensor]) -> list[Any]:
        """The state after every step; past the end of a sequence it is the final one, in the order of the batch.

        Each of `states` is a tensor of the rows of all steps, or a list with the rows of each step. A leaf without rows
        has one value for each step.
        """
        return [self._unpack_state(leaf, last) for leaf, last in zip(states, final, strict=True)]

    def _unpack_state(self, leaf: Any, last: Tensor) -> Any:
        by_step = not isinstance(leaf, Tensor)
        if is_row_leaf(last):
            return self.put(leaf, fill=last) if by_step else self.restore(leaf, fill=last)
        return torch.cat([torch.stack(leaf) if by_step else leaf, last.expand(self.form.max_time - len(leaf))])


def make_schedule(
    form: BatchFormat, lengths: list[int] | None, *, reverse: bool = False, in_chunks: bool = False
) -> Schedule:
    """The schedule of a batch; lengths above T count as T, below 0 as 0. `reverse` starts at each sequence's end.

    With `in_chunks` the rows of consecutive steps are contiguous, so that time can be cut into chunks.
    """
    if lengths is None or (isinstance(form, Padded) and all(length >= form.max_time for length in lengths)):
        assert isinstance(form, Padded)
        return Dense(form, reverse, in_chunks=in_chunks)
    return Ragged(form, lengths, reverse)


class Dense(Schedule):
    """Every row runs at every step: nothing is sorted, and only chunks of batch-major sequences need a copy."""

    form: Padded

    def __init__(self, form: Padded, reverse: bool, *, in_chunks: bool = False) -> None:
        super().__init__(form)
        self._axis = form.time_axis
        self._direction = -1 if reverse else 1
        self._transposed = in_chunks and form.time_axis == 1
        self._packing = None if in_chunks else FlattenedAxes(form.leading)

    @property
    def active(self) -> list[int]:
        return [self.form.batch_size] * self.form.max_time

    @property
    def steps(self) -> StepLayout:
        together = self._transposed or self._axis == 0
        return _dense_steps(self.form.batch_size, self.form.max_time, together, self._direction)

    def rows(self, leaf: Tensor) -> Tensor:
        return self.form.rows(leaf.transpose(0, 1) if self._transposed else leaf)

    def restore(self, rows: Tensor, fill: Tensor | None = None) -> Tensor:
        if self._transposed:
            by_time: Tensor = rows.unflatten(0, (self.form.max_time, self.form.batch_size))
            return by_time.transpose(0, 1)
        return self.form.restore(rows)

    def split(self, rows: Tensor) -> Sequence[Tensor]:
        return self.restore(rows).unbind(self._axis)[:: self._direction]

    def put(self, steps: Sequence[Tensor], fill: Tensor | None = None) -> Tensor:
        return torch.stack(list(steps)[:: self._direction], self._axis)

    def packing(self, leaves: Sequence[Nest]) -> Packing | None:
        return self._packing

    def sort(self, state: Nest) -> Nest:
        return state

    def unsort(self, state: Nest) -> Nest:
        return state


@lru_cache(maxsize=256)
def _dense_steps(batch: int, time: int, together: bool, direction: int) -> StepLayout:
    """The steps of a dense batch, stored step by step (`together`) or sequence by sequence; cached for small calls."""
    with torch.inference_mode(False), torch.device("cpu"):
        offset = torch.arange(time) * (batch if together else 1)
        offset = offset if direction == 1 else offset.flip(0)
        return StepLayout(torch.full((time,), batch), offset, 1 if together else time, batch)


@lru_cache(maxsize=16)
def _packed_order(active: bytes) -> LengthSort:
    """The order of a packed batch; the layers of a stack share it, and its copies on devices."""
    lengths = packed_lengths(active)
    return LengthSort(lengths, max(lengths, default=0), by_native_code=True)


class Ragged(Schedule):
    """Rows sorted by length, longest first, and packed: padding is never read."""

    def __init__(self, form: BatchFormat, lengths: Sequence[int], reverse: bool) -> None:
        super().__init__(form)
        self._reverse = reverse
        # Whether native code sorts and copies the rows: not where an active mode has to see torch operations.
        self._is_quick = intercepting_mode() is None and has_row_copy()
        if isinstance(form, Packed) and self._is_quick:
            self._order = _packed_order(form.active)
        else:
            self._order = LengthSort(lengths, form.max_time, by_native_code=self._is_quick)
        # Packed sequences are stored step by step, which is the order of a loop that starts at their first steps.
        self._is_packed = isinstance(form, Packed) and not reverse
        self._on_device: dict[torch.device, Tensor] = {}

    @property
    def active(self) -> list[int]:
        # A step layout is made of tensors; an active mode must not see the operations that make it.
        active: list[int] = self._order.steps.counts if self._is_quick else self._order.active.tolist()
        return active

    @property
    def steps(self) -> StepLayout:
        return self._order.steps

    def rows(self, leaf: Nest) -> Tensor:
        if self._is_packed:
            return self.form.rows(leaf)
        packing = self.packing([leaf])
        if packing is not None:
            return packing.pack_one(leaf)
        rows = self.form.rows(leaf)
        return rows.index_select(0, self._positions(rows.device))

    def restore(self, rows: Tensor, fill: Tensor | None = None) -> Nest:
        if self._is_packed:
            return self.form.restore(rows)
        packing = self.packing([rows]) if fill is None else None
        if packing is not None:
            return packing.unpack_one(rows)
        positions = self._positions(rows.device)
        blank = self.form.blank(rows, fill)
        if fill is not None and blank is not None:
            return self.form.restore(blank.index_copy(0, positions, rows))
        blank = torch.zeros_like(rows) if blank is None else blank
        return self.form.restore(blank.index_copy_(0, positions, rows))

    def split(self, rows: Tensor) -> Sequence[Tensor]:
        return torch.split(rows, self.active)

    def put(self, steps: Sequence[Tensor], fill: Tensor | None = None) -> Nest:
        return self.restore(torch.cat(list(steps)), fill)

    def sort(self, state: Nest) -> Nest:
        return _pytree.map_leaves(lambda leaf: self._reorder(leaf, inverse=False), state)

    def unsort(self, state: Nest) -> Nest:
        return _pytree.map_leaves(lambda leaf: self._reorder(leaf, inverse=True), state)

    def order(self) -> Tensor | None:
        if isinstance(self.form, Packed):
            return self.form.order
        return None if self._order.is_sorted else torch.from_numpy(self._order.rows)

    def _reorder(self, leaf: Any, *, inverse: bool) -> Any:
        if not is_row_leaf(leaf) or are_shared_zeros(leaf):
            return leaf
        if isinstance(self.form, Packed):
            index = self.form.inverse if inverse else self.form.order
            return leaf if index is None else leaf.index_select(0, index.to(leaf.device))
        return self._order.unsort(leaf) if inverse else self._order.sort(leaf)

    def packing(self, leaves: Sequence[Nest]) -> LengthPacking | None:
        if not self._is_quick or not isinstance(self.form, Padded):
            return None
        on_cpu = all(type(leaf) in (Tensor, nn.Parameter) and leaf.device.type == "cpu" for leaf in leaves)
        return self._packing if on_cpu else None

    @cached_property
    def _packing(self) -> LengthPacking:
        form = self.form
        assert isinstance(form, Padded)
        row_step, time_step = (1, form.batch_size) if form.time_major else (form.max_time, 1)
        steps = {"row_step": row_step, "time_step": time_step}
        return LengthPacking(self._order, self._positions_index, form.leading, **steps, backwards=self._reverse)

    def _positions(self, device: torch.device) -> Tensor:
        """The positions of the rows of all steps, on a device."""
        found = self._on_device.get(device)
        if found is None:
            found = self._on_device[device] = sent(self._positions_index(), device)
        return found

    def _positions_index(self) -> Tensor:
        """The positions of all real steps in the order of the loop: by time, then by row."""
        order = self._order
        time = np.repeat(np.arange(order.longest), order.active)
        place = np.arange(order.total) - np.repeat(order.offset, order.active)
        when = order.length[place] - 1 - time if self._reverse else time
        return self.form.positions(torch.from_numpy(order.rows[place]), torch.from_numpy(when))
