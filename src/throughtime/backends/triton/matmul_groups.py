"""Products of whole rows with a block's own columns of matrices, and the matrices packed the way blocks read them.

All results that come from the same row and have the same width are computed together, four or two or one at a time: a
wide product keeps all warps of a block busy where four narrow ones would not. Within a group the columns are ordered so
that the results of one unit lie in the registers of one thread. The lowest bit of the column and the highest tell which
of four it is; where rows are read right as operands, it is the bits above the lowest three.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache

import torch
from torch import Tensor

from throughtime.backends.triton.barrier_stages import Whole
from throughtime.backends.triton.row_segments import Segment, SegmentProduct

SMALLEST_CHUNK = 16
"""Features that the matrix units of a GPU take at a time, at least."""


@dataclass(frozen=True)
class MatmulGroup:
    """Results of equal width: each is the row `whole` times some columns of a matrix, from `columns[i]` on."""

    whole: Whole
    results: tuple[Segment, ...]
    matrices: tuple[str, ...]
    columns: tuple[int, ...]

    @cached_property
    def width(self) -> int:
        """Of each result."""
        return self.results[0].width

    @cached_property
    def depth(self) -> int:
        """Features that are multiplied."""
        return sum(piece.width for piece in self.whole)

    @cached_property
    def is_together(self) -> bool:
        """Whether its columns lie side by side in one matrix."""
        first, width = self.columns[0], self.width
        expected = tuple(range(first, first + len(self.results) * width, width))
        return len(set(self.matrices)) == 1 and self.columns == expected

    @property
    def dtype(self) -> torch.dtype:
        """Of what is multiplied."""
        return self.whole[0].dtype


def groups(products: list[SegmentProduct]) -> list[MatmulGroup]:
    """The products of one stage, grouped."""
    wanted: dict[tuple[Whole, int], list[tuple[Segment, str, int]]] = {}
    for product in products:
        column = 0
        for piece in product.results:
            wanted.setdefault((product.pieces, piece.width), []).append((piece, product.matrix.name, column))
            column += piece.width
    found = []
    for (whole, width), parts in wanted.items():
        while parts:
            # Numbers are sums of products that every block takes for itself: too narrow for the matrix units.
            size = 1 if width == 1 else next(size for size in (4, 2, 1) if size <= len(parts))
            results, names, columns = zip(*parts[:size], strict=True)
            found.append(MatmulGroup(whole, results, names, columns))
            del parts[:size]
    return found


def chunks(depth: int, largest: int, smallest: int = SMALLEST_CHUNK) -> list[int]:
    """`depth` features as powers of two from `smallest` to `largest`, the last one perhaps with room to spare."""
    found = []
    while depth > 0:
        size = largest
        while size > smallest and size > depth:
            size //= 2
        found.append(size)
        depth -= size
    return found


def beside(tile: int) -> int:
    """Units of a result whose columns are side by side for operands: the matrix units take eight at a time."""
    return min(tile, 8)


def pack(
    group: MatmulGroup, matrices: Mapping[str, Tensor], depth: int, blocks: int, tile: int, *, direct: bool
) -> Tensor:
    """The group's columns [blocks, depth, ...] the way each block reads them, zeros where a matrix has none.

    Where rows are read right as operands, columns are as well: [blocks, ..., depth].

    A single column is every block's own. Packed at every launch: the numbers of a matrix can change without a trace.
    """
    width, count = group.width, len(group.results)
    if group.is_together:
        matrix, first = matrices[group.matrices[0]], group.columns[0]
    else:
        places = zip(group.matrices, group.columns, strict=True)
        matrix, first = torch.cat([matrices[name][:, column : column + width] for name, column in places], 1), 0
    room = 1 if width == 1 else blocks * tile
    if room != width or depth != group.depth:
        columns = matrix[:, first : first + count * width].unflatten(1, (count, width))
        matrix = torch.nn.functional.pad(columns, (0, room - width, 0, 0, 0, depth - group.depth)).flatten(1)
        first = 0
    down, across = matrix.stride()
    order = _for_operands if direct and width > 1 else _turned
    sizes, strides = order(count, room, depth, blocks, tile, down, across)
    return matrix.as_strided(sizes, strides, matrix.storage_offset() + first * across).contiguous()


@lru_cache(maxsize=1024)
def _turned(
    count: int, room: int, depth: int, blocks: int, tile: int, down: int, across: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Sizes and strides of `count` results, `room` columns each, in the order in which a block reads them."""
    # The results of a unit side by side; of four, the first two, and the other two in the second half.
    halves = [(2, 2 * room * across)] if count == 4 else []
    pair = (2 if count == 4 else count, room * across)
    axes = [(blocks, 0 if room == 1 else tile * across), (depth, down), *halves, (tile, across), pair]
    sizes, strides = zip(*axes, strict=True)
    return sizes, strides


@lru_cache(maxsize=1024)
def _for_operands(
    count: int, room: int, depth: int, blocks: int, tile: int, down: int, across: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The same where rows are read right as operands."""
    few = beside(tile)
    units = (tile // few, few * across)
    axes = [(blocks, tile * across), units, (count, room * across), (few, across), (depth, down)]
    sizes, strides = zip(*axes, strict=True)
    return sizes, strides
