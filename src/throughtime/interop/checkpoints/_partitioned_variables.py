"""Variables in slices, as partitioned ones are saved: where each lies, its key, and how they are joined."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from math import prod
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from throughtime._file_limits import AXES, SLICE_CORNERS
from throughtime.interop.checkpoints._corruption import Damaged
from throughtime.interop.checkpoints._protobuf import Message

Shape = tuple[int, ...]
# The length of a slice that is as long as the variable.
FULL = -1


def check_rank(rank: int) -> None:
    """Raise if there are more axes than a variable can have."""
    if rank > AXES:
        raise Damaged(f"a variable of {rank:,} axes, which has at most {AXES}")


class Slice(NamedTuple):
    """Where a slice begins along each axis, and how long it is."""

    starts: Shape
    lengths: Shape

    @classmethod
    def read(cls, message: Message) -> Slice:
        """A slice as it is described in a file: an axis without a length is there as a whole."""
        check_rank(len(message.parts(1)))
        extents = list(message.messages(1))
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
    """Raise unless the slices have every number of a variable once.

    By inclusion and exclusion: the corners of a box, with the sign of each, determine which numbers it has. So slices
    cover a variable exactly once if and only if the corners that they do not cancel among each other are those of the
    variable. This takes n log n, where comparing all pairs takes n squared.
    """
    bounds = np.array([each.bounds(shape) for each in slices], np.int64).reshape(len(slices), len(shape), 2)
    if prod(shape) == 0:
        return
    whole = np.array([[0, side] for side in shape], np.int64).reshape(1, len(shape), 2)
    # Axes along which no slice is cut have no part in it.
    boxes = np.concatenate([bounds, whole])[:, (bounds != whole).any((0, 2))]
    if len(boxes) << boxes.shape[1] > SLICE_CORNERS:
        got = f"{len(slices):,} slices of a variable cut along {boxes.shape[1]} axes"
        raise Damaged(f"{got}, with more than {SLICE_CORNERS:,} corners")
    if not _cancel(*_corners(boxes)):
        raise Damaged(f"slices that overlap, or are not all of a variable of shape {shape}")


def _cancel(corners: NDArray[np.int64], signs: NDArray[np.int64]) -> bool:
    """Whether the signs at each place add up to 0 once those of the last box are subtracted."""
    signs[:, -1] *= -1
    if not corners.shape[-1]:
        return not signs.sum()
    _, places = np.unique(corners.reshape(-1, corners.shape[-1]), axis=0, return_inverse=True)
    sums = np.zeros(int(places.max()) + 1, np.int64)
    np.add.at(sums, places.reshape(-1), signs.reshape(-1))
    return not sums.any()


def _corners(bounds: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The corners of boxes [2^d, n, d] and their signs [2^d, n]: one minus for each axis on which they begin a box."""
    count, rank, _ = bounds.shape
    choices = np.array([*itertools.product((0, 1), repeat=rank)], np.int64).reshape(2**rank, rank)
    corners = np.stack([bounds[:, range(rank), choice] for choice in choices])
    signs = np.repeat((-1) ** (rank - choices.sum(1)), count).reshape(2**rank, count)
    return corners, signs


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
