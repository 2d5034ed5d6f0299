"""How a kernel multiplies: a block's columns of the matrices, the rows that it reads, and sums that become results.

Where all columns stay on chip, in registers or in shared memory, rows are read right as operands (`mma_layout.py`).
Else what does not fit into shared memory is streamed, and rows pass through it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from throughtime.backends.triton.barrier_stages import Staged
from throughtime.backends.triton.codegen_memory import MemoryCodegen
from throughtime.backends.triton.matmul_groups import MatmulGroup, beside, chunks, groups
from throughtime.backends.triton.mma_layout import operand, places, renumbered
from throughtime.backends.triton.row_segments import SegmentProduct
from throughtime.backends.triton.tiling import (
    READ_AHEAD_REGISTERS,
    STREAMED_CHUNK,
    STREAMED_STAGES,
    Tiling,
    depth,
    largest_chunk,
)

READ_AHEAD_BYTES = 384
"""Of the rows it multiplies, a thread reads so many bytes ahead of the products."""
CHAINS = 4
"""Sums that a warp has under way: each waits for its last product before it takes the next."""


def stage_groups(staged: Staged) -> list[list[MatmulGroup]]:
    """The groups of products of each stage."""
    return [groups([op for op in stage.operations if isinstance(op, SegmentProduct)]) for stage in staged.stages]


class MatmulCodegen(MemoryCodegen):
    """The products of a staged program: which there are, and the lines that compute them."""

    def __init__(self, staged: Staged, shape: Tiling) -> None:
        super().__init__(staged, shape)
        self.by_stage = stage_groups(staged)
        self.groups = [group for found in self.by_stage for group in found]
        self.depths = [depth(group, shape, kept) for group, kept in zip(self.groups, shape.resident, strict=True)]
        self.strides = [
            max(deep for group, deep in zip(self.groups, self.depths, strict=True) if group.whole == whole)
            for whole in staged.wholes
        ]

    def _wide(self, group: MatmulGroup) -> int:
        """The columns of a block."""
        return len(group.results) * self.shape.tile(group.width)

    def _is_direct(self, group: MatmulGroup) -> bool:
        return self.shape.direct and group.width > 1

    def _columns(self) -> Iterator[str]:
        """This block's columns of the matrices, as far as they stay on chip."""
        for index, group in enumerate(self.groups):
            wide, deep = self._wide(group), self.depths[index]
            yield f"own_{index} = columns_{index} + block.to(tl.int64) * {deep * wide}"
            for place, (start, size) in enumerate(self._chunks(index)):
                if not self._is_direct(group):
                    features = self._features(index, start, f"tl.arange(0, {size})", self._axes(group))
                    columns = f"tl.load(own_{index} + {features} * {wide} + tl.arange(0, {wide}))"
                elif start < self.shape.held[index]:
                    where = places(wide, deep, *self._of_ways(index), start, size, group.dtype.itemsize)
                    yield f"w = tl.load(own_{index} + ({where}))"
                    columns = operand("w", wide, self.shape.ways, size, group.dtype.itemsize, columns=True)
                else:
                    numbers = renumbered(size, group.dtype.itemsize)
                    features = self._features(index, start, numbers, "[..., None, :]")
                    columns = f"tl.load(own_{index} + tl.arange(0, {wide})[None, :, None] * {deep} + {features})"
                yield f"w{index}_{place} = {columns}"

    @staticmethod
    def _axes(group: MatmulGroup) -> str:
        """Features go down a matrix, but across a single column, as they do in rows."""
        return "[..., None, :]" if group.width == 1 else "[..., :, None]"

    def _chunks(self, index: int) -> list[tuple[int, int]]:
        """Where the resident chunks of a group start, within each way, and their sizes."""
        sizes = chunks(self.shape.resident[index], largest_chunk(self.groups[index], direct=self.shape.direct))
        return [(sum(sizes[:place]), size) for place, size in enumerate(sizes)]

    def _of_ways(self, index: int) -> tuple[int, int]:
        """The ways of a group, and the features of each."""
        return self.shape.ways, self.depths[index] // self.shape.ways

    def _features(self, index: int, start: int | str, numbers: str, axes: str) -> str:
        """The `numbers` of features from `start` on, along the given axes; in each way, if there are several."""
        ways, each = self._of_ways(index)
        if ways == 1:
            return f"({start} + {numbers}){axes.replace('..., ', '')}"
        return f"({start} + tl.arange(0, {ways})[:, None] * {each} + {numbers}[None, :]){axes.replace('...', ':')}"

    def _bytes(self, index: int, size: int) -> int:
        """Of a chunk of the rows that are multiplied, what a thread reads."""
        group, threads = self.groups[index], 32 * self.shape.warps
        return self.shape.rows * self.shape.ways * size * group.dtype.itemsize // threads

    def _products(self, stage: int) -> Iterator[str]:
        before = sum(map(len, self.by_stage[:stage]))
        alike: dict[object, list[int]] = {}
        for index, group in enumerate(self.by_stage[stage], before):
            if self._is_direct(group):
                alike.setdefault(group.whole, []).append(index)
            else:
                yield from self._product(index, group)
        for indices in alike.values():
            yield from self._direct_products(indices)

    def _reads(self, index: int, most: int) -> Iterator[tuple[int, list[int]]]:
        """The chunks of a group in their order, each with those to read before it is multiplied, `most` bytes ahead."""
        parts = self._chunks(index)
        ahead = read = 0
        for place, (_, size) in enumerate(parts):
            reads = []
            while read < len(parts) and (read <= place or ahead + self._bytes(index, parts[read][1]) <= most):
                reads.append(read)
                ahead += self._bytes(index, parts[read][1])
                read += 1
            yield place, reads
            ahead -= self._bytes(index, size)

    # Rows read right as operands.

    def _reading(self, stage: int, slot: str) -> Iterator[str]:
        """Where the rows lie that a stage reads as operands: found out before they are there, while one waits."""
        groups = filter(self._is_direct, self.by_stage[stage])
        for number in dict.fromkeys(self.staged.wholes.index(group.whole) for group in groups):
            first = f"({slot} * PADDED + tile * {self.shape.rows}).to(tl.int64)"
            yield f"here_{number} = row_{number} + {first} * {self.strides[number]}"

    def _direct_products(self, indices: Sequence[int]) -> Iterator[str]:
        """Groups that multiply the same rows: these are read once."""
        rows, first = self.shape.rows, self.groups[indices[0]]
        number, itemsize = self.staged.wholes.index(first.whole), first.dtype.itemsize
        parts, known = self._chunks(indices[0]), set()
        for place, reads in self._reads(indices[0], 4 * READ_AHEAD_REGISTERS):
            for read in reads:
                where = places(rows, self.strides[number], *self._of_ways(indices[0]), *parts[read], itemsize)
                yield f'a_{read} = tl.load(here_{number} + ({where}), cache_modifier=".cg")'
            yield f"a = {operand(f'a_{place}', rows, self.shape.ways, parts[place][1], itemsize, columns=False)}"
            for index in indices:
                total = f"total_{index}_{place % self._chains(index)}"
                added = f", {total}" if total in known else ""
                yield f"{total} = tl.dot(w{index}_{place}, a{added}, input_precision=PRECISION)"
                known.add(total)
        for index in indices:
            yield from self._sums(index)
            yield from self._parts_of_columns(self.groups[index])

    def _chains(self, index: int) -> int:
        """Sums of chunks that are kept apart, where a warp has too few: one has 16 columns and 8 rows."""
        tiles = -(-self._wide(self.groups[index]) // 16) * -(-self.shape.rows // 8)
        return max(1, min(CHAINS // tiles, len(self._chunks(index))))

    def _sums(self, index: int) -> Iterator[str]:
        yield f"total = total_{index}_0"
        # Of a plain addition the compiler would make one sum again, which begins with the other.
        yield from (f"total = tl.fma(total_{index}_{chain}, 1.0, total)" for chain in range(1, self._chains(index)))

    def _parts_of_columns(self, group: MatmulGroup) -> Iterator[str]:
        """The results of a group out of its sums [ways, columns, rows]."""
        ways, count, tile = self.shape.ways.bit_length() - 1, len(group.results), self.shape.tile(group.width)
        few, bits = beside(tile), count.bit_length() - 1
        shape = [*[2] * ways, tile // few, *[2] * bits, few, self.shape.rows]
        order = (len(shape) - 1, ways, len(shape) - 2, *range(ways + 1, ways + 1 + bits), *range(ways))
        becomes = [self.shape.rows, tile, *[2] * (bits + ways)]
        yield f"parts = tl.reshape(tl.permute(tl.reshape(total, {shape}), {order}), {becomes})"
        yield from self._split(group, ways)

    # Rows that pass through shared memory.

    def _product(self, index: int, group: MatmulGroup) -> Iterator[str]:
        rows, ways, kept = self.shape.rows, self.shape.ways, self.shape.resident[index]
        whole, wide = self.staged.wholes.index(group.whole), self._wide(group)
        axes = "[:, None]" if ways == 1 else "[None, :, None]"
        yield f"whole = row_{whole} + (slot * PADDED + rows).to(tl.int64){axes} * {self.strides[whole]}"
        parts = self._chunks(index)
        for place, reads in self._reads(index, READ_AHEAD_BYTES):
            for read in reads:
                start, size = parts[read]
                features = self._features(index, start, f"tl.arange(0, {size})", "[..., None, :]")
                yield f'a_{read} = tl.load(whole + {features}, cache_modifier=".cg")'
            yield self._add_product(group, f"a_{place}", f"w{index}_{place}", start=not place)
        if self.depths[index] > ways * kept:
            if not parts:
                sums = [ways, rows, wide] if ways > 1 and group.width > 1 else [rows, wide]
                yield f"total = tl.zeros({sums}, tl.float32)"
            numbers = f"tl.arange(0, {STREAMED_CHUNK})"
            across, down = (self._features(index, "k", numbers, axes) for axes in ("[..., None, :]", self._axes(group)))
            steps = f"{kept}, {self.depths[index] // ways}, {STREAMED_CHUNK}, num_stages={STREAMED_STAGES}"
            yield f"for k in tl.range({steps}):"
            yield f'    a = tl.load(whole + {across}, cache_modifier=".cg")'
            yield f"    w = tl.load(own_{index} + {down} * {wide} + tl.arange(0, {wide}))"
            yield f"    {self._add_product(group, 'a', 'w', start=False)}"
        yield from self._parts(group)

    def _add_product(self, group: MatmulGroup, a: str, w: str, *, start: bool) -> str:
        if group.width > 1:
            return f"total = tl.dot({a}, {w}{'' if start else ', total'}, input_precision=PRECISION)"
        axis = 1 if self.shape.ways == 1 else 2
        summed = f"tl.reduce({a}.to(tl.float32) * {w}.to(tl.float32), {axis}, plus, keep_dims=True)"
        summed = summed if self.shape.ways == 1 else f"tl.reduce({summed}, 0, plus)"
        return f"total = {summed}{'' if start else ' + total'}"

    def _parts(self, group: MatmulGroup) -> Iterator[str]:
        """The results of a group out of its sums [ways, rows, columns]."""
        count, tile = len(group.results), self.shape.tile(group.width)
        ways = self.shape.ways.bit_length() - 1
        if group.width == 1 or (count == 1 and not ways):
            yield f"{self.name(group.results[0])} = total"
            return
        shape = [*[2] * ways, self.shape.rows, *[2] * (count == 4), tile, *[2] * (count > 1)]
        unit = len(shape) - 1 - (count > 1)
        bits = [axis for axis in range(ways + 1, len(shape)) if axis != unit]
        yield f"parts = tl.permute(tl.reshape(total, {shape}), {(ways, unit, *bits, *range(ways))})"
        yield from self._split(group, ways)

    def _split(self, group: MatmulGroup, ways: int) -> Iterator[str]:
        """Results out of `parts`, in which the bits that tell results and ways apart are axes of two, the last ones.

        The first split is also where values leave the layout of the matrix units for that of the streams, all at once.
        """
        names = [self.name(piece) for piece in group.results]
        for _ in range(ways):
            yield "one, other = tl.split(parts)"
            yield "parts = one + other"
        if len(names) == 1:
            yield f"{names[0]} = parts"
        elif len(names) == 2:
            yield f"{names[0]}, {names[1]} = tl.split(parts)"
        else:
            yield "one, other = tl.split(parts)"
            yield f"{names[0]}, {names[2]} = tl.split(one)"
            yield f"{names[1]}, {names[3]} = tl.split(other)"
