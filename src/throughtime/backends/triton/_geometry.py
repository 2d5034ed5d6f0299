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

# Measured on an H200; it is their ratios that decide, and those move little from card to card.
READ_BYTES = 38e9
"""What one multiprocessor reads of others' rows for products with columns on chip, bytes a second."""
STREAM_BYTES = {1: 55e9, 2: 47e9, 4: 80e9}
"""What one multiprocessor fetches of rows and columns where columns are streamed, by the ways of products."""
STREAMING_SECONDS = 0.3e-6
"""Until the first columns are there."""
TRANSPOSED = 0.4
"""How much of that is left of float32 in one way: the matrix units then want it transposed first."""
TILE_SECONDS = {2: 9e-9, 4: 18e-9}
"""One product of a tile of 16 rows and 8 columns by a warp, 16 features deep, by the bytes of a number."""
ELEMENT_SECONDS = 0.05e-9
"""One unit of one row through one pointwise operation, on one multiprocessor."""
MEETING_SECONDS = 1.0e-6
ARRIVAL_SECONDS = 8e-9
"""A meeting, and what each block adds to it."""

SPARE_BYTES = 16 * 2**10
"""Shared memory that the compiler wants for itself."""
CHUNK_BYTES = 256
"""Of each row, what is multiplied at a time."""
STREAMED_CHUNK = 64
STREAMED_STAGES = 3
"""Streamed columns are fetched so many chunks ahead."""
NARROWEST = 16
"""Columns that a block multiplies by at a time, at least."""
NARROWEST_ROW = 3
"""Units of the widest row of a program."""
LARGEST_SUMS = 8192
"""Sums that a block has at a time, at most."""
HELD_REGISTERS = 255
"""Of a thread: values that wait for the next step must fit, or compiling takes minutes, for a slow kernel."""
MOST_OPERATIONS = 256
"""Of a step, for the same reason."""
WAYS = {16: (4,), 32: (2,), 64: (1,), 128: (1,)}
"""By the rows of a block, in how many ways products can be shared: few rows leave warps idle that are not in a way."""


class NoGeometryError(RuntimeError):
    """There is no shape that fits."""


@dataclass(frozen=True)
class Card:
    """What a rule needs to know about a GPU: its multiprocessors, and the shared memory one block can have."""

    processors: int
    shared_bytes: int


