"""A loop program made ready for stages: slices become views, joined rows become copies, sums start in products."""

from __future__ import annotations

import itertools
from collections import defaultdict
from dataclasses import dataclass, field

from throughtime.compiler.ir.loop_ir import REDUCTIONS, LoopProgram, Op, Row
from throughtime.compiler.ir.strided_view import StridedView, contiguous
from throughtime.compiler.pipeline import optimize_loop_body

COPY = "copy"
"""The one operation that a loop program does not have: a row, written somewhere else."""


def columns_of(op: Op) -> int:
    """The number of columns that an operation loops over."""
    return op.rows[0].width if op.kind in REDUCTIONS else op.result.width


@dataclass(frozen=True)
class Target:
    """Where a value must end up: row `index` of the `stored` or of the `carried` values of the program."""

    kind: str
    index: int


@dataclass
class PlanGraph:
    """Operations in order, none of them a slice, a join or features in another order."""

    program: LoopProgram
    ops: list[Op] = field(default_factory=list)
    views: dict[str, tuple[Row, int]] = field(default_factory=dict)
    """Slices, and what is read along axes: the row they are cut from, and where."""
    axes: dict[str, StridedView] = field(default_factory=dict)
    """The axes of those that are no slices, from the start of the row that they are cut from."""
    joins: dict[str, Row] = field(default_factory=dict)
    """Rows that are joined from parts, each written by a copy."""
    parts: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Results of these copies: the joined row, and where in it they lie."""
    starts: dict[str, Row] = field(default_factory=dict)
    """Products: the row their sums start from."""
    targets: defaultdict[str, list[Target]] = field(default_factory=lambda: defaultdict(list))

    def root(self, row: Row) -> tuple[Row, int]:
        """The row that `row` is cut from, and where: itself, at 0, if it is no slice."""
        return self.views.get(row.name, (row, 0))

    def is_whole(self, row: Row) -> bool:
        """Whether `row` is all of the row that it is cut from, in order."""
        root, start = self.root(row)
        return (start, row.width) == (0, root.width) and row.name not in self.axes

    def reads(self, op: Op) -> list[Row]:
        """Every row that an operation reads."""
        start = self.starts.get(op.result.name)
        return [*op.rows, *([start] if start is not None else [])]

    def cuts(self, op: Op) -> set[int]:
        """Where an operation divides its columns: how many lie within each division."""
        found: set[int] = set()
        for row in op.rows:
            if row.name in self.axes:
                found.update(contiguous(self.axes[row.name].sizes))
        if op.is_in_groups:
            count, inner = op.group
            found |= {inner, count * inner}
        return found - {1, columns_of(op)}

    def inputs(self) -> list[Row]:
        """Rows that are in memory before the step begins."""
        program = self.program
        befores = [carry.before for carry in program.carried]
        return [*program.streams, *program.lagged, *program.constants, *befores]

    def made(self) -> set[str]:
        """Names of the rows that the operations make."""
        return {op.result.name for op in self.ops} | set(self.joins)


def build_graph(program: LoopProgram) -> PlanGraph:
    """The operations of `program` that matter to its results."""
    body = optimize_loop_body(program)
    graph = PlanGraph(program, starts=body.starts)
    for op in _needed(body.ops, body.results, body.starts):
        if op.kind == "slice":
            _add_view(graph, op)
        elif op.kind == "strided":
            _add_axes(graph, op)
        elif op.kind == "cat":
            _add_join(graph, op)
        else:
            # A product reads whole rows; others read along axes, if there is one nest of loops for all of them.
            divided = sorted(graph.cuts(op))
            if op.kind == "product" or any(large % small for small, large in itertools.pairwise(divided)):
                args = tuple(_in_order(graph, arg) if isinstance(arg, Row) else arg for arg in op.args)
                graph.ops.append(Op(op.kind, op.result, args))
            else:
                graph.ops.append(op)
    _add_targets(graph)
    _copy_products(graph)
    return graph


def _needed(ops: list[Op], wanted: set[str], starts: dict[str, Row]) -> list[Op]:
    """Operations that lead to something wanted."""
    live: list[Op] = []
    wanted = set(wanted)
    for op in reversed(ops):
        name = op.result.name
        if name in wanted:
            wanted |= {row.name for row in op.rows} | ({starts[name].name} if name in starts else set())
            live.append(op)
    return live[::-1]


def _in_order(graph: PlanGraph, row: Row) -> Row:
    """A row whose features lie in memory as they are read: a copy, if it is read along axes."""
    if row.name not in graph.axes:
        return row
    copy = Row(f"{row.name}#in order", row.width, row.dtype)
    if all(op.result != copy for op in graph.ops):
        graph.ops.append(Op(COPY, copy, (row,)))
    return copy


def _add_axes(graph: PlanGraph, op: Op) -> None:
    axes = op.args[1]
    assert isinstance(axes, StridedView)
    root, start = graph.root(_in_order(graph, op.rows[0]))
    graph.axes[op.result.name] = axes = axes.moved(start)
    graph.views[op.result.name] = (root, axes.start)


def _add_view(graph: PlanGraph, op: Op) -> None:
    start = op.args[1]
    source = _in_order(graph, op.rows[0])
    assert isinstance(start, int)
    root, offset = graph.root(source)
    start += offset
    for part, (joined, place) in graph.parts.items():
        copy = next(made for made in graph.ops if made.result.name == part)
        if copy.rows[0].name in graph.axes:
            continue
        if joined == root.name and place <= start and start + op.result.width <= place + copy.result.width:
            # Cut from the part itself: no need to wait for the whole.
            piece, inside = graph.root(copy.rows[0])
            root, start = piece, inside + start - place
            break
    graph.views[op.result.name] = (root, start)


def _add_join(graph: PlanGraph, op: Op) -> None:
    graph.joins[op.result.name] = op.result
    start = 0
    for position, row in enumerate(op.rows):
        part = Row(f"{op.result.name}[{start}:{start + row.width}]#{position}", row.width, row.dtype)
        graph.ops.append(Op(COPY, part, (row,)))
        graph.parts[part.name] = (op.result.name, start)
        start += row.width


def _add_targets(graph: PlanGraph) -> None:
    """Note where results go; a result that no operation makes is copied."""
    program = graph.program
    made = graph.made()
    ends = [(row, Target("stored", index)) for index, row in enumerate(program.stored)]
    ends += [
        (carry.after, Target("carried", i)) for i, carry in enumerate(program.carried) if carry.after != carry.before
    ]
    for row, target in ends:
        if row.name in made:
            graph.targets[row.name].append(target)
            continue
        _add_copy(graph, row, target)


def _add_copy(graph: PlanGraph, row: Row, target: Target) -> None:
    copy = Row(f"{row.name}#{target.kind}{target.index}", row.width, row.dtype)
    graph.ops.append(Op(COPY, copy, (row,)))
    graph.targets[copy.name].append(target)


def _copy_products(graph: PlanGraph) -> None:
    """A product writes to one place; what else it must be written to is copied."""
    for op in [op for op in graph.ops if op.kind == "product" and op.result.name in graph.targets]:
        first, *others = graph.targets[op.result.name]
        graph.targets[op.result.name] = [first]
        for target in others:
            _add_copy(graph, op.result, target)
