"""Which rows run at which step, and the way between a form of sequences and the steps of a loop."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from throughtime import _nest
from throughtime.backends._moves import Moves, can_move
from throughtime.backends._select import compiling_stops
from throughtime.backends._step import is_row_leaf
from throughtime.backends._steps import Steps, sent
from throughtime.unroll._form import Form, Padded


class Schedule(ABC):
    """Rows sorted so that those alive at any step are the first ones."""

    active: list[int]

    @property
    @abstractmethod
    def steps(self) -> Steps:
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

    @abstractmethod
    def sort(self, state: Any) -> Any:
        """The rows of a state in the order of the loop."""

    @abstractmethod
    def unsort(self, state: Any) -> Any:
        """The rows of a state in the order of the batch."""


def make_schedule(form: Form, lengths: list[int] | None, *, reverse: bool = False, blocks: bool = False) -> Schedule:
    """The schedule of a batch; lengths above T count as T, below 0 as 0. `reverse` walks from each sequence's end.

    With `blocks` the rows of neighbouring steps lie side by side, so that the walk can be cut into blocks of steps.
    """
    if lengths is not None:
        lengths = [min(max(length, 0), form.max_time) for length in lengths]
    if isinstance(form, Padded) and (lengths is None or all(length == form.max_time for length in lengths)):
        return Dense(form, reverse, step_by_step=blocks)
    assert lengths is not None
    return Ragged(form, lengths, reverse)


class Dense(Schedule):
    """Every row runs at every step: nothing is sorted or gathered, and nothing copied but for blocks of steps."""

    def __init__(self, form: Padded, reverse: bool, *, step_by_step: bool = False) -> None:
        self._form = form
        self._axis = form.time_axis
        self._direction = -1 if reverse else 1
        self._turned = step_by_step and form.time_axis == 1
        self.active = [form.batch_size] * form.max_time

    @property
    def steps(self) -> Steps:
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
def _dense_steps(batch: int, time: int, together: bool, direction: int) -> Steps:
    """The steps of a dense batch, whose rows lie step by step or sequence by sequence; small calls ask often."""
    with torch.inference_mode(False), torch.device("cpu"):
        offset = torch.arange(time) * (batch if together else 1)
        offset = offset if direction == 1 else offset.flip(0)
        return Steps(torch.full((time,), batch), offset, 1 if together else time, batch)


class Ragged(Schedule):
    """Rows sorted by length, longest first, and packed: padding is never touched."""

    def __init__(self, form: Form, lengths: list[int], reverse: bool) -> None:
        self._form = form
        self._reverse = reverse
        # numpy, because it takes a fraction of the time of torch for so little work.
        self._length = np.array(lengths, dtype=np.int64)
        self._order = np.argsort(-self._length, kind="stable")
        longest = self._length[self._order]
        steps = np.arange(longest[0] if len(longest) else 0)
        self._active = np.searchsorted(-longest, -steps, side="left")
        self.active = self._active.tolist()
        self._on_device: dict[tuple[str, torch.device], Tensor] = {}

    @property
    def steps(self) -> Steps:
        active = torch.from_numpy(self._active)
        return Steps(active, active.cumsum(0) - active, 1, self._form.batch_size)

    def rows(self, leaf: Any) -> Tensor:
        rows = self._form.rows(leaf)
        if self._is_moved(rows):
            return self._moves.pack(rows)
        return rows.index_select(0, self._index("positions", rows.device))

    def restore(self, rows: Tensor, fill: Tensor | None = None) -> Any:
        if fill is None and self._is_moved(rows):
            return self._form.restore(self._moves.unpack(rows))
        positions = self._index("positions", rows.device)
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
        return _nest.map_leaves(lambda leaf: self._reorder(leaf, inverse=False), state)

    def unsort(self, state: Any) -> Any:
        return _nest.map_leaves(lambda leaf: self._reorder(leaf, inverse=True), state)

    def _reorder(self, leaf: Any, *, inverse: bool) -> Any:
        if not is_row_leaf(leaf) or self._is_sorted:
            return leaf
        return leaf.index_select(0, self._index("inverse" if inverse else "order", leaf.device))

    @cached_property
    def _is_sorted(self) -> bool:
        """Whether the batch came in the order of the loop."""
        return bool((self._order[1:] > self._order[:-1]).all())

    def _is_moved(self, rows: Tensor) -> bool:
        """Whether machine code can move the rows: plain memory, and nobody who wants to see it done."""
        plain = type(rows) in (Tensor, nn.Parameter) and rows.device.type == "cpu"
        return plain and isinstance(self._form, Padded) and can_move() and compiling_stops() is None

    @cached_property
    def _moves(self) -> Moves:
        form = self._form
        assert isinstance(form, Padded)
        row_step, time_step = (1, form.batch_size) if form.time_major else (form.max_time, 1)
        begin, length = self._order * row_step, self._length[self._order]
        places = (begin, length, self._active, self._positions_index)
        return Moves(*places, time=form.max_time, time_step=time_step, backwards=self._reverse)

    def _index(self, name: str, device: torch.device) -> Tensor:
        """Where rows lie, or the order of the batch, on a device."""
        found = self._on_device.get((name, device))
        if found is None:
            found = self._on_device[name, device] = sent(getattr(self, f"_{name}_index")(), device)
        return found

    def _positions_index(self) -> Tensor:
        """The pairs (time, place) of all real steps, time-major: the order in which the loop walks through them."""
        time = np.repeat(np.arange(len(self._active)), self._active)
        place = np.arange(len(time)) - np.repeat(np.cumsum(self._active) - self._active, self._active)
        row = self._order[place]
        when = self._length[row] - 1 - time if self._reverse else time
        return self._form.positions(torch.from_numpy(row), torch.from_numpy(when))

    def _order_index(self) -> Tensor:
        return torch.from_numpy(self._order)

    def _inverse_index(self) -> Tensor:
        return torch.from_numpy(np.argsort(self._order))
