"""The whole kernel as LLVM IR: the steps of one shard of rows, stage after stage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import torch

from throughtime.backends.cpu.codegen.pointwise import MEMORY
from throughtime.backends.cpu.codegen.row_stage import Array, Arrays, Following, RowWriter
from throughtime.backends.cpu.plan.kernel_plan import KernelPlan, ProductStage, RowStage
from throughtime.backends.cpu.plan.scratch_layout import Region, make_layout
from throughtime.compiler.ir.loop_ir import Ahead, LoopProgram, Matrix, Op, Row
from throughtime.native.gemm.micro_kernel import PANEL_VECTORS
from throughtime.native.gemm.pack_panels import pack_all
from throughtime.native.threads.barrier import BARRIER_IR, Participant
from throughtime.native.threads.prefetch_ring import RING_IR, RING_SLOTS
from throughtime.native.toolchain.llvm import Host
from throughtime.native.toolchain.llvm_builder import SIZES, Builder, LlvmValue, integer, module

HEADER = (
    "active", "offset", "first", "last", "row_first", "row_last", "row_stride", "origin", "block", "less",
    "block_rows", "scratch", "slots", "slot_bytes", "ring", "produces", "member", "members", "barrier",
    "product_f32", "product_f64",
)  # fmt: skip
"""The head of a frame: one 64-bit number or address each. The addresses of the arguments follow, kind by kind.

