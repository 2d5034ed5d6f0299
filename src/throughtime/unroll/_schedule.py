"""Which rows run at which step, and the way between a form of sequences and the steps of a loop."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from throughtime import _pytree
from throughtime._active_modes import intercepting_mode
from throughtime.backends.checked_cell import is_row_leaf
from throughtime.layout.length_sort import LengthSort
from throughtime.layout.pack import Packing, can_move
from throughtime.layout.shared_zeros import are_shared_zeros
from throughtime.layout.step_layout import StepLayout, sent
from throughtime.unroll._batch_format import BatchFormat, Packed, Padded, packed_lengths


class Schedule(ABC):
    """Rows sorted so that those alive at any step are the first ones."""

    @property
    @abstractmethod
    def active(self) -> list[int]:
        """How many rows run at each step."""

    @property
    def leading(self) -> tuple[int, int] | None:
        """The first two axes of inputs whose rows, as they lie, are those of all steps; None for others."""
        return None

    @property
    @abstractmethod
    def steps(self) -> StepLayout:
        """Where the rows of every step lie among all rows."""

    @abstractmethod
    def rows(self, leaf: Any) -> Tensor:
        """The rows of all steps of `leaf` [N, ...]."""

    @abstractmethod
    def restore(self, rows: Tensor, fill: Tensor | None = None) -> Any:
        """Rows of all steps in the form that came in; where no step ran, zeros or `fill` [B, ...]."""

    @abstractmethod
    def split(self, rows: Tensor) -> Sequence[Tensor]:
        """The rows of each step, from those of all steps."""

    def take(self, leaf: Any) -> Sequence[Tensor]:
        """The rows of `leaf` for each step."""
        return self.split(self.rows(leaf))

    @abstractmethod
    def put(self, steps: Sequence[Tensor], fill: Tensor | None = None) -> Any:
        """The results of the steps in the form that came in; where no step ran, zeros or `fill` [B, ...]."""

    def moves(self, leaves: Sequence[Tensor]) -> Packing | None:
        """How machine code moves padded rows like these; None where nothing is to be moved, or torch must do it."""
        return None

    def order(self) -> Tensor | None:
        """Which row of a state is that of each row of the loop, on whatever device is known; None if it is the same."""
        return None

    @abstractmethod
    def sort(self, state: Any) -> Any:
        """The rows of a state in the order of the loop."""

    @abstractmethod
    def unsort(self, state: Any) -> Any:
        """The rows of a state in the order of the batch."""


def make_schedule(
    form: BatchFormat, lengths: list[int] | None, *, reverse: bool = False, blocks: bool = False
) -> Schedule:
    """The schedule of a batch; lengths above T count as T, below 0 as 0. `reverse` walks from each sequence's end.

    With `blocks` the rows of neighbouring steps lie side by side, so that the walk can be cut into blocks of steps.
    """
    if lengths is None or (isinstance(form, Padded) and all(length >= form.max_time for length in lengths)):
        assert isinstance(form, Padded)
        return Dense(form, reverse, step_by_step=blocks)
    return Ragged(form, lengths, reverse)


class Dense(Schedule):
    """Every row runs at every step: nothing is sorted or gathered, and nothing copied but for blocks of steps."""

    def __init__(self, form: Padded, reverse: bool, *, step_by_step: bool = False) -> None:
        self._form = form
        self._axis = form.time_axis
        self._direction = -1 if reverse else 1
        self._turned = step_by_step and form.time_axis == 1

    @property
    def active(self) -> list[int]:
        return [self._form.batch_size] * self._form.max_time

    @property
    def leading(self) -> tuple[int, int] | None:
        return None if self._turned else self._form.leading

    @property
    def steps(self) -> StepLayout:
        together = self._turned or self._axis == 0
        return _dense_steps(self._form.batch_size, self._form.max_time, together, self._direction)

    def rows(self, leaf: Tensor) -> Tensor:
        return self._form.rows(leaf.transpose(0, 1) if self._turned else leaf)

    def restore(self, rows: Tensor, fill: Tensor | None = None) -> Tensor:
        if self._turned:
            by_time: Tensor = rows.unflatten(0, (self._form.max_time, self._form.batch_size))
            return by_time.transpose(0, 1)
        return self._form.restore(rows)

    def split(self, rows: Tensor) -> Sequence[Tensor]:
        return self.restore(rows).unbind(self._axis)[:: self._direction]

    def put(self, steps: Sequence[Tensor], fill: Tensor | None = None) -> Tensor:
        return torch.stack(list(steps)[:: self._direction], self._axis)

    def sort(self, state: Any) -> Any:
        return state

    def unsort(self, state: Any) -> Any:
        return state


@lru_cache(maxsize=256)
def _dense_steps(batch: int, time: int, together: bool, direction: int) -> StepLayout:
    """The steps of a dense batch, whose rows lie step by step or sequence by sequence; small calls ask often."""
    with torch.inference_mode(False), torch.device("cpu"):
        offset = torch.arange(time) * (batch if together else 1)
        offset = offset if direction == 1 else offset.flip(0)
        return StepLayout(torch.full((time,), batch), offset, 1 if together else time, batch)


@lru_cache(maxsize=16)
def _packed_order(active: bytes) -> LengthSort:
    """The order of a packed batch; the layers of a stack share it, and what has been sent to a device for it."""
    lengths = packed_lengths(active)
    return LengthSort(lengths, max(lengths, default=0), in_machine_code=True)


class Ragged(Schedule):
    """Rows sorted by length, longest first, and packed: padding is never touched."""

    def __init__(self, form: BatchFormat, lengths: Sequence[int], reverse: bool) -> None:
        self._form = form
        self._reverse = reverse
        # Whether machine code sorts and moves the rows: not if somebody is to see that done in operations of torch.
        self._is_quick = intercepting_mode() is None and can_move()
        if isinstance(form, Packed) and self._is_quick:
            self._order = _packed_order(form.active)
        else:
            self._order = LengthSort(lengths, form.max_time, in_machine_code=self._is_quick)
        # The rows of packed sequences lie step by step, as the loop wants them, unless it begins at their ends.
        self._is_packed = isinstance(form, Packed) and not reverse
        self._on_device: dict[torch.device, Tensor] = {}

    @property
    def active(self) -> list[int]:
        # Steps are made of tensors. Somebody who is to see every operation of torch must not see those.
        active: list[int] = self._order.steps.counts if self._is_quick else self._order.active.tolist()
        return active

    @property
    def steps(self) -> StepLayout:
        return self._order.steps

    def rows(self, leaf: Any) -> Tensor:
        if self._is_packed:
            return self._form.rows(leaf)
        moves = self.moves([leaf])
        if moves is not None:
            return moves.pack(leaf)
        rows = self._form.rows(leaf)
        return rows.index_select(0, self._positions(rows.device))

    def restore(self, rows: Tensor, fill: Tensor | None = None) -> Any:
        if self._is_packed:
            return self._form.restore(rows)
        moves = self.moves([rows]) if fill is None else None
        if moves is not None:
            return moves.unpack(rows)
        positions = self._positions(rows.device)
        blank = self._form.blank(rows, fill)
        if fill is not None and blank is not None:
            return self._form.restore(blank.index_copy(0, positions, rows))
        blank = torch.zeros_like(rows) if blank is None else blank
        return self._form.restore(blank.index_copy_(0, positions, rows))

    def split(self, rows: Tensor) -> Sequence[Tensor]:
        return torch.split(rows, self.active)

    def put(self, steps: Sequence[Tensor], fill: Tensor | None = None) -> Any:
        return self.restore(torch.cat(list(steps)), fill)

    def sort(self, state: Any) -> Any:
        return _pytree.map_leaves(lambda leaf: self._reorder(leaf, inverse=False), state)

    def unsort(self, state: Any) -> Any:
        return _pytree.map_leaves(lambda leaf: self._reorder(leaf, inverse=True), state)

    def order(self) -> Tensor | None:
        if isinstance(self._form, Packed):
            return self._form.order
        return None if self._order.is_sorted else torch.from_numpy(self._order.rows)

    def _reorder(self, leaf: Any, *, inverse: bool) -> Any:
        if not is_row_leaf(leaf) or are_shared_zeros(leaf):
            return leaf
        if isinstance(self._form, Packed):
            index = self._form.inverse if inverse else self._form.order
            return leaf if index is None else leaf.index_select(0, index.to(leaf.device))
        return self._order.unsort(leaf) if inverse else self._order.sort(leaf)

    def moves(self, leaves: Sequence[Tensor]) -> Packing | None:
        if not self._is_quick or not isinstance(self._form, Padded):
            return None
        plain = all(type(leaf) in (Tensor, nn.Parameter) and leaf.device.type == "cpu" for leaf in leaves)
        return self._moves if plain else None

    @cached_property
    def _moves(self) -> Packing:
        form = self._form
        assert isinstance(form, Padded)
        batch, time = form.batch_size, form.max_time
        leading, row_step, time_step = ((time, batch), 1, batch) if form.time_major else ((batch, time), time, 1)
        steps = {"row_step": row_step, "time_step": time_step}
        return Packing(self._order, self._positions_index, leading, **steps, backwards=self._reverse)

    def _positions(self, device: torch.device) -> Tensor:
        """Where the rows of all steps lie, on a device."""
        found = self._on_device.get(device)
        if found is None:
            found = self._on_device[device] = sent(self._positions_index(), device)
        return found

    def _positions_index(self) -> Tensor:
        """The pairs (time, place) of all real steps, time-major: the order in which the loop walks through them."""
        order = self._order
        time = np.repeat(np.arange(order.longest), order.active)
        place = np.arange(order.total) - np.repeat(order.offset, order.active)
        when = order.length[place] - 1 - time if self._reverse else time
        return self._form.positions(torch.from_numpy(order.rows[place]), torch.from_numpy(when))
