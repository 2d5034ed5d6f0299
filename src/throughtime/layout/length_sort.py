"""A batch sorted by length, longest first: which rows run at each step, and the offsets of packed rows."""

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
    """The order of a batch of sequences with these lengths; below 0 counts as 0, above `most` as `most`.

    `rows` is the permutation from the batch to this order, `back` its inverse, `length` the sorted lengths; `active`
    rows run at each step, and the first of them is at `offset` among the packed rows. `total` is the sum of lengths.
    """

    addresses: tuple[int, ...]

    def __init__(self, lengths: Sequence[int], most: int, *, by_native_code: bool) -> None:
        self._sent: dict[tuple[str, torch.device], Tensor] = {}
        if by_native_code and lengths:
            self._sort_natively(lengths, most)
        else:
            self._sort_with_numpy(np.array([min(max(length, 0), most) for length in lengths], dtype=np.int64))

    def _sort_natively(self, lengths: Sequence[int], most: int) -> None:
        """One table, filled by one native call.

        To sort a small batch with numpy takes as long as to run a small network over it.
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
        # Of `offset`, `rows` and `length`, for native code.
        self.addresses = (address + 8 * (third + most), address + 8 * sort_lengths.FACTS, address + 8 * second)

    def _sort_with_numpy(self, lengths: Places) -> None:
        self.rows = np.argsort(-lengths, kind="stable")
        self.back = np.argsort(self.rows)
        self.length = lengths[self.rows]
        self.total, self.longest = int(lengths.sum()), int(self.length[0]) if len(lengths) else 0
        self.is_sorted = bool((self.rows == np.arange(len(lengths))).all())
        # The rows of step t are those that are longer than t.
        self.active = np.searchsorted(-self.length, -np.arange(self.longest), side="left")
        self.offset = np.cumsum(self.active) - self.active

    @cached_property
    def steps(self) -> StepLayout:
        """The layout of packed rows."""
        # Not inference tensors, even if the first call is inference: later calls may train.
        with torch.inference_mode(False) if torch.is_inference_mode_enabled() else nullcontext():
            steps = StepLayout(torch.from_numpy(self.active), torch.from_numpy(self.offset), 1, len(self.rows))
        # Computed already.
        vars(steps).update(total=self.total, lengths=self.length.tolist())
        return steps

    def sort(self, leaf: Tensor) -> Tensor:
        """Rows [B, ...] of the batch in the order of the loop."""
        return leaf if self.is_sorted else leaf.index_select(0, self._on(leaf.device, "rows"))

    def unsort(self, leaf: Tensor) -> Tensor:
        """Rows [B, ...] of the loop in the order of the batch."""
        return leaf if self.is_sorted else leaf.index_select(0, self._on(leaf.device, "back"))

    def _on(self, device: torch.device, name: str) -> Tensor:
        """A permutation, on a device."""
        found = self._sent.get((name, device))
        if found is None:
            found = self._sent[name, device] = sent(torch.from_numpy(getattr(self, name)), device)
        return found
