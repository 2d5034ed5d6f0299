"""A staged program and a geometry as the source of a kernel.

One block of threads runs the kernel for some rows of the batch and its own units, through all steps. The order within
a step is the order of need: what others wait for is written first, then the block says so, and while it waits for
them it stores results and fetches what the next step reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from throughtime.backends.triton.barrier_stages import Stage, Staged, Whole
from throughtime.backends.triton.codegen_expressions import BOTH, EMPTY, INSIDE, OUTSIDE, TOGETHER, number, pointwise
from throughtime.backends.triton.codegen_matmul import MatmulCodegen
from throughtime.backends.triton.matmul_groups import MatmulGroup
from throughtime.backends.triton.row_segments import Operation, Pointwise, Reduction, Segment, SegmentProduct
from throughtime.backends.triton.tiling import Tiling

SLOTS = 3
"""Copies of what is exchanged: a block can be a step ahead of one that still reads what the step before wrote."""

COUNTER_STRIDE = 32
"""Counters lie a cache line apart."""


@dataclass(frozen=True)
class Source:
    """A kernel: its text, the groups whose packed columns it takes, and the rows and shares that are exchanged."""

    text: str
    groups: tuple[MatmulGroup, ...]
    wholes: tuple[Whole, ...]
    shares: tuple[Reduction, ...]
    strides: tuple[int, ...]
    depths: tuple[int, ...]


def emit(staged: Staged, shape: Tiling) -> Source:
    """The source of the kernel `loop`."""
    writer = _Writer(staged, shape)
    text = "\n".join(writer.lines()) + "\n"
    return Source(
        text,
        tuple(writer.groups),
        tuple(staged.wholes),
        tuple(staged.shares),
        tuple(writer.strides),
        tuple(writer.depths),
    )


class _Writer(MatmulCodegen):
    # The kernel as a whole.

    def lines(self) -> Iterator[str]:
        yield '@triton.jit(do_not_specialize=["T", "B", "FIRST", "STEP_STRIDE", "ROW_STRIDE", "ORDER", "FIRST_TILE"])'
        yield "def loop("
        for names in self._parameters():
            if names:
                yield f"    {', '.join(names)},"
        yield "    T, B, FIRST, STEP_STRIDE, ROW_STRIDE, PADDED, ORDER, FIRST_TILE,"
        yield "    RAGGED: tl.constexpr, PRECISION: tl.constexpr,"
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
        yield [f"start_{self._rows[carry.before]}" for carry in program.carried]
        yield [f"carry_{self._rows[carry.before]}" for carry in program.carried]
        yield [f"out_{index}" for index in range(len(program.stored))]
        yield [f"columns_{index}" for index in range(len(self.groups))]
        yield ["table", "order"]
        # The blocks' own, to meet: the host gives these in one piece.
        yield [f"row_{index}" for index in range(len(self.staged.wholes))]
        yield [f"share_{index}" for index in range(len(self.staged.shares))]
        yield ["counters", "next_counters"]

    @staticmethod
    def _indented(lines: Iterable[str], levels: int) -> Iterator[str]:
        return ("    " * levels + line if line else "" for line in lines)

    def _prologue(self) -> Iterator[str]:
        rows, blocks = self.shape.rows, self.shape.blocks
        yield f"tile = FIRST_TILE + tl.program_id(0) // {blocks}"
        yield f"block = tl.program_id(0) % {blocks}"
        yield f"rows = tile * {rows} + tl.arange(0, {rows})"
        yield f"counter = counters + tile * {COUNTER_STRIDE}"
        # Those of this launch were cleared by the one before.
        yield "if block == 0:"
        yield f"    tl.store(next_counters + tile * {COUNTER_STRIDE}, 0)"
        yield "met = 0"
        for width in sorted({piece.width for piece in self._all_pieces()} - {1}):
            tile = self.shape.tile(width)
            yield f"u{width} = (block * {tile} + tl.arange(0, {tile}))[None, :]"
        # Rows are in the order of their lengths, states in that of the batch.
        yield "if RAGGED:"
        yield "    home = tl.load(order + ORDER + rows, mask=rows < B, other=0)"
        yield "else:"
        yield "    home = rows"
        yield from self._constants()
        yield from self._columns()
        for carry in self.program.carried:
            start = 0
            for piece in self.pieces[carry.before.name]:
                base = f"start_{self._rows[carry.before]}"
                yield f"{self.name(piece)} = {self._load(base, 'home', carry.before, start, piece, 'rows < B')}"
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
            yield from self._reading(0, "0")
            yield from self._wait_at_barrier()

    def _constants(self) -> Iterator[str]:
        for row in self.program.constants:
            start = 0
            for piece in self.pieces[row.name]:
                if piece in self.read:
                    where = f"const_{self._rows[row]} + {start}"
                    where = (
                        f"{where} + {self._unit(piece)}" if piece.width > 1 else f"{where} + tl.zeros([1, 1], tl.int32)"
                    )
                    mask = self._own(piece)
                    masked = f", mask={mask}, other=0" if mask else ""
                    yield f"{self.name(piece)} = tl.load({where}{masked}).to({INSIDE[piece.dtype]})"
                start += piece.width

    def _epilogue(self) -> Iterator[str]:
        for carry in self.program.carried:
            start = 0
            for piece in self.pieces[carry.before.name]:
                base = f"carry_{self._rows[carry.before]}"
                yield self._store(base, "home", carry.before, start, piece, self.name(piece), "rows < B")
                start += piece.width

    # One step.

    def _step(self) -> Iterator[str]:
        yield f"slot = i % {SLOTS}"
        following = list(self._fetch("tl.minimum(i + 1, tl.maximum(count - 1, 0))", "_next"))
        with_barrier = [stage for stage in self.staged.stages if stage.has_barrier]
        if not with_barrier:
            yield from following
        known = {piece for row in self._from_outside() for piece in self.pieces[row.name]}
        stored: set[int] = set()
        shares: list[tuple[int, Reduction]] = []
        for place in range(1, len(self.staged.stages)):
            yield from self._reading(place, "slot")
        for place, stage in enumerate(self.staged.stages):
            yield f"# stage {place}"
            yield from self._shared_results(shares)
            yield from self._products(place)
            yield from self._pointwise_lines(stage)
            known.update(share.result for _, share in shares)
            known.update(piece for op in stage.operations for piece in _results(op))
            shares = [(self.staged.shares.index(share), share) for share in stage.shares]
            yield from self._exchange(stage, shares)
            if stage.has_barrier:
                yield f"arrive(counter, {self.shape.blocks})"
            yield from self._stores(known, stored)
            if with_barrier and stage is with_barrier[-1]:
                yield from following
                yield from self._reading(0, f"((i + 1) % {SLOTS})")
            if stage.has_barrier:
                yield from self._wait_at_barrier()
        yield from self._go_on()

    def _pointwise_lines(self, stage: Stage) -> Iterator[str]:
        for op in stage.operations:
            if isinstance(op, Pointwise):
                yield f"{self.name(op.result)} = {self._pointwise(op)}"
            elif isinstance(op, Reduction) and op not in self.staged.shares:
                yield f"{self.name(op.result)} = {self._fold(op.kind, map(self.name, op.pieces))}"

    def _go_on(self) -> Iterator[str]:
        """What the step leaves for the next; rows that are not alive keep what they had."""
        yield "# on to the next step"
        handed_on = {one for stage in self.staged.stages for one in stage.handed_on}
        for one in self.staged.carried:
            before = self.name(one.before)
            if one not in handed_on:
                yield f"{before}_on = tl.where(alive[:, None], {self.name(one.after)}, {before})"
        for one in self.staged.carried:
            yield f"{self.name(one.before)} = {self.name(one.before)}_on"
        for variable in ("t", "alive", "place", *(self.name(piece) for piece in self.fetched())):
            yield f"{variable} = {variable}_next"

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
                    parts.append(
                        TOGETHER[share.kind].format(f"tl.where({own}, {value}, {EMPTY[share.kind]})" if own else value)
                    )
            place = f"(slot * PADDED + rows)[:, None] * {self.shape.blocks} + block"
            yield f'tl.store(share_{index} + {place}, {self._fold(share.kind, parts)}, cache_modifier=".cg")'

    def _show(self, piece: Segment, value: str, slot: str) -> Iterator[str]:
        """Write this block's units of a piece where the others will read all of it."""
        for index, whole in enumerate(self.staged.wholes):
            start = 0
            for part in whole:
                if part == piece:
                    place = f"row_{index} + ({slot} * PADDED + rows).to(tl.int64)[:, None] * {self.strides[index]}"
                    mask = self._own(piece) if piece.width > 1 else "block == 0"
                    masked = f", mask={mask}" if mask else ""
                    shown = f"{value}.to({OUTSIDE[piece.dtype]}){masked}"
                    yield f'tl.store({place}{self._plus(start, piece)}, {shown}, cache_modifier=".cg")'
                start += part.width

    def _wait_at_barrier(self) -> Iterator[str]:
        yield f"met += {self.shape.blocks}"
        yield f"meet(counter, met, {self.shape.blocks})"

    def _shared_results(self, shares: list[tuple[int, Reduction]]) -> Iterator[str]:
        blocks = self.shape.blocks
        wide = 1 << (blocks - 1).bit_length()
        for index, share in shares:
            mask = (
                f", mask=tl.arange(0, {wide})[None, :] < {blocks}, other={EMPTY[share.kind]}" if wide != blocks else ""
            )
            place = f"share_{index} + (slot * PADDED + rows)[:, None] * {blocks} + tl.arange(0, {wide})[None, :]"
            yield f'shares = tl.load({place}{mask}, cache_modifier=".cg")'
            alone = [self.name(piece) for piece in share.pieces if piece.width == 1]
            total = self._fold(share.kind, [TOGETHER[share.kind].format("shares"), *alone])
            yield f"{self.name(share.result)} = {total}"

    @staticmethod
    def _fold(kind: str, parts: Iterable[str]) -> str:
        first, *rest = parts
        for part in rest:
            first = BOTH[kind].format(first, part)
        return first

    def _pointwise(self, op: Pointwise) -> str:
        rows = [arg for arg in op.args if isinstance(arg, Segment)]
        dtype = rows[-1].dtype if op.kind == "where" else rows[0].dtype
        args = [self.name(arg) if isinstance(arg, Segment) else number(arg, dtype) for arg in op.args]
        return pointwise(op.kind, op.result.dtype, args, rows[0].dtype)


def _results(op: Operation) -> tuple[Segment, ...]:
    return op.results if isinstance(op, SegmentProduct) else (op.result,)
