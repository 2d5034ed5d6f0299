"""The kernel for people: the stages of a plan as readable pseudo-code."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from throughtime.backends.cpu.codegen.row_stage import lanes_for
from throughtime.backends.cpu.plan.buffer_assignment import Buffer
from throughtime.backends.cpu.plan.graph import COPY
from throughtime.backends.cpu.plan.kernel_plan import KernelPlan, ProductStage, RowStage
from throughtime.backends.cpu.plan.loop_nests import is_gathered, nest_of
from throughtime.backends.cpu.plan.scratch_layout import BLOCK_ROWS
from throughtime.compiler.ir.loop_ir import DTYPES, REDUCTIONS, Matrix, Op, Operand, Row
from throughtime.native.gemm.micro_kernel import PANEL_VECTORS
from throughtime.native.toolchain.llvm import Host

_SIGNS = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "floor_divide": "//", "remainder": "%", "pow": "**",
    "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
    "bitwise_and": "&", "bitwise_or": "|", "bitwise_xor": "^", "logical_and": "and", "logical_or": "or",
}  # fmt: skip


def write_source(plan: KernelPlan, host: Host) -> str:
    """The header with every argument, then the loop over steps."""
    return "\n".join([*_header(plan), "", *_Listing(plan, host).lines()])


def _header(plan: KernelPlan) -> Iterator[str]:
    program = plan.program
    yield f"# kernel of loop {program.name}{', backwards in time' if program.reverse else ''}"
    ahead = plan.ahead
    groups = (
        ("stream", program.given_streams, "[N, {}], read at step t"),
        ("lagged", program.lagged, "[N, {}], read at step t - 1; before the first step, initial rows [B, {}]"),
        ("constant", program.given_constants, "[{}]"),
        (
            "carried",
            [one.before for one in program.carried if one.before != one.after],
            "[B, {}], replaced step by step",
        ),
        (
            "carried",
            [one.before for one in program.carried if one.before == one.after],
            "[B, {}], the same at every step",
        ),
        ("stored", program.stored, "[N, {}], written at step t"),
        ("ahead", [] if ahead is None else ahead.program.stored, "[rows of a block, {}], for the steps of a block"),
        ("scratch", [] if ahead is None else ahead.places.scratch, "[rows of a block, {}]"),
        ("scratch", plan.places.scratch, "[rows, {}]"),
        ("local", [*plan.places.local, *([] if ahead is None else ahead.places.local)], "[{}], one row"),
    )
    for title, rows, shape in groups:
        for row in rows:
            yield f"#   {title:<8} {row.name}: {DTYPES[row.dtype]}{shape.replace('{}', str(row.width))}"
    for matrix in program.given_matrices:
        yield f"#   {'matrix':<8} {matrix}"


def _extent(op: Op) -> str:
    """What a reduction goes over."""
    if op.kind not in REDUCTIONS:
        return ""
    count, inner = op.group
    if not op.is_in_groups:
        return " over the columns"
    return f" over every {count} columns" + (f", {inner} apart" if inner > 1 else "")


class _Listing:
    """Writes the stages of one plan; its streams are read and stored `at` a step."""

    def __init__(self, plan: KernelPlan, host: Host, at: str = "t") -> None:
        self.plan, self.host, self.at = plan, host, at

    def lines(self) -> Iterator[str]:
        if self.plan.ahead is None:
            yield from self._steps("steps")
            return
        few = f"{BLOCK_ROWS} rows"
        yield f"for block in {self._walk('blocks of steps')}:  # as many steps as make {few}, or one"
        yield "    rows = the rows of this shard that are active in the block, side by side"
        yield from _Listing(self.plan.ahead, self.host, "block").stages()
        yield from textwrap.indent("\n".join(self._steps("block")), " " * 4).splitlines()

    def _walk(self, steps: str) -> str:
        return f"reversed({steps})" if self.plan.program.reverse else steps

    def _steps(self, steps: str) -> Iterator[str]:
        yield f"for t in {self._walk(steps)}:"
        yield "    rows = the rows of this shard that are active at t"
        yield from self.stages()

    def stages(self) -> Iterator[str]:
        for stage in self.plan.stages:
            yield from self._product_stage(stage) if isinstance(stage, ProductStage) else self._row_stage(stage)

    def _product_stage(self, stage: ProductStage) -> Iterator[str]:
        for op in stage.ops:
            row, matrix = op.args
            assert isinstance(row, Row)
            assert isinstance(matrix, Matrix)
            start = self.plan.graph.starts.get(op.result.name)
            first = f"{self._memory(start)} + " if start is not None else ""
            width = PANEL_VECTORS * self.host.lanes(matrix.dtype.itemsize)
            out = self._place(self.plan.places.home[op.result.name], op.result)
            shapes = f"[rows, {matrix.rows}] @ [{matrix.rows}, {matrix.columns}]"
            tiles = f"tiles of {self.host.tile_rows} x {width}"
            yield f"    {out} = {first}{self._memory(row)} @ {matrix.name}  # {shapes}, {tiles}"

    def _row_stage(self, stage: RowStage) -> Iterator[str]:
        yield "    for row in rows:"
        numbers: set[str] = set()
        for phase in stage.phases:
            for op in phase.scalars:
                yield from self._ops([op], " " * 8, numbers)
            for ops in phase.loops.values():
                nest = nest_of(self.plan.graph, ops)
                columns, gathered = nest.sizes[-1], is_gathered(self.plan.graph, nest, ops)
                lanes = lanes_for(ops, columns, self.host, gathered=gathered)
                yield f"        for {' x '.join(map(str, nest.sizes))} columns, {min(lanes, columns)} at a time:"
                yield from self._ops(ops, " " * 12, set(numbers))
                numbers |= {op.result.name for op in ops if op.result.width == 1}

    def _ops(self, ops: list[Op], indent: str, made: set[str]) -> Iterator[str]:
        """What is computed in registers, then what is written; `made` are the values in registers."""
        for op in ops:
            if op.kind != COPY:
                yield f"{indent}{op.result.name} = {self._expression(op, made)}{_extent(op)}"
                if not op.is_in_groups:
                    made.add(op.result.name)
        for op in ops:
            value = self._operand(op.args[0], made) if op.kind == COPY else op.result.name
            for place in self.plan.places.writes.get(op.result.name, ()):
                target = self._place(place, op.result)
                word = {"stored": "store", "carried": "carry"}.get(place.kind, "keep")
                yield f"{indent}{word} {target}" + (
                    f" = {value}" if target.removesuffix(f"[{self.at}]") != value else ""
                )

    def _expression(self, op: Op, made: set[str]) -> str:
        args = [self._operand(arg, made) for arg in (op.rows if op.kind in REDUCTIONS else op.args)]
        if op.kind in _SIGNS and len(args) == 2:
            return f"{args[0]} {_SIGNS[op.kind]} {args[1]}"
        return f"{op.kind}({', '.join([*args, *([DTYPES[op.result.dtype]] if op.kind == 'cast' else [])])})"

    def _operand(self, arg: Operand, made: set[str]) -> str:
        if not isinstance(arg, Row):
            return repr(arg) if not isinstance(arg, Matrix) else arg.name
        root, _ = self.plan.graph.root(arg)
        if self.plan.graph.is_whole(arg) and (root.name in made or root.name not in self.plan.places.home):
            return root.name
        return self._memory(arg)

    def _memory(self, row: Row) -> str:
        """A row where it lies in memory."""
        graph = self.plan.graph
        root, start = graph.root(row)
        name = self._place(self.plan.places.home[root.name], root)
        if row.name in graph.axes:
            return f"{name}{graph.axes[row.name]}"
        return name if graph.is_whole(row) else f"{name}[{start}:{start + row.width}]"

    def _place(self, place: Buffer, row: Row) -> str:
        program, places = self.plan.program, self.plan.places
        arrays: dict[str, list[Row]] = {
            "stream": list(program.streams), "lagged": list(program.lagged), "constant": list(program.constants),
            "carried": [carry.before for carry in program.carried], "stored": list(program.stored),
            "scratch": places.scratch, "local": places.local,
        }  # fmt: skip
        array = arrays[place.kind][place.index]
        steps = {"lagged": f"[{self.at}-1]", "stream": f"[{self.at}]", "stored": f"[{self.at}]"}
        name = array.name + steps.get(place.kind, "")
        return (
            name if (place.start, row.width) == (0, array.width) else f"{name}[{place.start}:{place.start + row.width}]"
        )
