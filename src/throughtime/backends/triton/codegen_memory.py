"""Names of a kernel, and its ways to and from memory: what it reads from streams, and what it stores into them."""

from __future__ import annotations

from collections.abc import Iterator

from throughtime.backends.triton.barrier_stages import Staged
from throughtime.backends.triton.codegen_expressions import INSIDE, OUTSIDE
from throughtime.backends.triton.row_segments import Pointwise, Segment
from throughtime.backends.triton.tiling import Tiling
from throughtime.compiler.ir.loop_ir import Row

_TAKEN = frozenset(
    "T B FIRST STEP_STRIDE ROW_STRIDE PADDED FIRST_TILE RAGGED PRECISION tile block rows counter counters table "
    "met count i t alive place active offset before later active_ahead offset_ahead before_ahead slot whole total "
    "parts one other shares a w k loop tl triton arrive meet larger smaller plus times libdevice place_before lambda "
    "next_counters order home ORDER "
    "del is in not and or if for from def class return while with as None True False float".split()
)
_PREFIXES = (
    "w",
    "a_",
    "u",
    "sum_",
    "total_",
    "here_",
    "own_",
    "in_",
    "lag_",
    "first_",
    "const_",
    "start_",
    "carry_",
    "out_",
    "columns_",
    "row_",
    "share_",
)
_SUFFIXES = ("_next", "_on")


