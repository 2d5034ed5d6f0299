"""How many blocks share a row, how many rows a block takes, and what of the matrices stays on chip.

The rule is a small model of the time of one step, minimised over all shapes that fit the card. A block reads the whole
rows of its batch tile from the other blocks through the L2 cache, multiplies them with its own columns of the matrices,
from registers or shared memory as far as they fit and else again from L2, and waits at a barrier. Fewer rows a block
means less to read; more blocks a row means fewer columns to hold. All blocks of a launch must be on the card at the
same time, one on each multiprocessor, or those that wait for the others would keep them out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

from throughtime.backends.hardware_rates import (
    ALL_READ_BYTES,
    ARRIVAL_SECONDS,
    BARRIER_SECONDS,
    DIRECT_ARRIVAL_SECONDS,
    DIRECT_BARRIER_SECONDS,
    DIRECT_DOUBT,
    DIRECT_OVERLAP,
    DIRECT_READ_BYTES,
    DIRECT_SHARED_BYTES,
    DIRECT_STAGE_SECONDS,
    DIRECT_TILE_SECONDS,
    ELEMENT_SECONDS,
    READ_BYTES,
    STREAM_BYTES,
    STREAMING_SECONDS,
    TILE_SECONDS,
    TRANSPOSED,
)
from throughtime.backends.triton.matmul_groups import SMALLEST_CHUNK, MatmulGroup, chunks
from throughtime.backends.triton.mma_layout import together

SPARE_BYTES = 16 * 2**10
"""Shared memory that the compiler wants for itself."""
CHUNK_BYTES = 256
DIRECT_CHUNK_BYTES = 128
"""Of each row, what is multiplied at a time; as operands, it is what goes into registers together, or not at all."""
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
DIRECT_ROWS = (8, 16, 32)
DIRECT_WARPS = (4, 8)
READ_AHEAD_REGISTERS = 48
"""Where rows are read right as operands, so many registers of a thread wait for them."""
DIRECT_REGISTERS = 200
"""Registers of a thread for columns, rows, sums and what waits for the next step."""
WAYS = {16: (4,), 32: (2,), 64: (1,), 128: (1,)}
"""By the rows of a block, in how many ways products can be shared: few rows leave warps idle that are not in a way."""


class NoTilingError(RuntimeError):
    """There is no shape that fits."""


@dataclass(frozen=True)
class GpuSpec:
    """What a rule needs to know about a GPU: its multiprocessors, and the shared memory one block can have."""

    processors: int
    shared_bytes: int


@dataclass(frozen=True)
class Tiling:
    """`rows` of the batch and every `blocks`-th part of the units for each block, which has so many warps.

    The features that products multiply are shared by so many `ways`, each with warps of its own. Of the share of each
    way, the columns of the first `resident` features are on chip for the whole walk, for each group of products.

    Rows pass through shared memory or, in a way for each warp and with all columns on chip, are `direct`: read right as
    operands. Then the columns of the first `held` features of each way are in registers, others in shared memory.
    """

    rows: int
    blocks: int
    warps: int
    ways: int
    resident: tuple[int, ...]
    direct: bool = False
    held: tuple[int, ...] = ()

    def tile(self, width: int) -> int:
        """The units of a piece that a block owns: a power of two, so the last block may own fewer."""
        return 1 if width == 1 else _power(-(-width // self.blocks))


@dataclass(frozen=True)
class StepCost:
    """What a step of a program costs: its groups of products, barriers, widest piece and pointwise operations.

    `copies` of the columns are on chip: where float32 is multiplied exactly, numbers are kept in two halves. `held` are
    the widths of the pieces that a block keeps in registers from one step to the next.
    """

    groups: tuple[MatmulGroup, ...]
    copies: int
    barriers: int
    width: int
    operations: int
    held: tuple[int, ...] = ()


def choose(
    load: StepCost, batch: int, card: GpuSpec, without: frozenset[Tiling] = frozenset(), *, ragged: bool = False
) -> Tiling:
    """The shape with the least time a step, `without` those that have been found not to fit."""
    shapes = [shape for shape in candidates(load, card) if shape not in without and _is_held(load, shape)]
    if not shapes or load.operations > MOST_OPERATIONS:
        raise NoTilingError(_refusal(load, card))
    return min(shapes, key=lambda shape: (seconds(load, shape, batch, card, ragged=ragged), shape.blocks, shape.rows))


def _refusal(load: StepCost, card: GpuSpec) -> str:
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


def _is_held(load: StepCost, shape: Tiling) -> bool:
    """Whether registers hold what waits for the next step."""
    numbers = shape.rows * sum(map(shape.tile, load.held))
    return numbers <= HELD_REGISTERS * 32 * shape.warps


def candidates(load: StepCost, card: GpuSpec) -> Iterator[Tiling]:
    """All shapes to choose from."""
    most = min(card.processors, max(1, load.width // 4))
    yield from _direct(load, card, most)
    for rows, all_ways in WAYS.items():
        for blocks in sorted(set(_counts(load.width, most))):
            for ways in all_ways:
                shape = Tiling(rows, blocks, 4, ways, ())
                if blocks == 1 or _is_wide(load, shape):
                    shape = replace(shape, warps=_warps(shape))
                    yield from (replace(shape, resident=resident) for resident in _residents(load, shape, card))


def _direct(load: StepCost, card: GpuSpec, most: int) -> Iterator[Tiling]:
    """Shapes whose rows are read right as operands: columns in registers as far as they fit, then in shared memory."""
    for rows, warps in product(DIRECT_ROWS, DIRECT_WARPS):
        for blocks in sorted(set(_counts(load.width, most))):
            shape = Tiling(rows, blocks, warps, warps, (), direct=True)
            shape = replace(shape, resident=tuple(share(group, shape) for group in load.groups))
            left = _registers_left(load, shape)
            if left >= 0 and (blocks == 1 or _is_wide(load, shape)):
                shape = replace(shape, held=_held(load, shape, left))
                # Numbers in two halves come from shared memory far too slowly.
                fits = load.copies == 1 or shape.held == shape.resident
                if fits and _shared_bytes(load, shape) <= card.shared_bytes - SPARE_BYTES:
                    yield shape


def _registers_left(load: StepCost, shape: Tiling) -> int:
    """Registers of a thread that are left for columns."""
    pieces = sum(-(-shape.rows * shape.tile(width) // (32 * shape.warps)) for width in load.held)
    depths = zip(load.groups, shape.resident, strict=True)
    rows = max((shape.rows * kept * group.dtype.itemsize // 128 for group, kept in depths), default=0)
    sums = max((_columns(group, shape) for group in load.groups), default=0) * shape.rows // 32
    return DIRECT_REGISTERS - pieces - min(READ_AHEAD_REGISTERS, rows) - sums


def _held(load: StepCost, shape: Tiling, left: int) -> tuple[int, ...]:
    """How deep the columns of each group can be in so many registers."""
    held = []
    for group, kept in zip(load.groups, shape.resident, strict=True):
        each = load.copies * _columns(group, shape) * group.dtype.itemsize
        deep = 0
        for size in chunks(kept, largest_chunk(group, direct=True)):
            registers = size * each // 128
            # Single columns are no operands; threads have them in any case.
            if registers > left and group.width > 1:
                break
            left -= registers
            deep += size
        held.append(deep)
    return tuple(held)


def _columns(group: MatmulGroup, shape: Tiling) -> int:
    """The columns that a block has of a group."""
    return len(group.results) * shape.tile(group.width)


def _shared_bytes(load: StepCost, shape: Tiling) -> int:
    """Columns in shared memory, where rows are read right as operands."""
    depths = zip(load.groups, shape.resident, shape.held, strict=True)
    return load.copies * sum(
        shape.ways * (kept - held) * _columns(group, shape) * group.dtype.itemsize for group, kept, held in depths
    )


def _counts(width: int, most: int) -> Iterator[int]:
    """Numbers of blocks that leave none of them idle: with tiles of a power of two, others would."""
    tile = 4
    while tile < 2 * width:
        blocks = -(-width // tile)
        if blocks <= most:
            yield blocks
        tile *= 2


def _is_wide(load: StepCost, shape: Tiling) -> bool:
    """Whether products are wide enough for the matrix units, and not too wide for registers."""
    columns = [len(group.results) * shape.tile(group.width) for group in load.groups if group.width > 1]
    most = (2 if shape.ways == 1 else 1) * LARGEST_SUMS // (shape.ways * shape.rows)
    return all(NARROWEST <= wide <= most for wide in columns)


def _warps(shape: Tiling) -> int:
    """As measured: eight pay where there are many rows."""
    return 8 if shape.rows >= 128 else 4


def _residents(load: StepCost, shape: Tiling, card: GpuSpec) -> Iterator[tuple[int, ...]]:
    """How deep the columns of each group can be on chip: as deep as shared memory goes, or not at all."""
    left = card.shared_bytes - SPARE_BYTES
    # Rows pass through shared memory on their way to the products, a chunk at a time.
    left -= load.copies * shape.rows * shape.ways * CHUNK_BYTES
    resident, streams = [], 0
    for group in load.groups:
        columns = load.copies * shape.ways * len(group.results) * shape.tile(group.width) * group.dtype.itemsize
        passing = STREAMED_STAGES * STREAMED_CHUNK * (shape.ways * shape.rows * group.dtype.itemsize + columns)
        streams = max(streams, passing)
        kept = share(group, shape)
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


def largest_chunk(group: MatmulGroup, *, direct: bool = False) -> int:
    """The features that a group multiplies at a time."""
    return (DIRECT_CHUNK_BYTES if direct else CHUNK_BYTES) // group.dtype.itemsize


def share(group: MatmulGroup, shape: Tiling) -> int:
    """The features that each way multiplies, in chunks that may have room to spare."""
    smallest = together(group.dtype.itemsize) if shape.direct else SMALLEST_CHUNK
    return sum(chunks(-(-group.depth // shape.ways), largest_chunk(group, direct=shape.direct), smallest))


def depth(group: MatmulGroup, shape: Tiling, resident: int) -> int:
    """The same for all ways, when all but the first `resident` features of each are streamed."""
    whole = share(group, shape)
    if resident < whole:
        whole = resident + -(-(-(-group.depth // shape.ways) - resident) // STREAMED_CHUNK) * STREAMED_CHUNK
    return shape.ways * whole


def seconds(load: StepCost, shape: Tiling, batch: int, card: GpuSpec, *, ragged: bool) -> float:
    """The model of a step, by which shapes are compared."""
    total = _barrier_seconds(load, shape) + _work(load, shape, batch, card)
    return _rounds(shape, batch, card, ragged=ragged) * total * (DIRECT_DOUBT if shape.direct else 1)


def expected_seconds(load: StepCost, shape: Tiling, batch: int, card: GpuSpec) -> float:
    """What a step of a dense batch takes, for those who plan with it.

    Of shapes whose rows are operands the model adds up what goes on at the same time: it ranks them well, and says up
    to half too much.
    """
    overlap = DIRECT_OVERLAP if shape.direct else 1
    total = _barrier_seconds(load, shape) + overlap * _work(load, shape, batch, card)
    return _rounds(shape, batch, card, ragged=False) * total


def _barrier_seconds(load: StepCost, shape: Tiling) -> float:
    """Seconds that the barriers of a step take."""
    if shape.blocks == 1:
        return 0
    if shape.direct:
        return load.barriers * (DIRECT_BARRIER_SECONDS[shape.warps] + DIRECT_ARRIVAL_SECONDS * shape.blocks)
    return load.barriers * (BARRIER_SECONDS + ARRIVAL_SECONDS * shape.blocks)


def _work(load: StepCost, shape: Tiling, batch: int, card: GpuSpec) -> float:
    """What the rest of it takes."""
    if shape.direct:
        total = _direct_products(load, shape, min(card.processors, -(-batch // shape.rows) * shape.blocks))
    else:
        total = _products(load, shape)
    return total + load.operations * shape.rows * shape.tile(load.width) * ELEMENT_SECONDS


def _products(load: StepCost, shape: Tiling) -> float:
    """What products take whose rows pass through shared memory."""
    total = 0.0
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
    return total


def _direct_products(load: StepCost, shape: Tiling, processors: int) -> float:
    """What products take that read rows right as operands, once for all that multiply them, on so many processors."""
    read = {group.whole: shape.rows * group.depth * group.dtype.itemsize for group in load.groups}
    total = len(read) * DIRECT_STAGE_SECONDS
    total += sum(read.values()) / min(DIRECT_READ_BYTES, ALL_READ_BYTES / processors)
    for group, kept, held in zip(load.groups, shape.resident, shape.held, strict=True):
        size, columns = group.dtype.itemsize, _columns(group, shape)
        tiles = -(-columns * shape.rows // (16 * 8))
        # Of numbers in two halves there are three products.
        total += (2 * load.copies - 1) * kept / 16 * (0.5 + tiles) * DIRECT_TILE_SECONDS[size]
        total += load.copies * shape.ways * (kept - held) * columns * size / DIRECT_SHARED_BYTES[size]
    return total


def _rounds(shape: Tiling, batch: int, card: GpuSpec, *, ragged: bool) -> float:
    """The launches that a batch takes, one after another; later ones are shorter where lengths differ.

    Lengths count as if they were spread evenly: those of one batch must not decide which kernel is compiled.
    """
    rows = max(1, card.processors // shape.blocks) * shape.rows
    return sum(1 - first / batch if ragged else 1 for first in range(0, batch, rows))


def _power(number: int) -> int:
    """The power of two that is not below."""
    return 1 << (number - 1).bit_length()
