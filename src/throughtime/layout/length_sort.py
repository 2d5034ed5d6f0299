"""A batch sorted by length, longest first: who runs at which step, and where the rows of each step lie when packed."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from contextlib import nullcontext
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from throughtime.layout.step_layout import StepLayout, sent
from throughtime.native import sort_lengths

Places = NDArray[np.int64]


class LengthSort:
    """The order of a batch of sequences with these lengths; below 0 counts as 0, above `most` as that.

    `rows` has the place in the batch of each row, `back` the place here of each row of the batch, `length` the sorted
    lengths; `active` rows run at each step, and the first of them lies at `offset` among all rows of all steps.
    `total` is the sum of the lengths.
    """

    addresses: tuple[int, ...]

    def __init__(self, lengths: Sequence[int], most: int, *, in_machine_code: bool) -> None:
        self._sent: dict[tuple[str, torch.device], Tensor] = {}
        if in_machine_code and lengths:
            self._sort_in_one_go(lengths, most)
        else:
            self._sort_with_numpy(np.array([min(max(length, 0), most) for length in lengths], dtype=np.int64))

    def _sort_in_one_go(self, lengths: Sequence[int], most: int) -> None:
        """One table, made by one call and found by one address.

        Small batches are many, and to sort one with numpy takes as long as to run a small network over it.
        """
        batch = len(lengths)
        try:
            given = array("q", lengths)
        except OverflowError:
            given = array("q", [min(max(length, 0), most) for length in lengths])
        self._table = table = np.empty(sort_lengths.FACTS + 3 * batch + 3 * most + 1, dtype=np.int64)
        address = table.ctypes.data
        sort_lengths.sort_lengths(array("q", (given.buffer_info()[0], batch, most, address)))
        self.total, self.longest, is_sorted = table[: sort_lengths.FACTS].tolist()
        self.is_sorted = bool(is_sorted)
        first, second, third = (
            sort_lengths.FACTS + batch,
            sort_lengths.FACTS + 2 * batch,
            sort_lengths.FACTS + 3 * batch,
        )
        self.rows, self.back, self.length = table[sort_lengths.FACTS : first], table[first:second], table[second:third]
        self.active = table[third : third + self.longest]
        self.offset = table[third + most : third + most + self.longest]
        # Of `offset`, `rows` and `length`, for machine code.
        self.addresses = (address + 8 * (third + most), address + 8 * sort_lengths.FACTS, address + 8 * second)

    def _sort_with_numpy(self, lengths: Places) -> None:
        self.rows = np.argsort(-lengths, kind="stable")
        self.back = np.argsort(self.rows)
        self.length = lengths[self.rows]
        self.total, self.longest = int(lengths.sum()), int(self.length[0]) if len(lengths) else 0
        self.is_sorted = bool((self.rows == np.arange(len(lengths))).all())
        # At step t as many rows run as are longer than t.
        self.active = np.searchsorted(-self.length, -np.arange(self.longest), side="left")
        self.offset = np.cumsum(self.active) - self.active

    @cached_property
    def steps(self) -> StepLayout:
        """Where the rows of every step lie when packed."""
        # For everybody, though the first one who asks may only infer.
        with torch.inference_mode(False) if torch.is_inference_mode_enabled() else nullcontext():
            steps = StepLayout(torch.from_numpy(self.active), torch.from_numpy(self.offset), 1, len(self.rows))
        # These are known already.
        vars(steps).update(total=self.total, lengths=self.length.tolist())
        return steps

    def sort(self, leaf: Tensor) -> Tensor:
        """Rows [B, ...] of the batch in the order of the loop."""
        return leaf if self.is_sorted else leaf.index_select(0, self._on(leaf.device, "rows"))

    def unsort(self, leaf: Tensor) -> Tensor:
        """The reverse."""
        return leaf if self.is_sorted else leaf.index_select(0, self._on(leaf.device, "back"))

    def _on(self, device: torch.device, name: str) -> Tensor:
        """A part of the order, on a device."""
        found = self._sent.get((name, device))
        if found is None:
            found = self._sent[name, device] = sent(torch.from_numpy(getattr(self, name)), device)
        return found
