"""The whole kernel as LLVM assembly: a walk through the steps of one shard of rows, stage after stage."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from throughtime.backends.numba._ir import SIZES, Builder, Value, integer, module
from throughtime.backends.numba._llvm import Host
from throughtime.backends.numba._plan import Plan, ProductStage
from throughtime.backends.numba._pointwise import MEMORY
from throughtime.backends.numba._products import PANEL_VECTORS
from throughtime.backends.numba._rows import Array, Arrays, RowWriter
from throughtime.compiler._loop import LoopProgram, Matrix, Op, Row

HEADER = (
    "active", "offset", "first", "last", "row_first", "row_last", "row_stride", "origin", "scratch", "done",
    "product_f32", "product_f64",
)  # fmt: skip
"""The head of a frame: one 64-bit number or address each. The addresses of the arguments follow, kind by kind."""
ARGUMENTS = ("stream", "lagged", "initial", "constant", "matrix", "carried", "stored")


@dataclass(frozen=True)
class Layout:
    """How the scratch memory of a shard is divided: bytes for each of its rows, and bytes in all."""

    scratch: list[int]
    local: list[int]
    edge: int

    @property
    def row_bytes(self) -> int:
        return sum(self.scratch) + self.edge

    @property
    def fixed_bytes(self) -> int:
        return sum(self.local)


def slots(program: LoopProgram) -> dict[tuple[str, int], int]:
    """The place in a frame of every argument."""
    lagged = len(program.lagged)
    counts = (len(program.streams), lagged, lagged, len(program.constants), len(program.matrices), len(program.carried),
              len(program.stored))  # fmt: skip
    keys = [(kind, index) for kind, count in zip(ARGUMENTS, counts, strict=True) for index in range(count)]
    return {key: len(HEADER) + place for place, key in enumerate(keys)}


def make_layout(plan: Plan, host: Host) -> Layout:
    """Rows of scratch memory are whole cache lines, and never a page apart, where they would share cache sets."""

    def padded(row: Row) -> int:
        whole = -(-row.width * SIZES[MEMORY[row.dtype]] // 64) * 64
        return whole + 64 if whole % 2048 == 0 else whole

    products = any(isinstance(stage, ProductStage) for stage in plan.stages)
    edge = PANEL_VECTORS * host.vector_bytes if products else 0
    return Layout([padded(row) for row in plan.places.scratch], [padded(row) for row in plan.places.local], edge)


def emit_kernel(plan: Plan, host: Host) -> str:
    """The module with the function `loop`, which takes the address of a frame."""
    return module([_KernelWriter(plan, host).write()])


class _KernelWriter:
    """Writes the function `loop` of one plan."""

    def __init__(self, plan: Plan, host: Host) -> None:
        self.plan, self.program = plan, plan.program
        self.b = Builder("loop", [("frame", "ptr noalias")])
        self.rows = RowWriter(self.b, plan, host)
        self.layout = make_layout(plan, host)
        self.header = {name: self._slot("ptr" if name == "scratch" or "product" in name else "i64", place)
                       for place, name in enumerate(HEADER)}  # fmt: skip
        self.bases = {key: self._slot("ptr", place) for key, place in slots(self.program).items()}
        self.fixed: Arrays = {}
        self.edge = self.header["scratch"]

    def _slot(self, kind: str, place: int) -> Value:
        return self.b.load(kind, self.b.advance(self.b.parameters["frame"], place, 8))

    def write(self) -> Builder:
        b, head = self.b, self.header
        self._fixed_arrays()
        tables = {name: b.let("ptr", f"inttoptr {head[name]} to ptr") for name in ("active", "offset")}
        count = b.binary("sub", head["last"], head["first"])
        with b.when(b.compare("sgt", count, integer(0))), b.loop(count, stem="step") as (counter, _):
            if self.program.reverse:
                step = b.binary("sub", b.binary("sub", head["last"], integer(1)), counter.index)
            else:
                step = b.binary("add", head["first"], counter.index)
            active = b.load("i64", b.advance(tables["active"], step, 8))
            last = b.intrinsic("smin", active, head["row_last"])
            rows = b.binary("sub", last, head["row_first"])
            with b.when(b.compare("sgt", rows, integer(0))):
                self._step(step, rows, tables["offset"])
        # For the thread that waits for this one.
        done = b.advance(b.parameters["frame"], HEADER.index("done"), 8)
        b.void(f"store atomic i64 1, {done} release, align 8")
        return b

    def _fixed_arrays(self) -> None:
        """Arrays that stay where they are from step to step."""
        b, program = self.b, self.program
        rows = b.binary("sub", self.header["row_last"], self.header["row_first"])
        place = self.header["scratch"]
        for index, size in enumerate(self.layout.local):
            self.fixed["local", index] = Array(place, integer(0))
            place = b.advance(place, size)
        for index, size in enumerate(self.layout.scratch):
            self.fixed["scratch", index] = Array(place, integer(size))
            place = b.advance(place, rows, size)
        self.edge = place
        for index, _ in enumerate(program.constants):
            self.fixed["constant", index] = Array(self.bases["constant", index], integer(0))
        for index, carry in enumerate(program.carried):
            size = _bytes(carry.before)
            base = b.advance(self.bases["carried", index], self.header["row_first"], size)
            self.fixed["carried", index] = Array(base, integer(size))

    def _step(self, step: Value, rows: Value, offsets: Value) -> None:
        arrays = self.fixed | self._moving_arrays(step, offsets)
        for stage in self.plan.stages:
            if isinstance(stage, ProductStage):
                for op in stage.ops:
                    self._product(op, arrays, rows)
            else:
                self.rows.emit(stage, arrays, rows)

    def _moving_arrays(self, step: Value, offsets: Value) -> Arrays:
        """Arrays with rows for every step, from the rows of this one (or of the one before) on."""
        b, head, program = self.b, self.header, self.program
        arrays: Arrays = {}
        start = b.binary("mul", head["row_first"], head["row_stride"])

        def place(at: Value) -> Value:
            return b.binary("add", b.load("i64", b.advance(offsets, at, 8)), start)

        here = b.binary("sub", place(step), head["origin"])
        for kind, values in (("stream", program.streams), ("stored", program.stored)):
            for index, row in enumerate(values):
                size = _bytes(row)
                stride = b.binary("mul", head["row_stride"], integer(size))
                arrays[kind, index] = Array(b.advance(self.bases[kind, index], here, size), stride)
        if program.lagged:
            begins = b.compare("eq", step, integer(0))
            back = b.binary("sub", step, b.select(begins, integer(0), integer(1)))
            before = place(back)
            for index, row in enumerate(program.lagged):
                size = _bytes(row)
                stream = b.advance(self.bases["lagged", index], before, size)
                initial = b.advance(self.bases["initial", index], head["row_first"], size)
                stride = b.binary("mul", head["row_stride"], integer(size))
                base = b.select(begins, initial, stream)
                arrays["lagged", index] = Array(base, b.select(begins, integer(size), stride))
        return arrays

    def _product(self, op: Op, arrays: Arrays, rows: Value) -> None:
        row, matrix = op.args
        assert isinstance(row, Row)
        assert isinstance(matrix, Matrix)
        left, left_row = self._rows_of(arrays, row)
        start = self.plan.graph.starts.get(op.result.name)
        first = self._rows_of(arrays, start) if start is not None else (Value("ptr", "null"), integer(0))
        place = self.plan.places.home[op.result.name]
        array = arrays[place.kind, place.index]
        size = op.result.dtype.itemsize
        out = self.b.advance(array.base, place.start, size)
        packed = self.bases["matrix", self.program.matrices.index(matrix)]
        shape = integer(matrix.rows), integer(matrix.columns)
        arguments = (left, left_row, packed, *shape, *first, out, array.stride, rows, self.edge)
        function = self.header["product_f32" if op.result.dtype == torch.float32 else "product_f64"]
        self.b.void(f"call void {function.text}({', '.join(map(str, arguments))})")

    def _rows_of(self, arrays: Arrays, row: Row) -> tuple[Value, Value]:
        """The address of the first row, and the bytes to the next."""
        place = self.plan.read_place(row)
        array = arrays[place.kind, place.index]
        return self.b.advance(array.base, place.start, row.dtype.itemsize), array.stride


def _bytes(row: Row) -> int:
    return row.width * SIZES[MEMORY[row.dtype]]
