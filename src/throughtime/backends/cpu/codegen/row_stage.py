"""Row stages as LLVM assembly: a loop over rows, in it loops over columns, in them vectors in registers."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch

from throughtime.backends.cpu.codegen.pointwise import MEMORY, REGISTER, VECTOR_FUNCTIONS, Pointwise
from throughtime.backends.cpu.plan.buffer_assignment import Buffer
from throughtime.backends.cpu.plan.kernel_plan import KernelPlan, Phase, RowStage
from throughtime.backends.cpu.plan.loop_nests import LoopNest, is_gathered, nest_of
from throughtime.compiler.ir.loop_ir import REDUCTIONS, Op, Operand, Row
from throughtime.native.toolchain.llvm import Host
from throughtime.native.toolchain.llvm_builder import SIZES, Builder, LlvmValue, integer, vector


@dataclass(frozen=True)
class Following:
    """The bytes between a row and the same row of the next step, and how many it has; whether to ask for it now."""

    distance: LlvmValue
    size: int
    is_worth_it: LlvmValue


@dataclass(frozen=True)
class Array:
    """Where the rows of an array start at this step, and how many bytes lie between them."""

    base: LlvmValue
    stride: LlvmValue
    following: Following | None = None


Arrays = dict[tuple[str, int], Array]
Registers = dict[str, LlvmValue]
Steps = dict[int, LlvmValue]
"""How far a loop nest is along each of its axes."""
LoopBody = Callable[[Steps, list[LlvmValue]], list[LlvmValue]]


def lanes_for(ops: list[Op], columns: int, host: Host, *, gathered: bool = False) -> int:
    """How many columns to take at a time: a register of the narrowest numbers around; truth values come along.

    Long functions and reductions take several registers at a time, so that their chains of operations overlap; where
    there are many of them, or numbers must be `gathered` one by one, fewer do, and the code stays small.
    """
    dtypes = {row.dtype for op in ops for row in (*op.rows, op.result)} - {torch.bool}
    lanes = host.lanes(min((dtype.itemsize for dtype in dtypes), default=4))
    long = sum(op.kind in VECTOR_FUNCTIONS or op.kind in REDUCTIONS for op in ops)
    chains = 1 if long == 0 or long > 24 or gathered else 2 if long > 12 else 4
    while lanes * chains > max(columns, lanes):
        chains //= 2
    return lanes * chains


class Position:
    """Where a loop nest is: how far along each axis, the last of them at the first lane of a vector."""

    def __init__(self, builder: Builder, nest: LoopNest, steps: Steps) -> None:
        self.nest, self.steps = nest, steps
        self._b = builder
        self._known: dict[tuple[int, ...], LlvmValue] = {}

    def column(self, strides: tuple[int, ...]) -> LlvmValue:
        """The place in a row that moves by some stride at each axis."""
        if strides not in self._known:
            moving = [
                (self.steps[axis], stride) for axis, stride in enumerate(strides) if axis in self.steps and stride
            ]
            terms = [step if by == 1 else self._b.binary("mul", step, integer(by)) for step, by in moving]
            self._known[strides] = functools.reduce(partial(self._b.binary, "add"), terms) if terms else integer(0)
        return self._known[strides]


class RowWriter:
    """Writes the row stages of one plan into a builder."""

    def __init__(self, builder: Builder, plan: KernelPlan, host: Host) -> None:
        self.b = builder
        self.plan = plan
        self.host = host
        self.pointwise = Pointwise(builder)

    def emit(self, stage: RowStage, arrays: Arrays, rows: LlvmValue) -> None:
        """The stage, for `rows` rows from the bases of `arrays`."""
        with self.b.loop(rows, stem="row") as (counter, _):
            row = _RowStage(self, stage, arrays, counter.index)
            for phase in stage.phases:
                row.phase(phase)
            row.fetch()


class _RowStage:
    """One row on its way through a stage: its addresses, and the single numbers it has computed."""

    def __init__(self, writer: RowWriter, stage: RowStage, arrays: Arrays, index: LlvmValue) -> None:
        self.writer, self.b, self.plan = writer, writer.b, writer.plan
        self.arrays, self.index = arrays, index
        self.pointers: dict[tuple[str, int], LlvmValue] = {}
        self.numbers: Registers = {}
        graph = self.plan.graph
        made = {graph.parts.get(op.result.name, (op.result.name, 0))[0] for op in stage.ops}
        # All that comes from outside, before anything is written in its place.
        self._load_numbers([row for op in stage.ops for row in op.rows if graph.root(row)[0].name not in made])

    def fetch(self) -> None:
        """Ask for the same row of the next step.

        A processor sees by itself what is read next in a few places, but not in as many as there are rows and arrays.
        """
        b = self.b
        found = [(self.pointers[key], self.arrays[key].following) for key in self.pointers]
        wanted = [(pointer, following) for pointer, following in found if following is not None]
        if not wanted:
            return
        with b.when(wanted[0][1].is_worth_it):
            for pointer, following in wanted:
                place = b.advance(pointer, following.distance)
                with b.loop(integer(following.size), 64, stem="line") as (line, _):
                    b.prefetch(b.advance(place, line.index), near=False)

    def _load_numbers(self, rows: list[Row]) -> None:
        for row in rows:
            if row.width == 1 and self._name(row) not in self.numbers:
                self.numbers[self._name(row)] = self._load(row, integer(0), 1)

    def _name(self, row: Row) -> str:
        """One name for a row and for a slice that is all of it."""
        graph = self.plan.graph
        return graph.root(row)[0].name if graph.is_whole(row) else row.name

    def phase(self, phase: Phase) -> None:
        for op in phase.scalars:
            self._load_numbers(list(op.rows))
            self._body([op], Position(self.b, LoopNest((1,), 0, 1), {}), 1, self.numbers)
        for ops in phase.loops.values():
            self._load_numbers([row for op in ops for row in op.rows])
            self._columns(ops)

    def _columns(self, ops: list[Op]) -> None:
        """The loops of a nest: those around everything, then vectors and what is reduced."""
        graph = self.plan.graph
        nest = nest_of(graph, ops)
        lanes = lanes_for(ops, nest.sizes[-1], self.writer.host, gathered=is_gathered(graph, nest, ops))
        within = self._across if nest.is_across else self._along
        self._loops(nest, nest.outer, {}, [], lambda steps, _: within(ops, nest, steps, lanes))

    def _loops(
        self, nest: LoopNest, axes: list[int], steps: Steps, sums: list[LlvmValue], body: LoopBody
    ) -> list[LlvmValue]:
        """The body in a loop over each axis, one within the other: what the sums that go through it have become."""
        if not axes:
            return body(steps, sums)
        with self.b.loop(integer(nest.sizes[axes[0]]), carry=sums, stem="axis") as (counter, phis):
            new = self._loops(nest, axes[1:], {**steps, axes[0]: counter.index}, phis, body)
            for phi, following in zip(phis, new, strict=True):
                counter.feed(phi, following)
        return counter.results

    def _along(self, ops: list[Op], nest: LoopNest, steps: Steps, lanes: int) -> list[LlvmValue]:
        """Vectors side by side; what is reduced is folded in the end, all lanes into one number."""
        reductions = [op for op in ops if op.kind in REDUCTIONS]
        sums = [self._start(op, lanes) for op in reductions]
        sums = self._loops(
            nest, nest.reduced, steps, sums, lambda here, sums: self._vectors(ops, nest, here, lanes, sums)
        )
        for op, total in zip(reductions, sums, strict=True):
            folded = self._fold(op, total)
            if not op.is_in_groups:
                self.numbers[op.result.name] = folded
            self._write(op, folded, self._group(nest, steps))
        return []

    def _vectors(
        self, ops: list[Op], nest: LoopNest, steps: Steps, lanes: int, sums: list[LlvmValue]
    ) -> list[LlvmValue]:
        """The innermost axis, a vector at a time, then what is left of it."""
        reductions = [op for op in ops if op.kind in REDUCTIONS]
        last = len(nest.sizes) - 1
        whole, rest = nest.sizes[-1] // lanes * lanes, nest.sizes[-1] % lanes
        if whole:
            with self.b.loop(integer(whole), lanes, carry=sums, stem="columns") as (counter, phis):
                here = Position(self.b, nest, {**steps, last: counter.index})
                sums = self._reduce(reductions, phis, self._body(ops, here, lanes, {}))
                for phi, following in zip(phis, sums, strict=True):
                    counter.feed(phi, following)
        if rest:
            values = self._body(ops, Position(self.b, nest, {**steps, last: integer(whole)}), rest, {})
            for op in reductions:
                values[op.result.name] = self._widen(op, values[op.result.name], lanes)
            sums = self._reduce(reductions, sums, values)
        return sums

    def _across(self, ops: list[Op], nest: LoopNest, steps: Steps, lanes: int) -> list[LlvmValue]:
        """For each vector, the loops over what is reduced: every lane is a sum of its own."""
        last = len(nest.sizes) - 1
        whole, rest = nest.sizes[-1] // lanes * lanes, nest.sizes[-1] % lanes
        if whole:
            with self.b.loop(integer(whole), lanes, stem="columns") as (counter, _):
                self._lanes(ops, nest, {**steps, last: counter.index}, lanes)
        if rest:
            self._lanes(ops, nest, {**steps, last: integer(whole)}, rest)
        return []

    def _lanes(self, ops: list[Op], nest: LoopNest, steps: Steps, lanes: int) -> None:
        reductions = [op for op in ops if op.kind in REDUCTIONS]

        def add(here: Steps, sums: list[LlvmValue]) -> list[LlvmValue]:
            return self._reduce(reductions, sums, self._body(ops, Position(self.b, nest, here), lanes, {}))

        sums = self._loops(nest, nest.reduced, steps, [self._start(op, lanes) for op in reductions], add)
        for op, total in zip(reductions, sums, strict=True):
            self._write(op, total, self._group(nest, steps))

    def _group(self, nest: LoopNest, steps: Steps) -> LlvmValue:
        """Where the number of the group goes that has just been reduced."""
        count = math.prod(nest.sizes[nest.first : nest.last])
        strides = [
            0 if nest.first <= axis < nest.last else stride if axis >= nest.last else stride // count
            for axis, stride in enumerate(nest.strides)
        ]
        return Position(self.b, nest, steps).column(tuple(strides))

    def _body(self, ops: list[Op], here: Position, lanes: int, registers: Registers) -> Registers:
        """All operations on `lanes` columns; what they write is written last."""
        for op in ops:
            given = op.rows if op.kind in REDUCTIONS else op.args
            args = [self._operand(op, arg, here, lanes, registers) for arg in given]
            if op.kind in REDUCTIONS:
                value = self.writer.pointwise.cast(args[0], REGISTER[op.result.dtype])
            else:
                value = self.writer.pointwise.emit(op, args)
            registers[op.result.name] = value
        for op in ops:
            if op.kind not in REDUCTIONS or op.rows[0].width == 1:
                self._write(op, registers[op.result.name], here.column(here.nest.strides))
        return registers

    def _operand(self, op: Op, arg: Operand, here: Position, lanes: int, registers: Registers) -> LlvmValue:
        if not isinstance(arg, Row):
            assert isinstance(arg, int | float)
            return self.writer.pointwise.number(op, arg, lanes)
        name = self._name(arg)
        if name in registers:
            return registers[name]
        if arg.width == 1:
            return self.b.splat(self.numbers[name], lanes)
        axes = self.plan.graph.axes.get(arg.name)
        if axes is None:
            registers[name] = self._load(arg, here.column(here.nest.strides), lanes)
        else:
            strides = here.nest.strides_of(axes)
            registers[name] = self._load(arg, here.column(strides), lanes, strides[-1])
        return registers[name]

    def _load(self, row: Row, column: LlvmValue, lanes: int, stride: int = 1) -> LlvmValue:
        """Some columns of a row, contiguous or strided; with a stride of 0, one of them in every lane."""
        address = self._address(self.plan.read_place(row), row.dtype, column)
        element = MEMORY[row.dtype]
        if stride == 1 or lanes == 1:
            value = self.b.load(vector(lanes, element), address)
        elif stride == 0:
            value = self.b.splat(self.b.load(vector(1, element), address), lanes)
        else:
            value = LlvmValue(vector(lanes, element), "poison")
            for lane in range(lanes):
                one = self.b.load(element, self.b.advance(address, lane * stride, SIZES[element]))
                value = self.b.let(value.type, f"insertelement {value}, {one}, i64 {lane}")
        return self.writer.pointwise.truth(value) if row.dtype == torch.bool else value

    def _write(self, op: Op, value: LlvmValue, column: LlvmValue) -> None:
        if value.element == "i1":
            value = self.b.convert("zext", value, "i8")
        for place in self.plan.places.writes.get(op.result.name, ()):
            self.b.store(value, self._address(place, op.result.dtype, column))

    def _address(self, place: Buffer, dtype: torch.dtype, column: LlvmValue) -> LlvmValue:
        key = (place.kind, place.index)
        if key not in self.pointers:
            array = self.arrays[key]
            self.pointers[key] = self.b.advance(array.base, self.b.binary("mul", self.index, array.stride))
        size = SIZES[MEMORY[dtype]]
        return self.b.advance(self.b.advance(self.pointers[key], column, size), place.start, size)

    def _start(self, op: Op, lanes: int) -> LlvmValue:
        element = REGISTER[op.result.dtype]
        return self.writer.pointwise.start(op.kind, vector(lanes, element), element)

    def _reduce(self, reductions: list[Op], sums: list[LlvmValue], values: Registers) -> list[LlvmValue]:
        return [
            self.writer.pointwise.combine(op.kind, total, values[op.result.name])
            for op, total in zip(reductions, sums, strict=True)
        ]

    def _widen(self, op: Op, value: LlvmValue, lanes: int) -> LlvmValue:
        """The last columns of a row as a whole vector, filled up with what changes nothing."""
        filler = self._start(op, value.lanes)
        return self.b.shuffle(value, filler, [min(lane, value.lanes) for lane in range(lanes)])

    def _fold(self, op: Op, total: LlvmValue) -> LlvmValue:
        """All lanes into one: halves onto each other, so that the order never depends on anything."""
        while total.lanes > 1:
            half = total.lanes // 2
            low, high = (self.b.shuffle(total, total, range(start, start + half)) for start in (0, half))
            total = self.writer.pointwise.combine(op.kind, low, high)
        return total
