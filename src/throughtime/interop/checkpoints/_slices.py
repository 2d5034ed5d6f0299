"""Variables in slices, as partitioned ones are saved: where each lies, its key, and how they are joined."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from throughtime.interop.checkpoints._damage import Damaged
from throughtime.interop.checkpoints._wire import Message

Shape = tuple[int, ...]
# The length of a slice that is as long as the variable.
FULL = -1


class Slice(NamedTuple):
    """Where a slice begins along each axis, and how long it is."""

    starts: Shape
    lengths: Shape

    @classmethod
    def read(cls, message: Message) -> Slice:
        """A slice as it is described in a file: an axis without a length is there as a whole."""
        extents = message.messages(1)
        lengths = tuple(extent.signed(2) if 2 in extent else FULL for extent in extents)
        return cls(tuple(extent.signed(1) for extent in extents), lengths)

    def key(self, name: str) -> bytes:
        """The key of a slice in a table: its name, and the numbers above, coded so that they sort as they count."""
        rank = len(self.starts)
        numbers = b"".join(
            _sorted_signed(number) for pair in zip(self.starts, self.lengths, strict=True) for number in pair
        )
        return _sorted_number(0) + _sorted_text(name.encode()) + _sorted_number(rank) + numbers

    def bounds(self, shape: Shape) -> list[tuple[int, int]]:
        """The first and the last but one place along each axis of a variable of this shape."""
        if len(self.starts) != len(shape):
            raise Damaged(f"a slice of rank {len(self.starts)} of a variable of shape {shape}")
        bounds = [
            (start, side if length == FULL else start + length)
            for start, length, side in zip(self.starts, self.lengths, shape, strict=True)
        ]
        if not all(0 <= start <= end <= side for (start, end), side in zip(bounds, shape, strict=True)):
            raise Damaged(f"a slice that lies outside of a variable of shape {shape}")
        return bounds

    def shape(self, shape: Shape) -> Shape:
        """The slice's own shape."""
        return tuple(end - start for start, end in self.bounds(shape))


def check_cover(shape: Shape, slices: Sequence[Slice]) -> None:
    """Raise unless the slices have every number of a variable once."""
    bounds = np.array([each.bounds(shape) for each in slices], dtype=object).reshape(len(slices), len(shape), 2)
    for index, one in enumerate(bounds):
        others = bounds[index + 1 :]
        overlap = (np.maximum(others[..., 0], one[:, 0]) < np.minimum(others[..., 1], one[:, 1])).all(1)
        if overlap.any():
            raise Damaged("slices that overlap")
    if sum(prod(each.shape(shape)) for each in slices) != prod(shape):
        raise Damaged(f"slices that are not all of a variable of shape {shape}")


def joined(shape: Shape, slices: Sequence[Slice], pieces: Sequence[Tensor]) -> Tensor:
    """The variable that the pieces are slices of."""
    whole = torch.empty(shape, dtype=pieces[0].dtype)
    for each, piece in zip(slices, pieces, strict=True):
        place = tuple(slice(start, end) for start, end in each.bounds(shape))
        whole[place] = piece
    return whole


def _sorted_number(number: int) -> bytes:
    """How many bytes, and the bytes, highest first."""
    size = (number.bit_length() + 7) // 8
    return bytes([size]) + number.to_bytes(size, "big")


def _sorted_text(text: bytes) -> bytes:
    """Text, and a mark for its end that sorts before all text; what would look like one is told apart."""
    return text.replace(b"\x00", b"\x00\xff") + b"\x00\x01"


def _sorted_signed(number: int) -> bytes:
    """Seven bits a byte, highest first. As many ones lead as there are bytes; below 0 they are zeros."""
    size = 1
    while not -(1 << 7 * size - 1) <= number < 1 << 7 * size - 1:
        size += 1
    lead = ((1 << size) - 1) << (8 * size - size)
    return ((number ^ lead) & ((1 << 8 * size) - 1)).to_bytes(size, "big")
