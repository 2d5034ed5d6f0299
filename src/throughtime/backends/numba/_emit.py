"""The whole kernel as LLVM assembly: a walk through the steps of one shard of rows, stage after stage."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from throughtime.backends.numba._ir import SIZES, Builder, Value, integer, module
from throughtime.backends.numba._layout import Layout, make_layout
from throughtime.backends.numba._llvm import Host
from throughtime.backends.numba._plan import Plan, ProductStage
from throughtime.backends.numba._pointwise import MEMORY
from throughtime.backends.numba._rows import Array, Arrays, RowWriter
from throughtime.compiler._loop import LoopProgram, Matrix, Op, Row

HEADER = (
    "active", "offset", "first", "last", "row_first", "row_last", "row_stride", "origin", "block", "block_rows",
    "scratch", "done", "product_f32", "product_f64",
)  # fmt: skip
"""The head of a frame: one 64-bit number or address each. The addresses of the arguments follow, kind by kind.

`block` is the number of steps that are prepared at a time, `block_rows` how many rows they have at most.
"""
_ADDRESSES = frozenset({"active", "offset", "scratch", "product_f32", "product_f64"})
ARGUMENTS = ("stream", "lagged", "initial", "constant", "matrix", "carried", "stored")


def slots(program: LoopProgram) -> dict[tuple[str, int], int]:
    """The place in a frame of every argument."""
    lagged = len(program.lagged)
    counts = (len(program.given_streams), lagged, lagged, len(program.given_constants), len(program.given_matrices),
              len(program.carried), len(program.stored))  # fmt: skip
    keys = [(kind, index) for kind, count in zip(ARGUMENTS, counts, strict=True) for index in range(count)]
    return {key: len(HEADER) + place for place, key in enumerate(keys)}


def emit_kernel(plan: Plan, host: Host) -> str:
    """The module with the function `loop`, which takes the address of a frame."""
    return module([_KernelWriter(plan, host).write()])


class _Stages:
    """The stages of one plan, on rows of arrays."""

    def __init__(self, b: Builder, plan: Plan, host: Host, matrices: Sequence[Value], header: dict[str, Value]) -> None:
        self.b, self.plan, self.matrices, self.header = b, plan, matrices, header
        self.rows = RowWriter(b, plan, host)

    def emit(self, arrays: Arrays, rows: Value, edge: Value, back: Value) -> None:
        """All stages for so many rows; products of few rows walk `back` if that is not 0."""
        for stage in self.plan.stages:
            if isinstance(stage, ProductStage):
                for op in stage.ops:
                    self._product(op, arrays, rows, edge, back)
            else:
                self.rows.emit(stage, arrays, rows)

    def _product(self, op: Op, arrays: Arrays, rows: Value, edge: Value, back: Value) -> None:
        row, matrix = op.args
        assert isinstance(row, Row)
        assert isinstance(matrix, Matrix)
        left, left_row = self._rows_of(arrays, row)
        start = self.plan.graph.starts.get(op.result.name)
        first = self._rows_of(arrays, start) if start is not None else (Value("ptr", "null"), integer(0))
        place = self.plan.places.home[op.result.name]
        array = arrays[place.kind, place.index]
        out = self.b.advance(array.base, place.start, op.result.dtype.itemsize)
        packed = self.matrices[self.plan.program.matrices.index(matrix)]
        shape = integer(matrix.rows), integer(matrix.columns)
        arguments = (left, left_row, packed, *shape, *first, out, array.stride, rows, edge, back)
        function = self.header["product_f32" if op.result.dtype == torch.float32 else "product_f64"]
        self.b.void(f"call void {function.text}({', '.join(map(str, arguments))})")

    def _rows_of(self, arrays: Arrays, row: Row) -> tuple[Value, Value]:
        """The address of the first row, and the bytes to the next."""
        place = self.plan.read_place(row)
        array = arrays[place.kind, place.index]
        return self.b.advance(array.base, place.start, row.dtype.itemsize), array.stride


class _KernelWriter:
    """Writes the function `loop` of one plan."""

    def __init__(self, plan: Plan, host: Host) -> None:
        self.plan, self.program = plan, plan.program
        self.b = b = Builder("loop", [("frame", "ptr noalias")])
        self.layout = make_layout(plan, host)
        self.header = {name: self._slot("ptr" if name in _ADDRESSES else "i64", place)
                       for place, name in enumerate(HEADER)}  # fmt: skip
        self.bases = {key: self._slot("ptr", place) for key, place in slots(self.program).items()}
        matrices = [self.bases["matrix", index] for index, _ in enumerate(self.program.given_matrices)]
        own = len(self.program.matrices)
        self.stages = _Stages(b, plan, host, matrices[:own], self.header)
        self.ahead = None if plan.ahead is None else _Stages(b, plan.ahead, host, matrices[own:], self.header)
        self.fixed: Arrays = {}
        self.prepared: Arrays = {}
        self.edge = self.header["scratch"]

    def _slot(self, kind: str, place: int) -> Value:
        return self.b.load(kind, self.b.advance(self.b.parameters["frame"], place, 8))

    def write(self) -> Builder:
        b, head = self.b, self.header
        self._divide_scratch(self.layout)
        count = b.binary("sub", head["last"], head["first"])
        with b.when(b.compare("sgt", count, integer(0))):
            if self.ahead is None:
                with b.loop(count, stem="step") as (counter, _):
                    step, rows = self._step_of(counter.index)
                    with b.when(b.compare("sgt", rows, integer(0))):
                        self._emit_step(step, rows, {})
            else:
                self._blocks(self.ahead, count)
        # For the thread that waits for this one.
        done = b.advance(b.parameters["frame"], HEADER.index("done"), 8)
        b.void(f"store atomic i64 1, {done} release, align 8")
        return b

    def _blocks(self, ahead: _Stages, count: Value) -> None:
        """Some steps at a time: their rows side by side, what runs ahead on all of them, then step by step."""
        b = self.b
        with b.loop(count, self.header["block"], stem="block") as (block, _):
            left = b.binary("sub", count, block.index)
            steps = b.intrinsic("smin", left, self.header["block"])
            with b.loop(steps, carry=[integer(0)], stem="gathered") as (gathered, (place,)):
                step, rows = self._step_of(b.binary("add", block.index, gathered.index))
                with b.when(b.compare("sgt", rows, integer(0))):
                    self._gather(ahead.plan.program, step, place, rows)
                total = b.binary("add", place, b.intrinsic("smax", rows, integer(0)))
                gathered.feed(place, total)
            with b.when(b.compare("sgt", total, integer(0))):
                ahead.emit(self.prepared, total, self.edge, integer(0))
                with b.loop(steps, carry=[integer(0)], stem="step") as (counter, (place,)):
                    step, rows = self._step_of(b.binary("add", block.index, counter.index))
                    with b.when(b.compare("sgt", rows, integer(0))):
                        self._emit_step(step, rows, self._fed_arrays(place))
                    counter.feed(place, b.binary("add", place, b.intrinsic("smax", rows, integer(0))))

    def _emit_step(self, step: Value, rows: Value, fed: Arrays) -> None:
        # To and fro through the panels of a matrix: what a step used last is still near when the next one begins.
        back = self.b.binary("and", step, integer(1))
        self.stages.emit(self.fixed | self._moving_arrays(step) | fed, rows, self.edge, back)

    def _step_of(self, number: Value) -> tuple[Value, Value]:
        """The step that comes at this place of the walk, and how many rows of the shard are alive then."""
        b, head = self.b, self.header
        if self.program.reverse:
            step = b.binary("sub", b.binary("sub", head["last"], integer(1)), number)
        else:
            step = b.binary("add", head["first"], number)
        active = b.load("i64", b.advance(head["active"], step, 8))
        last = b.intrinsic("smin", active, head["row_last"])
        return step, b.binary("sub", last, head["row_first"])

    def _divide_scratch(self, layout: Layout) -> None:
        """Arrays that stay where they are from step to step."""
        b, program = self.b, self.program
        rows = b.binary("sub", self.header["row_last"], self.header["row_first"])
        place = self.header["scratch"]
        for arrays, part, count in (
            (self.fixed, layout.step, rows),
            (self.prepared, layout.block, self.header["block_rows"]),
        ):
            for key, size in part.items():
                single = key[0] == "local"
                arrays[key] = Array(place, integer(0 if single else size))
                place = b.advance(place, size) if single else b.advance(place, count, size)
        self.edge = place
        own = len(program.constants)
        for index, _ in enumerate(program.given_constants):
            arrays, number = (self.fixed, index) if index < own else (self.prepared, index - own)
            arrays["constant", number] = Array(self.bases["constant", index], integer(0))
        for index, carry in enumerate(program.carried):
            size = _bytes(carry.before)
            base = b.advance(self.bases["carried", index], self.header["row_first"], size)
            self.fixed["carried", index] = Array(base, integer(size))

    def _moving_arrays(self, step: Value) -> Arrays:
        """Arrays with rows for every step, from the rows of this one (or of the one before) on."""
        b, head, program = self.b, self.header, self.program
        arrays: Arrays = {}
        here = b.binary("sub", self._place(step), head["origin"])
        given = [index for index, _ in enumerate(program.streams) if ("stream", index) in self._own_streams()]
        moving = [("stream", index, self.bases["stream", slot]) for slot, index in enumerate(given)]
        moving += [("stored", index, self.bases["stored", index]) for index, _ in enumerate(program.stored)]
        for kind, index, base in moving:
            size = _bytes((program.streams if kind == "stream" else program.stored)[index])
            stride = b.binary("mul", head["row_stride"], integer(size))
            arrays[kind, index] = Array(b.advance(base, here, size), stride)
        if program.lagged:
            begins = b.compare("eq", step, integer(0))
            before = self._place(b.binary("sub", step, b.select(begins, integer(0), integer(1))))
            for index, row in enumerate(program.lagged):
                size = _bytes(row)
                stream = b.advance(self.bases["lagged", index], before, size)
                initial = b.advance(self.bases["initial", index], head["row_first"], size)
                stride = b.binary("mul", head["row_stride"], integer(size))
                base = b.select(begins, initial, stream)
                arrays["lagged", index] = Array(base, b.select(begins, integer(size), stride))
        return arrays

    def _own_streams(self) -> set[tuple[str, int]]:
        """The streams of the loop itself that nothing feeds."""
        fed = set() if self.program.ahead is None else set(self.program.ahead.feeds)
        return {("stream", index) for index, _ in enumerate(self.program.streams) if index not in fed}

    def _place(self, step: Value) -> Value:
        """Where in a stream the first row of the shard lies."""
        b, head = self.b, self.header
        start = b.binary("mul", head["row_first"], head["row_stride"])
        return b.binary("add", b.load("i64", b.advance(head["offset"], step, 8)), start)

    def _gather(self, ahead: LoopProgram, step: Value, place: Value, rows: Value) -> None:
        """The rows of a step, behind those of the steps before it in the block."""
        b, head = self.b, self.header
        here = b.binary("sub", self._place(step), head["origin"])
        b.declarations["memcpy"] = "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)"
        first = len(self._own_streams())
        for index, row in enumerate(ahead.streams):
            size, array = _bytes(row), self.prepared["stream", index]
            source = b.advance(self.bases["stream", first + index], here, size)
            target = b.advance(array.base, b.binary("mul", place, array.stride))
            stride = b.binary("mul", head["row_stride"], integer(size))
            with b.loop(rows, stem="copied") as (counter, _):
                one = b.advance(source, b.binary("mul", counter.index, stride))
                other = b.advance(target, b.binary("mul", counter.index, array.stride))
                b.void(f"call void @llvm.memcpy.p0.p0.i64({other}, {one}, i64 {size}, i1 false)")

    def _fed_arrays(self, place: Value) -> Arrays:
        """Streams of the loop that were computed for this block of steps."""
        assert self.program.ahead is not None
        arrays: Arrays = {}
        for index, stream in enumerate(self.program.ahead.feeds):
            array = self.prepared["stored", index]
            arrays["stream", stream] = Array(
                self.b.advance(array.base, self.b.binary("mul", place, array.stride)), array.stride
            )
        return arrays


def _bytes(row: Row) -> int:
    return row.width * SIZES[MEMORY[row.dtype]]