@dataclass(frozen=True)
class Geometry:
    """`rows` of the batch and every `blocks`-th part of the units for each block, which has so many warps.

    The features that products multiply are shared by so many `ways`, each with warps of its own. Of the share of each
    way, the columns of the first `resident` features are on chip for the whole walk, for each group of products.
    """

    rows: int
    blocks: int
    warps: int
    ways: int
    resident: tuple[int, ...]

    def tile(self, width: int) -> int:
        """The units of a piece that a block owns: a power of two, so the last block may own fewer."""
        return 1 if width == 1 else _power(-(-width // self.blocks))


@dataclass(frozen=True)
class Load:
    """What a step of a program costs: its groups of products, meetings, widest piece and pointwise operations.

    `copies` of the columns are on chip: where float32 is multiplied exactly, numbers are kept in two halves. `held` are
    the widths of the pieces that a block keeps in registers from one step to the next.
    """

    groups: tuple[Group, ...]
    copies: int
    meetings: int
    width: int
    operations: int
    held: tuple[int, ...] = ()


def choose(
    load: Load, batch: int, card: Card, without: frozenset[Geometry] = frozenset(), *, ragged: bool = False
) -> Geometry:
    """The shape with the least time a step, `without` those that have been found not to fit."""
    shapes = [shape for shape in candidates(load, card) if shape not in without and _is_held(load, shape)]
    if not shapes or load.operations > MOST_OPERATIONS:
        raise NoGeometryError(_refusal(load, card))
    return min(shapes, key=lambda shape: (seconds(load, shape, batch, card, ragged=ragged), shape.blocks, shape.rows))


def _refusal(load: Load, card: Card) -> str:
    shapes = list(candidates(load, card))
    if load.width < NARROWEST_ROW:
        return f"its widest row has {load.width} units, too few for the products of a GPU"
    if load.operations > MOST_OPERATIONS or (shapes and not any(_is_held(load, shape) for shape in shapes)):
        return (
            f"a step of {load.operations} operations that keeps {sum(load.held)} numbers of each row at hand "
            "is more than the registers of a GPU take"
        )
    return (
        "its blocks of threads, which wait for each other, cannot all be on the GPU at once: "
        f"{card.processors} multiprocessors with {card.shared_bytes // 2**10} KiB of shared memory each"
    )


def _is_held(load: Load, shape: Geometry) -> bool:
    """Whether registers hold what waits for the next step."""
    numbers = shape.rows * sum(map(shape.tile, load.held))
    return numbers <= HELD_REGISTERS * 32 * shape.warps


def candidates(load: Load, card: Card) -> Iterator[Geometry]:
    """All shapes to choose from."""
    most = min(card.processors, max(1, load.width // 4))
    for rows, all_ways in WAYS.items():
        for blocks in sorted(set(_counts(load.width, most))):
            for ways in all_ways:
                shape = Geometry(rows, blocks, 4, ways, ())
                if blocks == 1 or _is_wide(load, shape):
                    shape = replace(shape, warps=_warps(shape))
                    yield from (replace(shape, resident=resident) for resident in _residents(load, shape, card))


def _counts(width: int, most: int) -> Iterator[int]:
    """Numbers of blocks that leave none of them idle: with tiles of a power of two, others would."""
    tile = 4
    while tile < 2 * width:
        blocks = -(-width // tile)
        if blocks <= most:
            yield blocks
        tile *= 2


def _is_wide(load: Load, shape: Geometry) -> bool:
    """Whether products are wide enough for the matrix units, and not too wide for registers."""
    columns = [len(group.results) * shape.tile(group.width) for group in load.groups if group.width > 1]
    most = (2 if shape.ways == 1 else 1) * LARGEST_SUMS // (shape.ways * shape.rows)
    return all(NARROWEST <= wide <= most for wide in columns)


def _warps(shape: Geometry) -> int:
    """As measured: eight pay where there are many rows."""
    return 8 if shape.rows >= 128 else 4


def _residents(load: Load, shape: Geometry, card: Card) -> Iterator[tuple[int, ...]]:
    """How deep the columns of each group can be on chip: as deep as shared memory goes, or not at all."""
    left = card.shared_bytes - SPARE_BYTES
    # Rows pass through shared memory on their way to the products, a chunk at a time.
    left -= load.copies * shape.rows * shape.ways * CHUNK_BYTES
    resident, streams = [], 0
    for group in load.groups:
        columns = load.copies * shape.ways * len(group.results) * shape.tile(group.width) * group.dtype.itemsize
        passing = STREAMED_STAGES * STREAMED_CHUNK * (shape.ways * shape.rows * group.dtype.itemsize + columns)
        streams = max(streams, passing)
        kept = share(group, shape.ways)
        if kept * columns > left:
            kept = max(0, (left - passing) // columns // largest_chunk(group) * largest_chunk(group))
            if kept == 0 and passing > left:
                break
        resident.append(kept)
        left -= kept * columns
    if len(resident) == len(load.groups):
        yield tuple(resident)
    if any(resident) and streams <= card.shared_bytes - SPARE_BYTES:
        yield (0,) * len(load.groups)


def largest_chunk(group: Group) -> int:
    """The features that a group multiplies at a time."""
    return CHUNK_BYTES // group.dtype.itemsize


def share(group: Group, ways: int) -> int:
    """The features that each way multiplies, in chunks that may have room to spare."""
    return sum(chunks(-(-group.depth // ways), largest_chunk(group)))


def depth(group: Group, ways: int, resident: int) -> int:
    """The same for all ways, when all but the first `resident` features of each are streamed."""
    whole = share(group, ways)
    if resident < whole:
        whole = resident + -(-(-(-group.depth // ways) - resident) // STREAMED_CHUNK) * STREAMED_CHUNK
    return ways * whole


def seconds(load: Load, shape: Geometry, batch: int, card: Card, *, ragged: bool) -> float:
    """The model of a step."""
    total = load.meetings * (MEETING_SECONDS + ARRIVAL_SECONDS * shape.blocks) * (shape.blocks > 1)
    for group, resident in zip(load.groups, shape.resident, strict=True):
        size = group.dtype.itemsize
        columns = len(group.results) * shape.tile(group.width)
        kept = min(group.depth, shape.ways * resident)
        fetched = (group.depth - kept) * (shape.rows + columns) * size
        warp_tiles = -(-shape.ways * shape.rows * columns // (16 * 8 * shape.warps))
        total += shape.rows * kept * size / READ_BYTES
        total += STREAMING_SECONDS if fetched else 0
        total += fetched / (STREAM_BYTES[shape.ways] * (TRANSPOSED if shape.ways == 1 and size == 4 else 1))
        total += group.depth / shape.ways / 16 * max(2, warp_tiles) * TILE_SECONDS[size] / (2 if shape.ways == 1 else 1)
    total += load.operations * shape.rows * shape.tile(load.width) * ELEMENT_SECONDS
    return _rounds(shape, batch, card, ragged=ragged) * total


def _rounds(shape: Geometry, batch: int, card: Card, *, ragged: bool) -> float:
    """The launches that a batch takes, one after another; later ones are shorter where lengths differ.

    Lengths count as if they were spread evenly: those of one batch must not decide which kernel is compiled.
    """
    rows = max(1, card.processors // shape.blocks) * shape.rows
    return sum(1 - first / batch if ragged else 1 for first in range(0, batch, rows))


def _power(number: int) -> int:
    """The power of two that is not below."""
    return 1 << (number - 1).bit_length()
