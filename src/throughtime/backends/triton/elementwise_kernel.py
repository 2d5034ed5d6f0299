"""A group of pointwise operations and reductions as one kernel, for one step.

A block of threads has some rows and some units of every piece of them; where the group reduces rows, all units. What
lies in streams is found by a table that the kernel reads on the card, a row of numbers for each step: the rows that are
alive, then an address and the distance of rows for each stream. So a recorded launch works on any stream anywhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from throughtime.backends.triton.codegen_expressions import BOTH, EMPTY, INSIDE, OUTSIDE, TOGETHER, number, pointwise
from throughtime.backends.triton.row_segments import (
    Pointwise,
    Reduction,
    Segment,
    SegmentedProgram,
    SegmentProduct,
    cut,
)
from throughtime.backends.triton.target import gpu_target
from throughtime.compiler import LoopProgram, Row

IN_REGISTERS = {**INSIDE, torch.float64: "tl.float64"}
IN_MEMORY = {**OUTSIDE, torch.float64: "tl.float64"}
BLOCK = 256
"""Numbers of each piece that a block has: of 128 rows of 2048 float32 gates, 256 with 4 warps took 2.7 µs, 1024 3.3."""
VECTOR_BYTES = 16
"""What a thread reads at once; rows that are so many bytes apart can be read that way."""
HEADER = 2
"""Numbers of a table before those of its streams: the rows alive, and one that nobody reads."""


@dataclass(frozen=True)
class Written:
    """Where a result goes: into a tensor of its own, to its place in the stream of a column of the table, or both."""

    tensor: bool
    column: int | None


class ElementwiseKernel:
    """A group as a kernel. Streams by name that are `read` in place have a column of the table, others are tensors."""

    def __init__(
        self,
        program: LoopProgram,
        fills: Mapping[str, float],
        read: Mapping[str, int],
        written: Sequence[Written],
    ) -> None:
        writer = Writer(cut(program), fills, read, written)
        self.source = "\n".join(writer.lines()) + "\n"
        self._tile = writer.tile
        self._dtypes = writer.dtypes

    @cached_property
    def _function(self) -> Any:
        return gpu_target.value.jit("group", self.source)

    def compile(self, device: torch.device) -> None:
        """What can go wrong with a kernel goes wrong here, and not in the middle of a walk."""
        if device.type == "cuda":
            with torch.cuda.device(device):
                self._function.warmup(torch.int64, *self._dtypes, 1, grid=(1, 1), num_warps=self._tile.warps)

    def __call__(self, place: Tensor, tensors: Sequence[Tensor], results: Sequence[Tensor], rows: int) -> None:
        """Run on `rows` rows: streams and constants that are tensors, in order; results that are, in order."""
        grid = (-(-rows // self._tile.rows), self._tile.blocks)
        self._function[grid](place, *tensors, *results, rows, num_warps=self._tile.warps)


@dataclass(frozen=True)
class _Tile:
    """Rows and units of a block, so many blocks side by side, each with so many warps."""

    rows: int
    units: int
    blocks: int
    warps: int

    @classmethod
    def of(cls, pieces: Sequence[Segment], *, reduces: bool) -> _Tile:
        """Small blocks, which are fast to start and many; whole rows where they are reduced."""
        widest = max(piece.width for piece in pieces)
        units = _power(widest) if reduces else min(_power(widest), BLOCK)
        rows = max(1, BLOCK // units)
        return cls(rows, units, -(-widest // units), min(16, max(4, rows * units // 512)))


class Writer:
    """The source of a kernel."""

    def __init__(
        self, pieces: SegmentedProgram, fills: Mapping[str, float], read: Mapping[str, int], written: Sequence[Written]
    ) -> None:
        self._cut, self._program = pieces, pieces.program
        self._fills, self._read, self._written = fills, read, written
        self._operations = [op for op in pieces.operations if not isinstance(op, SegmentProduct)]
        found = self._pieces_needed()
        self._names = {piece: f"v{index}_{_plain(piece.name)}" for index, piece in enumerate(found)}
        self.tile = _Tile.of(found, reduces=any(isinstance(op, Reduction) for op in self._operations))

    def _pieces_needed(self) -> list[Segment]:
        """Of all rows, what is computed with or stored."""
        found = [piece for row in self._program.stored for piece in self._cut.pieces[row.name]]
        for op in self._operations:
            args = op.args if isinstance(op, Pointwise) else op.pieces
            found += [*(arg for arg in args if isinstance(arg, Segment)), op.result]
        return list(dict.fromkeys(found))

    @property
    def dtypes(self) -> list[torch.dtype]:
        """Of the tensors that the kernel is given, in order."""
        return [row.dtype for _, row in self._tensors()]

    def _tensors(self) -> Iterator[tuple[str, Row]]:
        """What the kernel is given, by name: rows that are read, constants, rows that are written."""
        program = self._program
        for index, row in enumerate((*program.streams, *program.constants)):
            if self._is_tensor(row):
                yield f"in_{index}", row
        for index, (row, where) in enumerate(zip(program.stored, self._written, strict=True)):
            if where.tensor:
                yield f"out_{index}", row

    def lines(self) -> Iterator[str]:
        """The source."""
        program, tile = self._program, self.tile
        given = [*program.streams, *program.constants]
        narrow = ", ".join(f'"{name}"' for name, row in self._tensors() if not _is_aligned(row))
        yield f'@triton.jit(do_not_specialize=["N"], do_not_specialize_on_alignment=[{narrow}])'
        yield f"def loop({', '.join(['place', *(name for name, _ in self._tensors()), 'N'])}):"
        yield f"    rows = tl.program_id(0) * {tile.rows} + tl.arange(0, {tile.rows})"
        yield "    far = rows.to(tl.int64)[:, None]"
        yield "    here = (rows < N)[:, None]"
        if self._columns():
            yield "    alive = (rows < tl.load(place))[:, None]"
        for width in sorted({piece.width for piece in self._names} - {1}):
            yield f"    u{width} = (tl.program_id(1) * {tile.units} + tl.arange(0, {tile.units}))[None, :]"
        for column, row in sorted(self._columns().items()):
            yield from self._address(column, row)
        for index, row in enumerate(given):
            yield from self._loads(index, row)
        for op in self._operations:
            yield f"    {self._operation(op)}"
        for index, (row, where) in enumerate(zip(program.stored, self._written, strict=True)):
            yield from self._stores(index, row, where)

    def _is_tensor(self, row: Row) -> bool:
        return row.name not in self._read and row.name not in self._fills

    def _columns(self) -> dict[int, Row]:
        """The columns of the table that the kernel uses."""
        found = {self._read[row.name]: row for row in self._program.streams if row.name in self._read}
        stored = zip(self._program.stored, self._written, strict=True)
        found.update({where.column: row for row, where in stored if where.column is not None})
        return found

    def _address(self, column: int, row: Row) -> Iterator[str]:
        """Where the rows of a stream begin, and how far they are apart."""
        memory = "tl.int8" if row.dtype == torch.bool else IN_MEMORY[row.dtype]
        address, apart = (f"tl.load(place + {HEADER + 2 * column + index})" for index in (0, 1))
        if _is_aligned(row):
            address = f"tl.multiple_of({address}, {VECTOR_BYTES})"
            apart = f"tl.multiple_of({apart}, {VECTOR_BYTES // row.dtype.itemsize})"
            yield f"    at_{column} = tl.multiple_of({address}.to(tl.pointer_type({memory})), {VECTOR_BYTES})"
        else:
            yield f"    at_{column} = {address}.to(tl.pointer_type({memory}))"
        yield f"    at_{column} += far * {apart}"

    def _pieces(self, row: Row) -> Iterator[tuple[str, Segment]]:
        """The pieces of a row, and the way to a block's units of each."""
        start = 0
        for piece in self._cut.pieces[row.name]:
            yield (f" + {start}" if start else "") + (f" + u{piece.width}" if piece.width > 1 else ""), piece
            start += piece.width

    def _own(self, piece: Segment) -> str:
        """Which units of a tile there are; nothing if all."""
        if piece.width == 1 or self.tile.units * self.tile.blocks == piece.width:
            return ""
        return f" & (u{piece.width} < {piece.width})"

    def _loads(self, index: int, row: Row) -> Iterator[str]:
        column = self._read.get(row.name)
        for units, piece in self._pieces(row):
            if piece not in self._names:
                continue
            name, inside = self._names[piece], IN_REGISTERS[piece.dtype]
            if row.name in self._fills:
                yield f"    {name} = tl.full([1, 1], {self._fills[row.name]!r}, {inside})"
                continue
            if index >= len(self._program.streams):
                where, mask = f"in_{index} + tl.zeros([1, 1], tl.int32){units}", self._own(piece).removeprefix(" & ")
            elif column is None:
                where, mask = f"in_{index} + far * {row.width}{units}", f"here{self._own(piece)}"
            else:
                where, mask = f"at_{column}{units}", f"alive{self._own(piece)}"
            loaded = f"tl.load({where}{f', mask={mask}, other=0' if mask else ''})"
            yield f"    {name} = {loaded}{' != 0' if piece.dtype == torch.bool else f'.to({inside})'}"

    def _stores(self, index: int, row: Row, where: Written) -> Iterator[str]:
        for units, piece in self._pieces(row):
            own = self._own(piece) if piece.width > 1 else " & (tl.program_id(1) == 0)"
            value = f"{self._names[piece]}.to({IN_MEMORY[row.dtype]})"
            if where.tensor:
                yield f"    tl.store(out_{index} + far * {row.width}{units}, {value}, mask=here{own})"
            if where.column is not None:
                yield f"    tl.store(at_{where.column}{units}, {value}, mask=alive{own})"

    def _operation(self, op: Pointwise | Reduction) -> str:
        return f"{self._names[op.result]} = {self._reduced(op) if isinstance(op, Reduction) else self._computed(op)}"

    def _reduced(self, op: Reduction) -> str:
        parts = []
        for piece in op.pieces:
            value, own = self._names[piece], self._own(piece).removeprefix(" & ")
            if piece.width > 1:
                value = TOGETHER[op.kind].format(f"tl.where({own}, {value}, {EMPTY[op.kind]})" if own else value)
            parts.append(value)
        total = parts[0]
        for part in parts[1:]:
            total = BOTH[op.kind].format(total, part)
        return total

    def _computed(self, op: Pointwise) -> str:
        rows = [arg for arg in op.args if isinstance(arg, Segment)]
        if op.kind == "cast":
            name, dtype = self._names[rows[0]], op.result.dtype
            return f"{name} != 0" if dtype == torch.bool else f"{name}.to({IN_REGISTERS[dtype]})"
        dtype = rows[-1].dtype if op.kind == "where" else rows[0].dtype
        args = [self._names[arg] if isinstance(arg, Segment) else _number(arg, dtype) for arg in op.args]
        return pointwise(op.kind, op.result.dtype, args, rows[0].dtype)


def _is_aligned(row: Row) -> bool:
    """Whether the rows of a stream all begin where threads can read several numbers at once.

    If they do not, nobody tells Triton that the first one does: what it then reads in pairs, beside what it does not,
    its compiler has been seen to fail over.
    """
    return not row.width * row.dtype.itemsize % VECTOR_BYTES


def _number(value: float, dtype: torch.dtype) -> str:
    """A number as text; Triton takes one for float32 beside float64 unless it is told."""
    text = number(value, dtype)
    return f"tl.full([1, 1], {text}, tl.float64)" if dtype == torch.float64 else text


def _plain(name: str) -> str:
    return "".join(letter if letter.isalnum() and letter.isascii() else "_" for letter in name)


def _power(count: int) -> int:
    """The power of two that is not below."""
    return 1 << (count - 1).bit_length()
