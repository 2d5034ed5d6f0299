"""Products of whole rows with a block's own columns of matrices, and the matrices packed the way blocks read them.

All results that come from the same row and have the same width are computed together, four or two or one at a time: a
wide product keeps all warps of a block busy where four narrow ones would not. Within a group of four the columns are
ordered so that the four results of one unit lie in the registers of one thread: the lowest bit of the column and the
highest tell which of the four it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from throughtime.backends.triton._pieces import Piece, Product
from throughtime.backends.triton._stages import Whole

SMALLEST_CHUNK = 16
"""Features that the matrix units of a GPU take at a time, at least."""


@dataclass(frozen=True)
class Group:
    """Results of equal width: each is the row `whole` times some columns of a matrix, from `columns[i]` on."""

    whole: Whole
    results: tuple[Piece, ...]
    matrices: tuple[str, ...]
    columns: tuple[int, ...]

    @property
    def width(self) -> int:
        """Of each result."""
        return self.results[0].width

    @property
    def depth(self) -> int:
        """Features that are multiplied."""
        return sum(piece.width for piece in self.whole)

    @property
    def dtype(self) -> torch.dtype:
        """Of what is multiplied."""
        return self.whole[0].dtype


def groups(products: list[Product]) -> list[Group]:
    """The products of one stage, grouped."""
    wanted: dict[tuple[Whole, int], list[tuple[Piece, str, int]]] = {}
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
            found.append(Group(whole, results, names, columns))
            del parts[:size]
    return found


def chunks(depth: int, largest: int) -> list[int]:
    """`depth` features as powers of two, none above `largest`, the last one perhaps with room to spare."""
    found = []
    while depth > 0:
        size = largest
        while size > SMALLEST_CHUNK and size > depth:
            size //= 2
        found.append(size)
        depth -= size
    return found


def pack(group: Group, matrices: Mapping[str, Tensor], depth: int, blocks: int, tile: int) -> Tensor:
    """The group's columns [blocks, depth, results * tile], zeros where a matrix has none."""
    room = blocks * tile
    parts = []
    for name, column in zip(group.matrices, group.columns, strict=True):
        part = matrices[name][:, column : column + group.width]
        if room != group.width or depth != group.depth:
            part = torch.nn.functional.pad(part, (0, room - group.width, 0, depth - group.depth))
        parts.append(part)
    if len(parts) == 1:
        packed: Tensor = parts[0].unflatten(1, (blocks, tile)).transpose(0, 1)
        return packed.contiguous()
    stacked: Tensor = torch.stack(parts).unflatten(2, (blocks, tile))
    four = len(parts) == 4
    turned = stacked.unflatten(0, (2, 2)).permute(3, 2, 0, 4, 1) if four else stacked.permute(2, 1, 3, 0)
    return turned.flatten(2).contiguous()
