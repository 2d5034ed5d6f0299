"""Where values live: in a register if one loop makes and uses them, else in memory, as few times as possible."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from throughtime.backends.cpu.plan.graph import PlanGraph, Target
from throughtime.backends.cpu.plan.schedule import Schedule
from throughtime.compiler.ir.loop_ir import Op, Row

INPUTS = ("stream", "lagged", "constant", "carried")


@dataclass(frozen=True)
class Buffer:
    """Columns from `start` of an array: an argument of the kernel, or scratch memory.

    `scratch` has a row for every row of the shard; `local` has one row, for values that do not outlive a stage.
    """

    kind: str
    index: int
    start: int = 0

    def moved(self, columns: int) -> Buffer:
        return Buffer(self.kind, self.index, self.start + columns)


@dataclass
class BufferAssignment:
    """The place of every row in memory, and what every operation writes."""

    home: dict[str, Buffer]
    writes: dict[str, list[Buffer]]
    late: list[tuple[Row, int]]
    """Carried values that may only be replaced when the step is over: the new row, and which value."""
    scratch: list[Row]
    local: list[Row]

    def of(self, graph: PlanGraph, row: Row) -> Buffer:
        """Where to read a row that is in memory."""
        root, start = graph.root(row)
        return self.home[root.name].moved(start)


def make_places(graph: PlanGraph, schedule: Schedule) -> BufferAssignment:
    """A home for every row that needs one, in the arrays that it has to be written to anyway if possible."""
    program = graph.program
    befores = [carry.before for carry in program.carried]
    inputs = zip(INPUTS, (program.streams, program.lagged, program.constants, befores), strict=True)
    home = {row.name: Buffer(kind, index) for kind, rows in inputs for index, row in enumerate(rows)}
    places = BufferAssignment(home, {}, [], [], [])
    needs = _memory_needs(graph, schedule)
    # Whole rows before the parts that are written into them; joined rows may be parts of others.
    for row in [*reversed(graph.joins.values()), *(op.result for op in graph.ops)]:
        _place(graph, schedule, places, row, needs)
    return places


def _place(graph: PlanGraph, schedule: Schedule, places: BufferAssignment, row: Row, needs: dict[str, str]) -> None:
    targets = graph.targets.get(row.name, [])
    found = [Buffer("stored", target.index) for target in targets if target.kind == "stored"]
    if row.name in graph.parts:
        whole, start = graph.parts[row.name]
        found += [place.moved(start) for place in places.writes[whole]]
    carried = [target for target in targets if target.kind == "carried"]
    safe = [target for target in carried if is_safe(graph, schedule, row, target)]
    found += [Buffer("carried", target.index) for target in safe]
    late = [target.index for target in carried if target not in safe]
    places.late += [(row, index) for index in late]
    kind = "scratch" if late else needs.get(row.name)
    if not found and kind is not None:
        array = places.scratch if kind == "scratch" else places.local
        found.append(Buffer(kind, len(array)))
        array.append(row)
    if found:
        places.home[row.name] = found[0]
    places.writes[row.name] = found


def _memory_needs(graph: PlanGraph, schedule: Schedule) -> dict[str, str]:
    """Rows that must be in memory for their readers: in `scratch` for another stage, `local` for another loop."""
    needs: dict[str, str] = {}
    for op in graph.ops:
        if op.kind == "product":
            needs[op.result.name] = "scratch"
        for row in graph.reads(op):
            root = graph.root(row)[0]
            for maker in schedule.writers(root):
                inside = op.kind != "product" and maker.kind != "product" and schedule.same_level(op, maker)
                if inside and _in_register(schedule, op, row, maker):
                    continue
                needs[root.name] = "local" if inside and needs.get(root.name) != "scratch" else "scratch"
    for name in graph.joins:
        needs.setdefault(name, "local")
    return needs


def _in_register(schedule: Schedule, op: Op, row: Row, maker: Op) -> bool:
    same_phase = schedule.phase[op.result.name] == schedule.phase[maker.result.name]
    return schedule.direct(op, row) and (same_phase or row.width == 1)


def is_safe(graph: PlanGraph, schedule: Schedule, row: Row, target: Target) -> bool:
    """Whether a carried value can be replaced where its new row is made: no operation reads the old one afterwards."""
    before = graph.program.carried[target.index].before
    writes = [(op, graph.parts.get(op.result.name, ("", 0))[1]) for op in schedule.writers(row)]
    return _is_read_in_time(graph, schedule, before, writes)


def replaceable(graph: PlanGraph, schedule: Schedule, places: BufferAssignment) -> frozenset[tuple[int, str]]:
    """Which stored rows can take the places of which streams: the number of the first, the name of the second."""
    program, found = graph.program, set()
    for index, stored in enumerate(program.stored):
        writes = [
            (op, place.start)
            for op in graph.ops
            for place in places.writes[op.result.name]
            if (place.kind, place.index) == ("stored", index)
        ]
        for stream in program.streams:
            alike = (stream.width, stream.dtype) == (stored.width, stored.dtype)
            if alike and _is_read_in_time(graph, schedule, stream, writes):
                found.add((index, stream.name))
    return frozenset(found)


def _is_read_in_time(graph: PlanGraph, schedule: Schedule, row: Row, writes: Sequence[tuple[Op, int]]) -> bool:
    """Whether everybody has read what is there of a row when operations write in its place, from some column on."""
    reads = [(op, read) for op in graph.ops for read in graph.reads(op) if graph.root(read)[0] == row]
    return all(
        _reads_in_time(schedule, reader, read, writer, written) for writer, written in writes for reader, read in reads
    )


def _reads_in_time(schedule: Schedule, reader: Op, read: Row, writer: Op, written: int) -> bool:
    graph = schedule.graph
    axes = graph.axes.get(read.name)
    start = graph.root(read)[1]
    first, last = axes.bounds if axes is not None else (start, start + read.width - 1)
    if last < written or written + writer.result.width <= first:
        return True
    reading, writing = schedule.position(reader), schedule.position(writer)
    if reader is writer and reader.kind == "product":
        return read not in reader.rows and start == written
    if reading[0] != writing[0]:
        return reading < writing
    if reader.kind == "product":
        # One cooperative thread may run one product of a stage while another runs the next.
        return False
    if read.width == 1:
        # One number is read before the first loop of its stage.
        return True
    together = schedule.share_loop(reader, writer) and start == written and axes is None
    return reading < writing or (reading == writing and together)
