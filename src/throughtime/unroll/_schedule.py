"""Which rows run at which step, and the way between a form of sequences and the steps of a loop."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from throughtime import _nest
from throughtime.backends._step import is_row_leaf
from throughtime.backends._steps import Steps
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
        # numpy, because it takes a fraction of the time of torch for so little work.
        length = np.array(lengths, dtype=np.int64)
        order = np.argsort(-length, kind="stable")
        sorted_length = length[order]
        steps = np.arange(sorted_length[0] if len(sorted_length) else 0)
        active = np.searchsorted(-sorted_length, -steps, side="left")
        self.active = active.tolist()
        # The pairs (time, place) of all real steps, time-major: the order in which the loop walks through them.
        time = np.repeat(steps, active)
        place = np.arange(len(time)) - np.repeat(np.cumsum(active) - active, active)
        row = order[place]
        when = torch.from_numpy(length[row] - 1 - time if reverse else time)
        self._order = torch.from_numpy(order)
        self._positions = form.positions(torch.from_numpy(row), when)
        self._on_device: dict[torch.device, tuple[Tensor, Tensor]] = {}

    @property
    def steps(self) -> Steps:
        active = torch.tensor(self.active)
        return Steps(active, active.cumsum(0) - active, 1, self._form.batch_size)

    def rows(self, leaf: Any) -> Tensor:
        rows = self._form.rows(leaf)
        positions, _ = self._indices(rows.device)
        return rows.index_select(0, positions)

    def restore(self, rows: Tensor, fill: Tensor | None = None) -> Any:
        positions, _ = self._indices(rows.device)
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
        if not is_row_leaf(leaf):
            return leaf
        _, order = self._indices(leaf.device)
        return leaf.index_select(0, order.argsort() if inverse else order)

    def _indices(self, device: torch.device) -> tuple[Tensor, Tensor]:
        if device not in self._on_device:
            self._on_device[device] = (self._positions.to(device), self._order.to(device))
        return self._on_device[device]
