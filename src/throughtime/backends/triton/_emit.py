"""A staged program and a geometry as the source of a kernel.

One block of threads runs the kernel for `ROWS` rows of the batch and its own units, through all steps. The order within a
step is the order of need: what others wait for is written first, then the block says so, and while it waits for the
others it stores results and fetches what the next step reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from throughtime.backends.triton._expressions import BOTH, EMPTY, INSIDE, OUTSIDE, TOGETHER, number, pointwise
from throughtime.backends.triton._geometry import LARGEST_CHUNK, STREAMED_CHUNK, Geometry, depth
from throughtime.backends.triton._pieces import Piece, Pointwise, Product, Reduction
from throughtime.backends.triton._products import Group, chunks, groups
from throughtime.backends.triton._stages import Stage, Staged, Whole
from throughtime.compiler._loop import Row

SLOTS = 3
"""Copies of what is exchanged: a block can be a step ahead of one that still reads what the step before wrote."""

READ_AHEAD_BYTES = 160
"""Of the rows it multiplies, a thread reads so many bytes ahead of the products."""


@dataclass(frozen=True)
class Source:
    """A kernel: its text, the groups whose packed columns it takes, and the rows and shares that are exchanged."""

    text: str
    groups: tuple[Group, ...]
    wholes: tuple[Whole, ...]
    shares: tuple[Reduction, ...]
    strides: tuple[int, ...]
    depths: tuple[int, ...]


def stage_groups(staged: Staged) -> list[list[Group]]:
    """The groups of products of each stage."""
    return [groups([op for op in stage.operations if isinstance(op, Product)]) for stage in staged.stages]


def emit(staged: Staged, shape: Geometry) -> Source:
    """The source of the kernel `loop`."""
    writer = _Writer(staged, shape)
    text = "\n".join(writer.lines()) + "\n"
    return Source(text, tuple(writer.groups), tuple(staged.wholes), tuple(staged.shares), tuple(writer.strides), tuple(writer.depths))


class _Writer:
    def __init__(self, staged: Staged, shape: Geometry) -> None:
        self.staged, self.shape = staged, shape
        self.program, self.pieces = staged.cut.program, staged.cut.pieces
        self.by_stage = stage_groups(staged)
        self.groups = [group for found in self.by_stage for group in found]
        self.depths = [depth(*plan) for plan in zip(self.groups, shape.resident, shape.ways, strict=True)]
        self.strides = [
            max(deep for group, deep in zip(self.groups, self.depths, strict=True) if group.whole == whole)
            for whole in staged.wholes
        ]
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

    def _all_pieces(self) -> Iterator[Piece]:
        for row in self.pieces.values():
            yield from row

    def _pieces_read(self) -> set[Piece]:
        """Pieces that somebody needs in a step."""
        found: set[Piece] = set()
        for op in self.staged.cut.operations:
            if isinstance(op, Pointwise):
                found.update(arg for arg in op.args if isinstance(arg, Piece))
            else:
                found.update(op.pieces)
        for row in self.program.stored:
            found.update(self.pieces[row.name])
        return found | {one.after for one in self.staged.carried}

    def name(self, piece: Piece) -> str:
        """The variable that holds a block's own units of a piece."""
        return self._names[piece]

    # The kernel as a whole.

    def lines(self) -> Iterator[str]:
        yield "@triton.jit"
        yield "def loop("
        for names in self._parameters():
            if names:
                yield f"    {', '.join(names)},"
        yield "    T, B, FIRST, STEP_STRIDE, ROW_STRIDE, PADDED, FIRST_TILE, RAGGED: tl.constexpr, PRECISION: tl.constexpr,"
        yield "):"
        yield from self._indented(self._prologue(), 1)
        yield "    for i in range(count):"
        yield from self._indented(self._step(), 2)
        yield from self._indented(self._epilogue(), 1)

    def _parameters(self) -> Iterator[list[str]]:
        program = self.program
        yield [f"in_{self._rows[row]}" for row in program.streams]
        yield [f"lag_{self._rows[row]}, first_{self._rows[row]}" for row in program.lagged]
        yield [f"const_{self._rows[row]}" for row in program.constants]
        yield [f"carry_{self._rows[carry.before]}" for carry in program.carried]
        yield [f"out_{index}" for index in range(len(program.stored))]
        yield [f"columns_{index}" for index in range(len(self.groups))]
        yield [f"row_{index}" for index in range(len(self.staged.wholes))]
        yield [f"share_{index}" for index in range(len(self.staged.shares))]
        yield ["counters", "table"]

    @staticmethod
    def _indented(lines: Iterable[str], levels: int) -> Iterator[str]:
        return ("    " * levels + line if line else "" for line in lines)

    def _prologue(self) -> Iterator[str]:
        rows, blocks = self.shape.rows, self.shape.blocks
        yield f"tile = FIRST_TILE + tl.program_id(0) // {blocks}"
        yield f"block = tl.program_id(0) % {blocks}"
        yield f"rows = tile * {rows} + tl.arange(0, {rows})"
        yield f"counter = counters + tile * {COUNTER_STRIDE}"
        yield "met = 0"
        for width in sorted({piece.width for piece in self._all_pieces()} - {1}):
            tile = self.shape.tile(width)
            yield f"u{width} = (block * {tile} + tl.arange(0, {tile}))[None, :]"
        yield from self._constants()
        yield from self._columns()
        for carry in self.program.carried:
            start = 0
            for piece in self.pieces[carry.before.name]:
                base = f"carry_{self._rows[carry.before]}"
                yield f"{self.name(piece)} = {self._load(base, 'rows', carry.before, start, piece, 'rows < B')}"
                start += piece.width
        handed_on = [one.before for stage in self.staged.stages for one in stage.handed_on]
        for piece in dict.fromkeys(handed_on):
            yield from self._show(piece, self.name(piece), "0")
        if handed_on:
            yield f"arrive(counter, {blocks})"
        yield "if RAGGED:"
        yield "    count = tl.load(table + 2 * T + tile).to(tl.int32)"
        yield "else:"
        yield "    count = T"
        yield from self._fetch("0", "")
        if handed_on:
            yield from self._meet()

    def _constants(self) -> Iterator[str]:
        for row in self.program.constants:
            start = 0
            for piece in self.pieces[row.name]:
                if piece in self.read:
                    where = f"const_{self._rows[row]} + {start}"
                    where = f"{where} + {self._unit(piece)}" if piece.width > 1 else f"{where} + tl.zeros([1, 1], tl.int32)"
                    mask = self._own(piece)
                    masked = f", mask={mask}, other=0" if mask else ""
                    yield f"{self.name(piece)} = tl.load({where}{masked}).to({INSIDE[piece.dtype]})"
                start += piece.width

    def _columns(self) -> Iterator[str]:
        """This block's columns of the matrices, as far as they stay on chip."""
        for index, group in enumerate(self.groups):
            wide = len(group.results) * self.shape.tile(group.width)
            here = f"columns_{index} + block.to(tl.int64) * {self.depths[index] * wide} + tl.arange(0, {wide})"
            yield f"own_{index} = {here}"
            for place, (start, size) in enumerate(self._chunks(index)):
                features = self._features(index, start, size, "[:, :, None]", "[:, None]")
                yield f"w{index}_{place} = tl.load(own_{index} + {features} * {wide})"

    def _chunks(self, index: int) -> list[tuple[int, int]]:
        """Where the chunks of a group start, and their sizes; within each way the same."""
        sizes = chunks(self.shape.resident[index] // self.shape.ways[index], LARGEST_CHUNK)
        return [(sum(sizes[:place]), size) for place, size in enumerate(sizes)]

    def _features(self, index: int, start: int, size: int, axes: str, alone: str) -> str:
        """The numbers of a chunk's features, of all ways."""
        ways = self.shape.ways[index]
        if ways == 1:
            return f"({start} + tl.arange(0, {size})){alone}"
        each = self.shape.resident[index] // ways
        return f"({start} + tl.arange(0, {ways})[:, None] * {each} + tl.arange(0, {size})[None, :]){axes}"

    def _epilogue(self) -> Iterator[str]:
        for carry in self.program.carried:
            start = 0
            for piece in self.pieces[carry.before.name]:
                base = f"carry_{self._rows[carry.before]}"
                yield self._store(base, "rows", carry.before, start, piece, self.name(piece), "rows < B")
                start += piece.width

    # One step.

    def _step(self) -> Iterator[str]:
        yield f"slot = i % {SLOTS}"
        meeting = [stage for stage in self.staged.stages if stage.meets]
        stored: set[int] = set()
        known = {piece for row in self._from_outside() for piece in self.pieces[row.name]}
        shares: list[tuple[int, Reduction]] = []
        if not meeting:
            yield from self._fetch("tl.minimum(i + 1, tl.maximum(count - 1, 0))", "_next")
        for number_, stage in enumerate(self.staged.stages):
            yield f"# stage {number_}"
            yield from self._shared_results(shares)
            known.update(share.result for _, share in shares)
            yield from self._products(number_)
            for op in stage.operations:
                if isinstance(op, Pointwise):
                    yield f"{self.name(op.result)} = {self._pointwise(op)}"
                elif isinstance(op, Reduction) and all(piece.width == 1 for piece in op.pieces):
                    yield f"{self.name(op.result)} = {self._fold(op.kind, map(self.name, op.pieces))}"
                known.update(op.results if isinstance(op, Product) else (op.result,))
            shares = [(self.staged.shares.index(share), share) for share in stage.shares]
            yield from self._exchange(stage, shares)
            if stage.meets:
                yield f"arrive(counter, {self.shape.blocks})"
            yield from self._stores(known, stored)
            if meeting and stage is meeting[-1]:
                yield from self._fetch("tl.minimum(i + 1, tl.maximum(count - 1, 0))", "_next")
            if stage.meets:
                yield from self._meet()
        yield "# on to the next step"
        handed_on = {one for stage in self.staged.stages for one in stage.handed_on}
        for one in self.staged.carried:
            if one not in handed_on:
                yield f"{self.name(one.before)}_on = tl.where(alive[:, None], {self.name(one.after)}, {self.name(one.before)})"
        for one in self.staged.carried:
            yield f"{self.name(one.before)} = {self.name(one.before)}_on"
        for variable in ("t", "alive", "place", *(self.name(piece) for piece in self._fetched())):
            yield f"{variable} = {variable}_next"

    def _from_outside(self) -> Iterator[Row]:
        program = self.program
        yield from (*program.streams, *program.lagged, *program.constants)
        yield from (carry.before for carry in program.carried)

    def _exchange(self, stage: Stage, shares: list[tuple[int, Reduction]]) -> Iterator[str]:
        for piece in stage.shown:
            yield from self._show(piece, self.name(piece), "slot")
        for one in stage.handed_on:
            after = f"{self.name(one.before)}_on"
            yield f"{after} = tl.where(alive[:, None], {self.name(one.after)}, {self.name(one.before)})"
            yield from self._show(one.before, after, f"(i + 1) % {SLOTS}")
        for index, share in shares:
            parts = []
            for piece in share.pieces:
                if piece.width > 1:
                    own, value = self._own(piece), self.name(piece)
                    parts.append(TOGETHER[share.kind].format(f"tl.where({own}, {value}, {EMPTY[share.kind]})" if own else value))
            place = f"(slot * PADDED + rows)[:, None] * {self.shape.blocks} + block"
            yield f'tl.store(share_{index} + {place}, {self._fold(share.kind, parts)}, cache_modifier=".cg")'

    def _show(self, piece: Piece, value: str, slot: str) -> Iterator[str]:
        """Write this block's units of a piece where the others will read all of it."""
        for index, whole in enumerate(self.staged.wholes):
            start = 0
            for part in whole:
                if part == piece:
                    place = f"row_{index} + ({slot} * PADDED + rows).to(tl.int64)[:, None] * {self.strides[index]} + {start}"
                    mask = self._own(piece) if piece.width > 1 else "block == 0"
                    masked = f", mask={mask}" if mask else ""
                    yield f'tl.store({place}{self._plus(piece)}, {value}.to({OUTSIDE[piece.dtype]}){masked}, cache_modifier=".cg")'
                start += part.width

    def _meet(self) -> Iterator[str]:
        yield f"met += {self.shape.blocks}"
        yield f"meet(counter, met, {self.shape.blocks})"

    def _shared_results(self, shares: list[tuple[int, Reduction]]) -> Iterator[str]:
        blocks = self.shape.blocks
        wide = 1 << (blocks - 1).bit_length()
        for index, share in shares:
            mask = f", mask=tl.arange(0, {wide})[None, :] < {blocks}, other={EMPTY[share.kind]}" if wide != blocks else ""
            place = f"share_{index} + (slot * PADDED + rows)[:, None] * {blocks} + tl.arange(0, {wide})[None, :]"
            yield f'shares = tl.load({place}{mask}, cache_modifier=".cg")'
            alone = [self.name(piece) for piece in share.pieces if piece.width == 1]
            yield f"{self.name(share.result)} = {self._fold(share.kind, [TOGETHER[share.kind].format('shares'), *alone])}"

    @staticmethod
    def _fold(kind: str, parts: Iterable[str]) -> str:
        first, *rest = parts
        for part in rest:
            first = BOTH[kind].format(first, part)
        return first

    def _pointwise(self, op: Pointwise) -> str:
        rows = [arg for arg in op.args if isinstance(arg, Piece)]
        dtype = rows[-1].dtype if op.kind == "where" else rows[0].dtype
        args = [self.name(arg) if isinstance(arg, Piece) else number(arg, dtype) for arg in op.args]
        return pointwise(op.kind, op.result.dtype, args, rows[0].dtype)

    # Products.

    def _products(self, stage: int) -> Iterator[str]:
        before = sum(map(len, self.by_stage[:stage]))
        for index, group in enumerate(self.by_stage[stage], before):
            yield from self._product(index, group)

    def _product(self, index: int, group: Group) -> Iterator[str]:
        rows, kept, ways = self.shape.rows, self.shape.resident[index], self.shape.ways[index]
        whole, wide = self.staged.wholes.index(group.whole), len(group.results) * self.shape.tile(group.width)
        yield f"whole = row_{whole} + (slot * PADDED + rows).to(tl.int64)[:, None] * {self.strides[whole]}"
        sums = 1 if rows * wide > 4096 else 2
        parts = self._chunks(index)
        sums = min(sums, max(1, len(parts)))
        ahead = read = 0
        for place, (_, size) in enumerate(parts):
            while read < len(parts) and (read <= place or ahead + self._bytes(index, parts[read][1]) <= READ_AHEAD_BYTES):
                features = self._features(index, *parts[read], "[:, None, :]", "[None, :]")
                rows_of = "whole" if ways == 1 else "whole[None, :, :]"
                yield f'a_{read} = tl.load({rows_of} + {features}, cache_modifier=".cg")'
                ahead += self._bytes(index, parts[read][1])
                read += 1
            onto = f"sum_{place % sums}"
            added = f", {onto}" if place >= sums else ""
            yield f"{onto} = tl.dot(a_{place}, w{index}_{place}{added}, input_precision=PRECISION)"
            ahead -= self._bytes(index, size)
        if self.depths[index] > kept:
            if not parts:
                yield f"sum_0 = tl.zeros([{rows}, {wide}], tl.float32)"
            yield f"for k in tl.range({kept}, {self.depths[index]}, {STREAMED_CHUNK}, num_stages=3):"
            yield f'    a = tl.load(whole + (k + tl.arange(0, {STREAMED_CHUNK}))[None, :], cache_modifier=".cg")'
            yield f"    w = tl.load(own_{index} + (k + tl.arange(0, {STREAMED_CHUNK}))[:, None] * {wide})"
            yield "    sum_0 = tl.dot(a, w, sum_0, input_precision=PRECISION)"
        yield from self._parts(index, group, " + ".join(f"sum_{one}" for one in range(sums)))

    def _bytes(self, index: int, size: int) -> int:
        """Of a chunk of the rows that are multiplied, what a thread reads."""
        group, threads = self.groups[index], 32 * self.shape.warps
        return self.shape.rows * self.shape.ways[index] * size * group.dtype.itemsize // threads

    def _parts(self, index: int, group: Group, total: str) -> Iterator[str]:
        """The results of a group out of its sums.

        The bits that tell the ways and the results apart become axes of two, the last ones, and are split off.
        """
        rows, tile, ways = self.shape.rows, self.shape.tile(group.width), self.shape.ways[index]
        names = [self.name(piece) for piece in group.results]
        first = ways.bit_length() - 1
        shape = [*[2] * first, rows, *[2] * (len(names) == 4), tile, *[2] * (len(names) > 1)]
        if len(shape) == 2:
            yield f"{names[0]} = {total}"
            return
        unit = len(shape) - 1 - (len(names) > 1)
        bits = [axis for axis in range(first + 1, len(shape)) if axis != unit]
        # The ways go last: they are added up first.
        order = [first, unit, *bits, *range(first)]
        yield f"parts = tl.permute(tl.reshape({total}, {shape}), {tuple(order)})"
        for _ in range(first):
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

    # Memory.

    def _fetched(self) -> list[Piece]:
        rows = (*self.program.streams, *self.program.lagged)
        return [piece for row in rows for piece in self.pieces[row.name] if piece in self.read]

    def _fetch(self, index: str, suffix: str) -> Iterator[str]:
        """What a step reads from streams, and where its rows lie."""
        lagged = any(piece in self.read for row in self.program.lagged for piece in self.pieces[row.name])
        time = f"tl.maximum(count - 1, 0) - {index}" if self.program.reverse else index
        yield f"t{suffix} = {time}"
        yield "if RAGGED:"
        yield f"    alive{suffix} = rows < tl.load(table + t{suffix})"
        yield f"    place{suffix} = tl.load(table + T + t{suffix}) + rows.to(tl.int64) * ROW_STRIDE"
        if lagged:
            yield f"    place_before = tl.load(table + T + tl.maximum(t{suffix} - 1, 0)) + rows.to(tl.int64) * ROW_STRIDE"
        yield "else:"
        yield f"    alive{suffix} = rows < B"
        yield f"    place{suffix} = FIRST + t{suffix} * STEP_STRIDE.to(tl.int64) + rows.to(tl.int64) * ROW_STRIDE"
        if lagged:
            yield f"    place_before = place{suffix} - STEP_STRIDE"
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
                    first = self._load(f"first_{name}", "rows", row, start, piece, f"{alive}== 0)")
                    yield f"{self.name(piece)}{suffix} = {later}"
                    yield f"{self.name(piece)}{suffix} = tl.where(t{suffix} > 0, {self.name(piece)}{suffix}, {first})"
                start += piece.width

    def _stores(self, known: set[Piece], stored: set[int]) -> Iterator[str]:
        """Results into streams, as soon as they are there."""
        for index, row in enumerate(self.program.stored):
            if index in stored or not known.issuperset(self.pieces[row.name]):
                continue
            stored.add(index)
            start = 0
            for piece in self.pieces[row.name]:
                yield self._store(f"out_{index}", "place", row, start, piece, self.name(piece), "alive")
                start += piece.width

    def _unit(self, piece: Piece) -> str:
        return f"u{piece.width}" if piece.width > 1 else "0"

    def _plus(self, piece: Piece) -> str:
        return f" + u{piece.width}" if piece.width > 1 else ""

    def _own(self, piece: Piece) -> str:
        """Which units of a tile there are; nothing if all."""
        if piece.width == 1 or self.shape.tile(piece.width) * self.shape.blocks == piece.width:
            return ""
        return f"(u{piece.width} < {piece.width})"

    def _load(self, base: str, place: str, row: Row, start: int, piece: Piece, alive: str) -> str:
        where = f"{base} + {place}.to(tl.int64)[:, None] * {row.width} + {start}{self._plus(piece)}"
        own = self._own(piece)
        mask = f"({alive})[:, None]{f' & {own}' if own else ''}"
        return f"tl.load({where}, mask={mask}, other=0).to({INSIDE[piece.dtype]})"

    def _store(self, base: str, place: str, row: Row, start: int, piece: Piece, value: str, alive: str) -> str:
        where = f"{base} + {place}.to(tl.int64)[:, None] * {row.width} + {start}{self._plus(piece)}"
        own = self._own(piece) if piece.width > 1 else "(block == 0)"
        mask = f"({alive})[:, None]{f' & {own}' if own else ''}"
        return f"tl.store({where}, {value}.to({OUTSIDE[row.dtype]}), mask={mask})"


COUNTER_STRIDE = 32
"""Counters lie a cache line apart."""

_TAKEN = frozenset(
    "T B FIRST STEP_STRIDE ROW_STRIDE PADDED FIRST_TILE RAGGED PRECISION tile block rows counter counters table met count i "
    "t alive place slot whole parts one other shares a w k loop tl triton arrive meet larger smaller times libdevice place_before "
    "lambda del is in not and or if for from def class return while with as None True False float".split()
)
_PREFIXES = ("w", "a_", "u", "sum_", "own_", "in_", "lag_", "first_", "const_", "carry_", "out_", "columns_", "row_", "share_")
_SUFFIXES = ("_next", "_on")
