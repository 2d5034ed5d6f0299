"""How many blocks share a row, how many rows a block takes, and what of the matrices stays on chip.

The rule is a small model of the time of one step, minimised over all shapes that fit the card. A block reads the whole
rows of its batch tile from the other blocks through the L2 cache, multiplies them with its own columns of the matrices,
from shared memory as far as they fit and else again from L2, and meets the others. Fewer rows a block means less to
read; more blocks a row means fewer columns to hold. All blocks of a launch must be on the card at the same time, one on
each multiprocessor, or those that wait for the others would keep them out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from throughtime.backends.triton._products import Group, chunks

# Measured on an H200; ratios between these decide, not the values, and they move little from card to card.
READ_BYTES = 60e9
"""What one multiprocessor reads of others' rows, bytes a second."""
STREAM_BYTES = 35e9
"""What each of all multiprocessors streams from L2 at the same time."""
PRODUCT_FLOPS = {2: 2.0e12, 4: 0.8e12}
"""Products of one multiprocessor, by bytes a number."""
ELEMENT_SECONDS = 0.15e-9
"""One unit of one row through one pointwise operation, on one multiprocessor."""
MEETING_SECONDS = 1.0e-6
"""A meeting; a little more for every block that comes."""
ARRIVAL_SECONDS = 2e-9

SPARE_BYTES = 16 * 2**10
"""Shared memory that the compiler wants for itself."""
LARGEST_CHUNK = 256
STREAMED_CHUNK = 64
ROW_TILES = (16, 32, 64, 128)


@dataclass(frozen=True)
class Card:
    """What a rule needs to know about a GPU: its multiprocessors, and the shared memory one block can have."""

    processors: int
    shared_bytes: int


@dataclass(frozen=True)
class Geometry:
    """`rows` of the batch and every `blocks`-th part of the units for each block, which has so many warps.

    Of the features that a group of products multiplies, the first `resident` have their columns on chip for the whole
    walk. They are multiplied in so many `ways` side by side, each by warps of its own.
    """

    rows: int
    blocks: int
    warps: int
    resident: tuple[int, ...]
    ways: tuple[int, ...]

    def tile(self, width: int) -> int:
        """The units of a piece that a block owns: a power of two, so the last block may own fewer."""
        return 1 if width == 1 else _power(-(-width // self.blocks))


@dataclass(frozen=True)
class Load:
    """What a step of a program costs: its groups of products, meetings, widest piece and pointwise operations."""

    groups: tuple[Group, ...]
    meetings: int
    width: int
    operations: int


def choose(load: Load, batch: int, card: Card) -> Geometry:
    """The shape with the least time a step."""
    return min(candidates(load, card), key=lambda shape: (seconds(load, shape, batch, card), shape.blocks, shape.rows))


def candidates(load: Load, card: Card) -> Iterator[Geometry]:
    """All shapes to choose from."""
    most = min(card.processors, max(1, load.width // 4))
    for rows in ROW_TILES:
        for blocks in sorted(set(_counts(load.width, most))):
            shape = Geometry(rows, blocks, 4, (), ())
            wide = all(len(group.results) * shape.tile(group.width) >= 8 for group in load.groups if group.width > 1)
            if wide or blocks == 1:
                shape = replace(shape, warps=_warps(load, shape))
                yield _with_residents(load, shape, card)


def _counts(width: int, most: int) -> Iterator[int]:
    """Numbers of blocks that leave none of them idle: with tiles of a power of two, others would."""
    tile = 4
    while tile < 2 * width:
        blocks = -(-width // tile)
        if blocks <= most:
            yield blocks
        tile *= 2


def _warps(load: Load, shape: Geometry) -> int:
    """Enough threads that the rows which a block reads, and its sums, fit their registers."""
    sums = max((shape.rows * len(group.results) * shape.tile(group.width) for group in load.groups), default=0)
    read = max((shape.rows * group.depth * group.dtype.itemsize for group in load.groups), default=0)
    return 8 if sums > 8192 or read > 32 * 2**10 else 4


def _with_residents(load: Load, shape: Geometry, card: Card) -> Geometry:
    """How deep the columns of each group are on chip, as far as shared memory goes, and in how many ways."""
    left = card.shared_bytes - SPARE_BYTES
    # Whole rows pass through shared memory on their way to the products.
    left -= max((shape.rows * padded(group.depth, 1) * group.dtype.itemsize for group in load.groups), default=0)
    resident, ways = [], []
    for group in load.groups:
        columns = len(group.results) * shape.tile(group.width) * group.dtype.itemsize
        side_by_side = _ways(shape)
        depth = padded(group.depth, side_by_side)
        if columns * depth > left:
            depth, side_by_side = max(0, left // columns // LARGEST_CHUNK * LARGEST_CHUNK), 1
        resident.append(depth)
        ways.append(side_by_side)
        left -= depth * columns
    return replace(shape, resident=tuple(resident), ways=tuple(ways))


def _ways(shape: Geometry) -> int:
    """Few rows leave most warps of a block without work, unless they share the features that are multiplied.

    From 64 rows on, the matrix units take all warps for one product.
    """
    return 1 if shape.rows >= 64 else 4 if shape.rows == 16 else 2


def padded(depth: int, ways: int) -> int:
    """`depth` as products take it: the same for each way, in chunks that are powers of two."""
    return ways * sum(chunks(-(-depth // ways), LARGEST_CHUNK))


def seconds(load: Load, shape: Geometry, batch: int, card: Card) -> float:
    """The model of a step."""
    tiles = -(-batch // shape.rows)
    waves = -(-tiles // max(1, card.processors // shape.blocks))
    total = load.meetings * (MEETING_SECONDS + ARRIVAL_SECONDS * shape.blocks) * (shape.blocks > 1)
    for group, resident in zip(load.groups, shape.resident, strict=True):
        size = group.dtype.itemsize
        columns = len(group.results) * shape.tile(group.width)
        total += shape.rows * group.depth * size / READ_BYTES
        total += max(0, group.depth - resident) * columns * size / STREAM_BYTES
        total += 2 * shape.rows * max(columns, 32) * group.depth / PRODUCT_FLOPS[size]
    total += load.operations * shape.rows * shape.tile(load.width) * ELEMENT_SECONDS
    return waves * total


def depth(group: Group, resident: int, ways: int) -> int:
    """The features that a group multiplies, with room to spare at the end of chunks; the first `resident` from chip."""
    whole = padded(group.depth, ways)
    return whole if resident >= whole else resident + -(-(group.depth - resident) // STREAMED_CHUNK) * STREAMED_CHUNK


def _power(number: int) -> int:
    """The power of two that is not below."""
    return 1 << (number - 1).bit_length()
