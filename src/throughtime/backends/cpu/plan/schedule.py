"""When each operation runs: levels between products, and phases between reductions.

A step is: rows of level 0, products of level 0, rows of level 1, and so on. Within the rows of a level, an operation
has a phase: in one phase, all operations on rows of one width share one loop over columns, if they divide them alike.
What is read in another place than where it was written (a slice, a joined row, another order) or reduced is ready for
the phase after.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from throughtime.backends.cpu.plan.graph import COPY, PlanGraph, columns_of
from throughtime.backends.cpu.plan.loop_nests import LoopKey, share_loops
from throughtime.compiler.ir.loop_ir import REDUCTIONS, Op, Row


@dataclass
class Schedule:
    """The level of every operation, and of those that are no product the loop and the phase."""

    graph: PlanGraph
    loop: dict[str, LoopKey] = field(default_factory=dict)
    level: dict[str, int] = field(default_factory=dict)
    phase: dict[str, int] = field(default_factory=dict)

    def direct(self, reader: Op, row: Row) -> bool:
        """Whether `reader` finds `row` in a register: made in the same loop, or one number made for the same row."""
        root, _ = self.graph.root(row)
        maker = self._makers.get(root.name)
        if maker is None or maker.kind == "product" or reader.kind == "product" or not self.same_level(reader, maker):
            return False
        if not self.graph.is_whole(row):
            return False
        return root.width == 1 or self.share_loop(reader, maker)

    def share_loop(self, left: Op, right: Op) -> bool:
        return self.loop[left.result.name] == self.loop[right.result.name]

    def same_level(self, left: Op, right: Op) -> bool:
        return self.level[left.result.name] == self.level[right.result.name]

    def __post_init__(self) -> None:
        self._makers = {op.result.name: op for op in self.graph.ops}
        self._order = {op.result.name: place for place, op in enumerate(self.graph.ops)}
        self._writers: defaultdict[str, list[Op]] = defaultdict(list)
        for op in self.graph.ops:
            self._writers[self.graph.parts.get(op.result.name, (op.result.name, 0))[0]].append(op)

    def writers(self, row: Row) -> list[Op]:
        """The operations that write `row`: its own, or the copies that join it; none for an input."""
        return self._writers[row.name]

    def position(self, op: Op) -> tuple[int, int]:
        """A number for the stage and one for the place in it, in the order in which they run."""
        name = op.result.name
        if op.kind == "product":
            return 2 * self.level[name] + 1, self._order[name]
        return 2 * self.level[name], self.phase[name]


def make_schedule(graph: PlanGraph) -> Schedule:
    """Levels, then phases: products as early as they can be, what feeds them as late as it can be."""
    schedule = Schedule(graph, share_loops(graph, _readers(graph)))
    for op in graph.ops:
        schedule.level[op.result.name] = max((_ready_level(schedule, row) for row in graph.reads(op)), default=0)
    _delay_levels(schedule)
    for op in graph.ops:
        if op.kind != "product":
            schedule.phase[op.result.name] = max((_ready_phase(schedule, op, row) for row in op.rows), default=0)
    _delay_phases(schedule)
    return schedule


def _ready_level(schedule: Schedule, row: Row) -> int:
    """The first level that finds `row` ready."""
    root, _ = schedule.graph.root(row)
    return max((schedule.level[op.result.name] + (op.kind == "product") for op in schedule.writers(root)), default=0)


def _readers(graph: PlanGraph) -> dict[str, list[Op]]:
    """Who reads a row, a slice of it, or a row that it is joined into."""
    readers: defaultdict[str, list[Op]] = defaultdict(list)
    for op in graph.ops:
        for row in graph.reads(op):
            readers[graph.root(row)[0].name].append(op)
    for part, (joined, _) in graph.parts.items():
        # One list for all parts and the whole.
        readers[part] = readers[joined]
    return readers


def _delay_levels(schedule: Schedule) -> None:
    graph, level = schedule.graph, schedule.level
    readers = _readers(graph)
    for op in reversed(graph.ops):
        following = [level[reader.result.name] for reader in readers.get(op.result.name, ())]
        if op.kind != "product" and following:
            level[op.result.name] = max(level[op.result.name], min(following))
    for op in graph.ops:
        root = graph.root(op.rows[0])[0].name
        if op.kind == COPY and root in level:
            # A copy is free where its source still is in a register.
            level[op.result.name] = _ready_level(schedule, op.rows[0])


def _ready_phase(schedule: Schedule, op: Op, row: Row) -> int:
    """The first phase of the operation's level that finds `row` ready for it."""
    graph = schedule.graph
    ready = 0
    for maker in schedule.writers(graph.root(row)[0]):
        if maker.kind == "product" or not schedule.same_level(op, maker):
            continue
        waits = not schedule.direct(op, row) or (maker.kind in REDUCTIONS and columns_of(maker) > 1)
        ready = max(ready, schedule.phase[maker.result.name] + waits)
    return ready


def _delay_phases(schedule: Schedule) -> None:
    graph, phase = schedule.graph, schedule.phase
    readers = _readers(graph)
    for op in reversed(graph.ops):
        if op.kind == "product" or op.kind in REDUCTIONS:
            continue
        latest = [_latest_phase(schedule, op, reader) for reader in readers.get(op.result.name, ())]
        if latest:
            phase[op.result.name] = max(phase[op.result.name], min(latest))
    for op in graph.ops:
        if op.kind == COPY:
            phase[op.result.name] = _ready_phase(schedule, op, op.rows[0])


def _latest_phase(schedule: Schedule, op: Op, reader: Op) -> int:
    """The last phase in which `op` is in time for `reader`."""
    graph, phase = schedule.graph, schedule.phase
    if reader.kind == "product" or not schedule.same_level(op, reader):
        # Nothing to gain: memory serves it.
        return phase[op.result.name]
    rows = [row for row in graph.reads(reader) if graph.root(row)[0].name == op.result.name]
    direct = bool(rows) and all(schedule.direct(reader, row) for row in rows)
    return phase[reader.result.name] - (not direct)
