"""The kernel as data: stages of products and stages of rows, from which both the assembly and the listing are made."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from throughtime.backends.cpu.plan.buffer_assignment import Buffer, BufferAssignment, make_places, replaceable
from throughtime.backends.cpu.plan.graph import COPY, PlanGraph, build_graph, columns_of
from throughtime.backends.cpu.plan.loop_nests import LoopKey
from throughtime.backends.cpu.plan.schedule import make_schedule
from throughtime.compiler.ir.loop_ir import LoopProgram, Op, Row


@dataclass(frozen=True)
class Phase:
    """Operations on single numbers, then one loop over columns for each width, or several if they are divided."""

    scalars: list[Op]
    loops: dict[LoopKey, list[Op]]


@dataclass(frozen=True)
class RowStage:
    """Row by row: every operation between two products, fused."""

    phases: list[Phase]

    @property
    def ops(self) -> list[Op]:
        return [op for phase in self.phases for ops in (phase.scalars, *phase.loops.values()) for op in ops]


@dataclass(frozen=True)
class ProductStage:
    """All rows at once: products with matrices, one after another."""

    ops: list[Op]


@dataclass
class KernelPlan:
    """Stages in order; `graph` and `places` say what they read and write. `ahead` is the plan of what runs ahead."""

    program: LoopProgram
    graph: PlanGraph
    places: BufferAssignment
    replaceable: frozenset[tuple[int, str]]
    """Stored rows, by number, that may be written where a stream, by name, was read."""
    stages: list[RowStage | ProductStage] = field(default_factory=list)
    ahead: KernelPlan | None = None

    def read_place(self, row: Row) -> Buffer:
        return self.places.of(self.graph, row)


def make_plan(program: LoopProgram) -> KernelPlan:
    """Decide what is fused, what lives where, and in which order everything runs."""
    graph = build_graph(program)
    schedule = make_schedule(graph)
    places = make_places(graph, schedule)
    plan = KernelPlan(program, graph, places, replaceable(graph, schedule, places))
    if program.ahead is not None:
        plan.ahead = make_plan(program.ahead.program)
    stages: defaultdict[int, list[Op]] = defaultdict(list)
    for op in graph.ops:
        stages[schedule.position(op)[0]].append(op)
    for number, ops in sorted(stages.items()):
        plan.stages.append(ProductStage(ops) if number % 2 else _row_stage(ops, schedule.phase, schedule.loop))
    if plan.places.late:
        plan.stages.append(_late_stage(plan))
    return plan


def _row_stage(ops: list[Op], phase: dict[str, int], loop: dict[str, LoopKey]) -> RowStage:
    phases = [Phase([], {}) for _ in range(1 + max(phase[op.result.name] for op in ops))]
    for op in ops:
        chosen = phases[phase[op.result.name]]
        if columns_of(op) == 1:
            chosen.scalars.append(op)
        else:
            chosen.loops.setdefault(loop[op.result.name], []).append(op)
    return RowStage([chosen for chosen in phases if chosen.scalars or chosen.loops])


def _late_stage(plan: KernelPlan) -> RowStage:
    """At the end of the step, the carried values that were still being read."""
    ops = []
    for row, index in plan.places.late:
        name = f"{row.name}#late{index}"
        ops.append(Op(COPY, Row(name, row.width, row.dtype), (row,)))
        plan.places.writes[name] = [Buffer("carried", index)]
    return _row_stage(ops, {op.result.name: 0 for op in ops}, {op.result.name: (op.result.width, 0) for op in ops})