class MemoryCodegen:
    """A staged program and a geometry; the variables that hold pieces, and lines that load and store them."""

    def __init__(self, staged: Staged, shape: Tiling) -> None:
        self.staged, self.shape = staged, shape
        self.program, self.pieces = staged.cut.program, staged.cut.pieces
        self._taken = set(_TAKEN)
        self._names = {piece: self._unique(piece.name) for piece in dict.fromkeys(self._all_pieces())}
        self._rows = {row: self._unique(row.name) for row in self._from_outside()}
        self.read = self._pieces_read()

    def _unique(self, name: str) -> str:
        """A name of the program as a variable that means nothing else."""
        plain = "".join(letter if letter.isalnum() else "_" for letter in name)
        if plain in self._taken or not plain[0].isalpha() or plain.startswith(_PREFIXES) or plain.endswith(_SUFFIXES):
            plain = f"v_{plain}"
        while plain in self._taken:
            plain += "_"
        self._taken.add(plain)
        return plain

    def _all_pieces(self) -> Iterator[Segment]:
        for row in self.pieces.values():
            yield from row

    def _pieces_read(self) -> set[Segment]:
        """Pieces that somebody needs in a step."""
        found: set[Segment] = set()
        for op in self.staged.cut.operations:
            if isinstance(op, Pointwise):
                found.update(arg for arg in op.args if isinstance(arg, Segment))
            else:
                found.update(op.pieces)
        for row in self.program.stored:
            found.update(self.pieces[row.name])
        return found | {one.after for one in self.staged.carried}

    def name(self, piece: Segment) -> str:
        """The variable that holds a block's own units of a piece."""
        return self._names[piece]

    def _from_outside(self) -> Iterator[Row]:
        program = self.program
        yield from (*program.streams, *program.lagged, *program.constants)
        yield from (carry.before for carry in program.carried)

    def fetched(self) -> list[Segment]:
        """What a step reads from streams."""
        rows = (*self.program.streams, *self.program.lagged)
        return [piece for row in rows for piece in self.pieces[row.name] if piece in self.read]

    def _fetch(self, index: str, suffix: str) -> Iterator[str]:
        """What a step reads from streams, and where its rows lie.

        Where lengths differ, a table says where; it is read a step ahead, or two waits would follow each other.
        """
        lagged = any(piece in self.read for row in self.program.lagged for piece in self.pieces[row.name])
        names = ["active", "offset", *["before"] * lagged]
        yield f"t{suffix} = {self._time(index)}"
        yield "if RAGGED:"
        if suffix:
            yield from (f"    {name} = {name}_ahead" for name in names)
        else:
            yield from self._look_up(names, f"t{suffix}", "")
        yield f"    alive{suffix} = rows < active"
        yield f"    place{suffix} = offset + rows * ROW_STRIDE"
        if lagged:
            yield "    place_before = before + rows * ROW_STRIDE"
        yield f"    later = {self._time(f'tl.minimum({index} + 1, tl.maximum(count - 1, 0))')}"
        yield from self._look_up(names, "later", "_ahead")
        yield "else:"
        yield f"    alive{suffix} = rows < B"
        yield f"    place{suffix} = FIRST + t{suffix} * STEP_STRIDE + rows * ROW_STRIDE"
        if lagged:
            yield f"    place_before = place{suffix} - STEP_STRIDE"
        yield from self._fetch_streams(suffix)

    def _time(self, index: str) -> str:
        return f"tl.maximum(count - 1, 0) - {index}" if self.program.reverse else index

    @staticmethod
    def _look_up(names: list[str], time: str, suffix: str) -> Iterator[str]:
        where = {"active": time, "offset": f"T + {time}", "before": f"T + tl.maximum({time} - 1, 0)"}
        return (f"    {name}{suffix} = tl.load(table + {where[name]})" for name in names)

    def _fetch_streams(self, suffix: str) -> Iterator[str]:
        for row in self.program.streams:
            start = 0
            for piece in self.pieces[row.name]:
                if piece in self.read:
                    base = f"in_{self._rows[row]}"
                    loaded = self._load(base, f"place{suffix}", row, start, piece, f"alive{suffix}")
                    yield f"{self.name(piece)}{suffix} = {loaded}"
                start += piece.width
        for row in self.program.lagged:
            start = 0
            for piece in self.pieces[row.name]:
                if piece in self.read:
                    name, alive = self._rows[row], f"alive{suffix} & (t{suffix} "
                    later = self._load(f"lag_{name}", "place_before", row, start, piece, f"{alive}> 0)")
                    first = self._load(f"first_{name}", "home", row, start, piece, f"{alive}== 0)")
                    yield f"{self.name(piece)}{suffix} = {later}"
                    yield f"{self.name(piece)}{suffix} = tl.where(t{suffix} > 0, {self.name(piece)}{suffix}, {first})"
                start += piece.width

    def _stores(self, known: set[Segment], stored: set[int]) -> Iterator[str]:
        """Results into streams, as soon as they are there."""
        for index, row in enumerate(self.program.stored):
            if index in stored or not known.issuperset(self.pieces[row.name]):
                continue
            stored.add(index)
            start = 0
            for piece in self.pieces[row.name]:
                yield self._store(f"out_{index}", "place", row, start, piece, self.name(piece), "alive")
                start += piece.width

    def _unit(self, piece: Segment) -> str:
        return f"u{piece.width}" if piece.width > 1 else "0"

    def _plus(self, start: int, piece: Segment) -> str:
        """The way from the first feature of a row to this block's units of a piece."""
        return (f" + {start}" if start else "") + (f" + u{piece.width}" if piece.width > 1 else "")

    def _own(self, piece: Segment) -> str:
        """Which units of a tile there are; nothing if all."""
        if piece.width == 1 or self.shape.tile(piece.width) * self.shape.blocks == piece.width:
            return ""
        return f"(u{piece.width} < {piece.width})"

    def _load(self, base: str, place: str, row: Row, start: int, piece: Segment, alive: str) -> str:
        where = f"{base} + {place}.to(tl.int64)[:, None] * {row.width}{self._plus(start, piece)}"
        own = self._own(piece)
        mask = f"({alive})[:, None]{f' & {own}' if own else ''}"
        return f"tl.load({where}, mask={mask}, other=0).to({INSIDE[piece.dtype]})"

    def _store(self, base: str, place: str, row: Row, start: int, piece: Segment, value: str, alive: str) -> str:
        where = f"{base} + {place}.to(tl.int64)[:, None] * {row.width}{self._plus(start, piece)}"
        own = self._own(piece) if piece.width > 1 else "(block == 0)"
        mask = f"({alive})[:, None]{f' & {own}' if own else ''}"
        return f"tl.store({where}, {value}.to({OUTSIDE[row.dtype]}), mask={mask})"