The work ahead of the loop is computed for `block` steps at a time, `less` fewer the first time, with at most
`block_rows` rows, in one of the `slots`, `slot_bytes` apart: 0 if there is one. Without a `ring` the loop computes
every block; with one there is a second frame for the thread that `produces` blocks. Each of several cooperative
`members` has a frame of its own; they share a `barrier`.
"""
_ADDRESSES = frozenset({"active", "offset", "scratch", "slots", "ring", "barrier", "product_f32", "product_f64"})
FETCHED_BYTES = 1 << 16
"""What a shard may ask for ahead of the next step; with more nothing was gained."""
ARGUMENTS = ("stream", "lagged", "initial", "constant", "matrix", "carried", "stored")


def slots(program: LoopProgram) -> dict[tuple[str, int], int]:
    """The place in a frame of every argument."""
    lagged = len(program.lagged)
    counts = (len(program.given_streams), lagged, lagged, len(program.given_constants), len(program.given_matrices),
              len(program.carried), len(program.stored))  # fmt: skip
    keys = [(kind, index) for kind, count in zip(ARGUMENTS, counts, strict=True) for index in range(count)]
    return {key: len(HEADER) + place for place, key in enumerate(keys)}


def emit_kernel(plan: KernelPlan, host: Host, *, cooperative: bool = False) -> str:
    """The module with the function `loop`, which takes the address of a frame; for `cooperative` threads if wanted."""
    functions = [_TimeLoop(plan, host, cooperative=cooperative).write()]
    if plan.ahead is not None:
        functions.append(_Preparation(plan, plan.ahead, host, cooperative=cooperative).write())
    if cooperative:
        return module(functions, globals_=[BARRIER_IR.definitions])
    return (
        module(functions)
        if plan.ahead is None
        else module([*functions, pack_all("internal ")], globals_=[RING_IR.definitions])
    )


class _Stages:
    """The stages of one plan, on rows of arrays; the part of one `member` if several threads cooperate."""

    def __init__(
        self,
        b: Builder,
        plan: KernelPlan,
        host: Host,
        matrices: Sequence[LlvmValue],
        header: dict[str, LlvmValue],
        member: Participant | None,
    ) -> None:
        self.b, self.plan, self.host, self.matrices, self.header = b, plan, host, matrices, header
        self.rows, self.member = RowWriter(b, plan, host), member

    def emit(self, arrays: Arrays, rows: LlvmValue, back: LlvmValue) -> None:
        """All stages for some rows; GEMMs of few rows run from the last panel to the first if `back` is not 0."""
        for stage in self.plan.stages:
            if isinstance(stage, ProductStage):
                for op in stage.ops:
                    self._product(op, arrays, rows, back)
            elif self.member is None:
                self.rows.emit(stage, arrays, rows)
            else:
                self._rows_of_member(self.member, stage, arrays, rows)
            if self.member is not None:
                self.member.wait()

    def _rows_of_member(self, member: Participant, stage: RowStage, arrays: Arrays, rows: LlvmValue) -> None:
        first, last = member.part(rows)
        with self.b.when(self.b.compare("slt", first, last)):
            own = {
                key: replace(array, base=self.b.advance(array.base, self.b.binary("mul", first, array.stride)))
                for key, array in arrays.items()
            }
            self.rows.emit(stage, own, self.b.binary("sub", last, first))

    def _product(self, op: Op, arrays: Arrays, rows: LlvmValue, back: LlvmValue) -> None:
        row, matrix = op.args
        assert isinstance(row, Row)
        assert isinstance(matrix, Matrix)
        left, left_row = self._rows_of(arrays, row)
        start = self.plan.graph.starts.get(op.result.name)
        first = self._rows_of(arrays, start) if start is not None else (LlvmValue("ptr", "null"), integer(0))
        place = self.plan.places.home[op.result.name]
        array = arrays[place.kind, place.index]
        out = self.b.advance(array.base, place.start, op.result.dtype.itemsize)
        packed = self.matrices[self.plan.program.matrices.index(matrix)]
        arguments = _Product(left, left_row, packed, integer(matrix.columns), *first, out, array.stride)
        if self.member is None:
            self._call(op, matrix, arguments, rows, back)
        else:
            begin, end = self._columns_of_member(self.member, matrix)
            with self.b.when(self.b.compare("slt", begin, end)):
                own = arguments.between(self.b, begin, end, matrix)
                self._call(op, matrix, own, rows, back)

    def _columns_of_member(self, member: Participant, matrix: Matrix) -> tuple[LlvmValue, LlvmValue]:
        """Whole panels."""
        width = PANEL_VECTORS * self.host.lanes(matrix.dtype.itemsize)
        first, last = member.part(integer(-(-matrix.columns // width)))
        begin, end = (self.b.binary("mul", panel, integer(width)) for panel in (first, last))
        return begin, self.b.intrinsic("smin", end, integer(matrix.columns))

    def _call(self, op: Op, matrix: Matrix, product: _Product, rows: LlvmValue, back: LlvmValue) -> None:
        left, left_row, packed, columns, *others = product
        arguments = (left, left_row, packed, integer(matrix.rows), columns, *others, rows, back)
        function = self.header["product_f32" if op.result.dtype == torch.float32 else "product_f64"]
        self.b.void(f"call void {function.text}({', '.join(map(str, arguments))})")

    def _rows_of(self, arrays: Arrays, row: Row) -> tuple[LlvmValue, LlvmValue]:
        """The address of the first row, and the bytes to the next."""
        place = self.plan.read_place(row)
        array = arrays[place.kind, place.index]
        return self.b.advance(array.base, place.start, row.dtype.itemsize), array.stride


class _Product(NamedTuple):
    """The rows to be multiplied, the packed matrix, how many columns it has, where sums start, and where they go."""

    left: LlvmValue
    left_row: LlvmValue
    packed: LlvmValue
    columns: LlvmValue
    start: LlvmValue
    start_row: LlvmValue
    out: LlvmValue
    out_row: LlvmValue

    def between(self, b: Builder, begin: LlvmValue, end: LlvmValue, matrix: Matrix) -> _Product:
        """The same for some of the columns, whole panels."""
        size = matrix.dtype.itemsize
        start = self.start if self.start.text == "null" else b.advance(self.start, begin, size)
        return self._replace(
            packed=b.advance(self.packed, begin, matrix.rows * size),
            columns=b.binary("sub", end, begin),
            start=start,
            out=b.advance(self.out, begin, size),
        )


class _Function:
    """A function of the kernel, which finds its arguments in a frame."""

    def __init__(self, plan: KernelPlan, host: Host, builder: Builder, *, cooperative: bool) -> None:
        self.program, self.layout = plan.program, make_layout(plan)
        self.b, self.frame = builder, builder.parameters["frame"]
        self.header = builder.arguments(self.frame, HEADER, _ADDRESSES)
        self.member = Participant(builder, self.header) if cooperative else None
        places = slots(plan.program)
        self.bases = {key: builder.load("ptr", builder.advance(self.frame, place, 8)) for key, place in places.items()}
        # What the plan of the loop does not own is for what runs ahead of it.
        fed = [] if self.program.ahead is None else self.program.ahead.feeds
        self.own_streams = [index for index, _ in enumerate(self.program.streams) if index not in fed]

    def given(self, kind: str, first: int, last: int | None = None) -> list[LlvmValue]:
        """The addresses of some arguments of a kind."""
        found = [base for (other, _), base in self.bases.items() if other == kind]
        return found[first:last]

    def steps(self) -> LlvmValue:
        return self.b.binary("sub", self.header["last"], self.header["first"])

    def step_of(self, number: LlvmValue) -> tuple[LlvmValue, LlvmValue]:
        """The step at this place of the loop, and the number of rows of the shard that are active in it."""
        b, head = self.b, self.header
        if self.program.reverse:
            step = b.binary("sub", b.binary("sub", head["last"], integer(1)), number)
        else:
            step = b.binary("add", head["first"], number)
        active = b.load("i64", b.advance(head["active"], step, 8))
        last = b.intrinsic("smin", active, head["row_last"])
        return step, b.binary("sub", last, head["row_first"])

    def steps_of(self, block: LlvmValue) -> tuple[LlvmValue, LlvmValue]:
        """The place in the loop where a block begins, and the number of its steps."""
        b, most = self.b, self.header["block"]
        early = b.binary("sub", b.binary("mul", block, most), self.header["less"])
        start, stop = b.intrinsic("smax", early, integer(0)), b.binary("add", early, most)
        return start, b.binary("sub", b.intrinsic("smin", stop, self.steps()), start)

    def blocks(self) -> LlvmValue:
        """How many blocks there are."""
        b, most = self.b, self.header["block"]
        steps = b.binary("add", self.steps(), self.header["less"])
        return b.binary("sdiv", b.binary("add", steps, b.binary("sub", most, integer(1))), most)

    def place(self, step: LlvmValue) -> LlvmValue:
        """Where in a stream the first row of the shard lies."""
        b, head = self.b, self.header
        start = b.binary("mul", head["row_first"], head["row_stride"])
        return b.binary("add", b.load("i64", b.advance(head["offset"], step, 8)), start)

    def divide(self, part: Region, place: LlvmValue, rows: LlvmValue) -> Arrays:
        """The arrays of a part of the scratch memory."""
        b, arrays = self.b, dict[tuple[str, int], Array]()
        for key, size in part.sizes.items():
            if key[0] != "local":
                arrays[key] = Array(place, integer(size))
                place = b.advance(place, rows, size)
            elif self.member is None:
                arrays[key] = Array(place, integer(0))
                place = b.advance(place, size)
            else:
                # Every member has its own.
                arrays[key] = Array(b.advance(place, self.member.number, size), integer(0))
                place = b.advance(place, self.member.room_for, size)
        return arrays

    def slot_of(self, block: LlvmValue) -> Arrays:
        """The arrays in the room of a block."""
        b, head = self.b, self.header
        number = b.binary("and", block, integer(RING_SLOTS - 1))
        room = b.advance(head["slots"], b.binary("mul", number, head["slot_bytes"]))
        return self.divide(self.layout.block, room, head["block_rows"])


class _TimeLoop(_Function):
    """Writes the function `loop`: through all steps of a shard."""

    def __init__(self, plan: KernelPlan, host: Host, *, cooperative: bool) -> None:
        super().__init__(plan, host, Builder("loop", [("frame", "ptr noalias")]), cooperative=cooperative)
        b, program = self.b, self.program
        self.stages = _Stages(b, plan, host, self.given("matrix", 0, len(program.matrices)), self.header, self.member)
        rows = b.binary("sub", self.header["row_last"], self.header["row_first"])
        self.fetches = self._is_worth_fetching(rows)
        self.fixed = self.divide(self.layout.step, self.header["scratch"], rows)
        self.fixed |= _constants(self.given("constant", 0, len(program.constants)))
        for index, carry in enumerate(program.carried):
            size = _bytes(carry.before)
            base = b.advance(self.bases["carried", index], self.header["row_first"], size)
            self.fixed["carried", index] = Array(base, integer(size))

    def write(self) -> Builder:
        b, steps = self.b, self.steps()
        with b.when(b.compare("sgt", steps, integer(0))):
            if self.program.ahead is None:
                with b.loop(steps, stem="step") as (counter, _):
                    step, rows = self.step_of(counter.index)
                    with b.when(b.compare("sgt", rows, integer(0))):
                        self._emit_step(step, rows, {})
            else:
                self._blocks(self.program.ahead, self.blocks())
        return b

    def _blocks(self, ahead: Ahead, blocks: LlvmValue) -> None:
        """The loop in blocks of steps; or, in the thread that produces, the work ahead of it."""
        b, ring = self.b, self.header["ring"]
        if self.member is not None:
            self._run_blocks(ahead, blocks, LlvmValue("i1", "false"))
            return
        consumes = b.compare("eq", self.header["produces"], integer(0))
        with b.when(consumes):
            prefetched = b.compare("ne", ring, LlvmValue("ptr", "null"))
            with b.when(prefetched):
                b.void(f"call void @ring_pack_loop_matrices({ring})")
                b.void(f"call void @ring_begin({self.frame}, {ring})")
            self._run_blocks(ahead, blocks, prefetched)
        with b.when(b.negated(consumes)):
            b.void(f"call void @ring_produce({self.frame}, {ring}, {blocks})")

    def _run_blocks(self, ahead: Ahead, blocks: LlvmValue, prefetched: LlvmValue) -> None:
        b, ring = self.b, self.header["ring"]
        with b.loop(blocks, stem="block") as (block, _):
            if self.member is not None:
                b.void(f"call void @prepare({self.frame}, {block.index})")
                self.member.leave_if_dropped()
            else:
                with b.when(b.let("i1", f"call i1 @ring_claim({ring}, {block.index})")):
                    b.void(f"call void @prepare({self.frame}, {block.index})")
            start, steps = self.steps_of(block.index)
            slot = self.slot_of(block.index)
            with b.loop(steps, carry=[integer(0)], stem="step") as (counter, (place,)):
                step, rows = self.step_of(b.binary("add", start, counter.index))
                with b.when(b.compare("sgt", rows, integer(0))):
                    self._emit_step(step, rows, self._fed_arrays(ahead, slot, place))
                following = b.binary("add", place, b.intrinsic("smax", rows, integer(0)))
                if self.member is None:
                    more = b.compare("slt", b.binary("add", counter.index, integer(1)), steps)
                    with b.when(b.binary("and", more, prefetched)):
                        self._fetch(self._fed_arrays(ahead, slot, following))
                counter.feed(place, following)
            if self.member is None:
                with b.when(prefetched):
                    b.void(f"call void @ring_release({ring}, {block.index})")

    def _fetch(self, arrays: Arrays) -> None:
        """Ask for the first row of each array, which may be in the cache of another processor."""
        for (_, index), array in arrays.items():
            with self.b.loop(integer(_bytes(self.program.streams[index])), 64, stem="line") as (line, _):
                self.b.prefetch(self.b.advance(array.base, line.index), near=True)

    def _emit_step(self, step: LlvmValue, rows: LlvmValue, fed: Arrays) -> None:
        # To and fro through the panels of a matrix: what a step used last is still near when the next one begins.
        back = self.b.binary("and", step, integer(1))
        self.stages.emit(self.fixed | self._moving_arrays(step) | fed, rows, back)

    def _moving_arrays(self, step: LlvmValue) -> Arrays:
        """Arrays with rows for every step, from the rows of this one (or of the one before) on."""
        b, head, program = self.b, self.header, self.program
        arrays: Arrays = {}
        here = b.binary("sub", self.place(step), head["origin"])
        distance = self._to_next(step)

        def following(size: int) -> Following:
            return Following(b.binary("mul", distance, integer(size)), size, self.fetches)

        moving = [("stream", index, self.bases["stream", slot]) for slot, index in enumerate(self.own_streams)]
        moving += [("stored", index, self.bases["stored", index]) for index, _ in enumerate(program.stored)]
        for kind, index, base in moving:
            size = _bytes((program.streams if kind == "stream" else program.stored)[index])
            stride = b.binary("mul", head["row_stride"], integer(size))
            arrays[kind, index] = Array(b.advance(base, here, size), stride, following(size))
        if program.lagged:
            begins = b.compare("eq", step, integer(0))
            before = self.place(b.binary("sub", step, b.select(begins, integer(0), integer(1))))
            for index, row in enumerate(program.lagged):
                size = _bytes(row)
                stream = b.advance(self.bases["lagged", index], before, size)
                initial = b.advance(self.bases["initial", index], head["row_first"], size)
                stride = b.binary("mul", head["row_stride"], integer(size))
                base = b.select(begins, initial, stream)
                arrays["lagged", index] = Array(base, b.select(begins, integer(size), stride), following(size))
        return arrays

    def _is_worth_fetching(self, rows: LlvmValue) -> LlvmValue:
        """Whether rows of a step lie apart, and so few of them that those of the next one stay in a near cache."""
        b, head, program = self.b, self.header, self.program
        streams = [program.streams[index] for index in self.own_streams]
        size = sum(_bytes(row) for row in (*streams, *program.lagged, *program.stored))
        few = b.compare("sle", b.binary("mul", rows, integer(size)), integer(FETCHED_BYTES))
        return b.binary("and", few, b.compare("ne", head["row_stride"], integer(1)))

    def _to_next(self, step: LlvmValue) -> LlvmValue:
        """The rows of a stream between a row of this step and the same row of the next step of the loop."""
        b, head = self.b, self.header
        if self.program.reverse:
            following = b.intrinsic("smax", b.binary("sub", step, integer(1)), head["first"])
        else:
            following = b.intrinsic(
                "smin", b.binary("add", step, integer(1)), b.binary("sub", head["last"], integer(1))
            )
        return b.binary("sub", self.place(following), self.place(step))

    def _fed_arrays(self, ahead: Ahead, room: Arrays, place: LlvmValue) -> Arrays:
        """Streams of the loop that were computed for a block of steps, from a row of it on."""
        arrays: Arrays = {}
        for index, stream in enumerate(ahead.feeds):
            array = room["stored", index]
            base = self.b.advance(array.base, self.b.binary("mul", place, array.stride))
            arrays["stream", stream] = Array(base, array.stride)
        return arrays


class _Preparation(_Function):
    """Writes the function `prepare`: what runs ahead of the loop, for a block of steps, their rows side by side."""

    def __init__(self, plan: KernelPlan, ahead: KernelPlan, host: Host, *, cooperative: bool) -> None:
        parameters = [("frame", "ptr noalias"), ("number", "i64")]
        super().__init__(plan, host, Builder("prepare", parameters, linkage="internal "), cooperative=cooperative)
        self.ahead, matrices = ahead.program, self.given("matrix", len(self.program.matrices))
        self.stages = _Stages(self.b, ahead, host, matrices, self.header, self.member)

    def write(self) -> Builder:
        b, number = self.b, self.b.parameters["number"]
        arrays = self.slot_of(number)
        arrays |= _constants(self.given("constant", len(self.program.constants)))
        start, steps = self.steps_of(number)
        with b.loop(steps, carry=[integer(0)], stem="gathered") as (gathered, (place,)):
            step, rows = self.step_of(b.binary("add", start, gathered.index))
            some = b.compare("sgt", rows, integer(0))
            if self.member is not None:
                some = b.binary("and", some, self.member.has_turn(gathered.index))
            with b.when(some):
                self._gather(arrays, step, place, rows)
            total = b.binary("add", place, b.intrinsic("smax", rows, integer(0)))
            gathered.feed(place, total)
        if self.member is not None:
            self.member.wait()
        with b.when(b.compare("sgt", total, integer(0))):
            self.stages.emit(arrays, total, integer(0))
        return b

    def _gather(self, arrays: Arrays, step: LlvmValue, place: LlvmValue, rows: LlvmValue) -> None:
        """The rows of a step, behind those of the steps before it in the block."""
        b, head = self.b, self.header
        here = b.binary("sub", self.place(step), head["origin"])
        b.declarations["memcpy"] = "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)"
        bases = self.given("stream", len(self.own_streams))
        for index, (row, base) in enumerate(zip(self.ahead.streams, bases, strict=True)):
            size, array = _bytes(row), arrays["stream", index]
            source = b.advance(base, here, size)
            target = b.advance(array.base, b.binary("mul", place, array.stride))
            stride = b.binary("mul", head["row_stride"], integer(size))
            with b.loop(rows, stem="copied") as (counter, _):
                one = b.advance(source, b.binary("mul", counter.index, stride))
                other = b.advance(target, b.binary("mul", counter.index, array.stride))
                b.void(f"call void @llvm.memcpy.p0.p0.i64({other}, {one}, i64 {size}, i1 false)")


def _constants(addresses: Sequence[LlvmValue]) -> Arrays:
    return {("constant", index): Array(address, integer(0)) for index, address in enumerate(addresses)}


def _bytes(row: Row) -> int:
    return row.width * SIZES[MEMORY[row.dtype]]
