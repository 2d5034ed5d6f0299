"""A loop program made ready for stages: slices become views, joined rows become copies, sums start in products."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from throughtime.compiler._loop import POINTWISE, LoopProgram, Op, Operand, Row

COPY = "copy"
"""The one operation that a loop program does not have: a row, written somewhere else."""


@dataclass(frozen=True)
class Target:
    """Where a value must end up: row `index` of the `stored` or of the `carried` values of the program."""

    kind: str
    index: int


@dataclass
class Graph:
    """Operations in order, none of them a slice or a join."""

    program: LoopProgram
    ops: list[Op] = field(default_factory=list)
    views: dict[str, tuple[Row, int]] = field(default_factory=dict)
    """Slices: the row they are cut from, and where."""
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

    def reads(self, op: Op) -> list[Row]:
        """Every row that an operation reads."""
        start = self.starts.get(op.result.name)
        return [*op.rows, *([start] if start is not None else [])]

    def inputs(self) -> list[Row]:
        """Rows that are in memory before the step begins."""
        program = self.program
        befores = [carry.before for carry in program.carried]
        return [*program.streams, *program.lagged, *program.constants, *befores]

    def made(self) -> set[str]:
        """Names of the rows that the operations make."""
        return {op.result.name for op in self.ops} | set(self.joins)


def build_graph(program: LoopProgram) -> Graph:
    """The operations of `program` that matter to its results."""
    wanted = {row.name for row in program.stored} | {carry.after.name for carry in program.carried}
    graph = Graph(program)
    for op in _needed(sink_slices(list(program.body), wanted), wanted):
        if op.kind == "slice":
            _add_view(graph, op)
        elif op.kind == "cat":
            _add_join(graph, op)
        else:
            graph.ops.append(op)
    _add_targets(graph)
    _start_products(graph)
    _copy_products(graph)
    return graph


def _needed(ops: list[Op], wanted: set[str]) -> list[Op]:
    kept: list[Op] = []
    wanted = set(wanted)
    for op in reversed(ops):
        if op.result.name in wanted:
            wanted |= {row.name for row in op.rows}
            kept.append(op)
    return kept[::-1]


def sink_slices(ops: list[Op], wanted: set[str]) -> list[Op]:
    """`slice(f(x))` becomes `f(slice(x))` where `f(x)` is used in separate slices alone, so that it needs no memory."""
    kept: dict[str, Op] = {}
    uses: defaultdict[str, list[Op]] = defaultdict(list)
    same: dict[str, Row] = {}
    for op in reversed(ops):
        groups = _separate_slices(op, uses[op.result.name], wanted) if op.result.name not in wanted else None
        for cuts in groups or []:
            same.update({cut.result.name: cuts[0].result for cut in cuts[1:]})
            for cut in cuts:
                del kept[cut.result.name]
        for made in [op] if groups is None else _sliced(op, [cuts[0] for cuts in groups])[::-1]:
            kept[made.result.name] = made
            for row in made.rows:
                uses[row.name].append(made)
    return [_renamed(op, same) for op in reversed(kept.values())]


def _renamed(op: Op, same: dict[str, Row]) -> Op:
    args = tuple(same.get(arg.name, arg) if isinstance(arg, Row) else arg for arg in op.args)
    return Op(op.kind, op.result, args)


def _separate_slices(op: Op, uses: list[Op], wanted: set[str]) -> list[list[Op]] | None:
    """The uses of a pointwise result, if they are slices that do not overlap; those of the same columns together."""
    if op.kind not in POINTWISE or op.result.width == 1 or not uses or any(use.kind != "slice" for use in uses):
        return None
    groups: defaultdict[tuple[int, int], list[Op]] = defaultdict(list)
    for use in sorted(uses, key=lambda use: use.result.name not in wanted):
        groups[_bounds(use)].append(use)
    ordered = sorted(groups)
    clear = all(left[1] <= right[0] for left, right in zip(ordered, ordered[1:], strict=False))
    unwanted = all(cut.result.name not in wanted for cuts in groups.values() for cut in cuts[1:])
    return list(groups.values()) if clear and unwanted else None


def _bounds(cut: Op) -> tuple[int, int]:
    _, start, stop = cut.args
    assert isinstance(start, int)
    assert isinstance(stop, int)
    return start, stop


def _sliced(op: Op, slices: list[Op]) -> list[Op]:
    """The operation once for each slice of its result, on slices of its arguments."""
    new: list[Op] = []
    for cut in slices:
        start, stop = _bounds(cut)
        args: list[Operand] = []
        for position, arg in enumerate(op.args):
            if isinstance(arg, Row) and arg.width > 1:
                part = Row(f"{cut.result.name}.{position}", stop - start, arg.dtype)
                new.append(Op("slice", part, (arg, start, stop)))
                arg = part  # noqa: PLW2901
            args.append(arg)
        new.append(Op(op.kind, cut.result, tuple(args)))
    return new


def _add_view(graph: Graph, op: Op) -> None:
    source, start, _ = op.args
    assert isinstance(source, Row)
    assert isinstance(start, int)
    root, offset = graph.root(source)
    start += offset
    for part, (joined, place) in graph.parts.items():
        copy = next(made for made in graph.ops if made.result.name == part)
        if joined == root.name and place <= start and start + op.result.width <= place + copy.result.width:
            # Cut from the part itself: no need to wait for the whole.
            piece, inside = graph.root(copy.rows[0])
            root, start = piece, inside + start - place
            break
    graph.views[op.result.name] = (root, start)


def _add_join(graph: Graph, op: Op) -> None:
    graph.joins[op.result.name] = op.result
    start = 0
    for position, row in enumerate(op.rows):
        part = Row(f"{op.result.name}.{position}", row.width, row.dtype)
        graph.ops.append(Op(COPY, part, (row,)))
        graph.parts[part.name] = (op.result.name, start)
        start += row.width


def _add_targets(graph: Graph) -> None:
    """Note where results go; a result that no operation makes is copied."""
    program = graph.program
    made = graph.made()
    ends = [(row, Target("stored", index)) for index, row in enumerate(program.stored)]
    ends += [(carry.after, Target("carried", i)) for i, carry in enumerate(program.carried) if carry.after != carry.before]
    for row, target in ends:
        if row.name in made:
            graph.targets[row.name].append(target)
            continue
        _add_copy(graph, row, target)


def _add_copy(graph: Graph, row: Row, target: Target) -> None:
    copy = Row(f"{row.name}.{target.kind}{target.index}", row.width, row.dtype)
    graph.ops.append(Op(COPY, copy, (row,)))
    graph.targets[copy.name].append(target)


def _start_products(graph: Graph) -> None:
    """`product + row` becomes a product whose sums start from the row, where that saves a pass over memory."""
    uses: defaultdict[str, int] = defaultdict(int)
    for op in graph.ops:
        for row in op.rows:
            uses[graph.root(row)[0].name] += 1
    memory = {row.name for row in graph.inputs()}
    products: dict[str, Op] = {}
    ops: list[Op] = []
    for op in graph.ops:
        found = _product_in(graph, op, products, uses, memory)
        if found is None:
            ops.append(op)
            if op.kind == "product":
                products[op.result.name] = op
            continue
        product, start = found
        ops.remove(product)
        del products[product.result.name]
        new = Op("product", op.result, product.args)
        first = graph.starts.pop(product.result.name, None)
        assert first is None
        graph.starts[op.result.name] = start
        products[op.result.name] = new
        ops.append(new)
    graph.ops = ops


def _copy_products(graph: Graph) -> None:
    """A product writes to one place; what else it must be written to is copied."""
    for op in [op for op in graph.ops if op.kind == "product"]:
        first, *others = graph.targets.get(op.result.name) or [None]
        if first is not None:
            graph.targets[op.result.name] = [first]
        for target in others:
            if target is not None:
                _add_copy(graph, op.result, target)


def _product_in(
    graph: Graph, op: Op, products: dict[str, Op], uses: dict[str, int], memory: set[str]
) -> tuple[Op, Row] | None:
    """The product and the other row of a sum of the two, if the product serves nothing else."""
    if op.kind != "add" or len(op.rows) != 2:
        return None
    for own, other in (op.rows, op.rows[::-1]):
        name, root = own.name, graph.root(other)[0].name
        free = name in products and name not in graph.starts and uses[name] == 1 and name not in graph.targets
        if free and other.width == own.width and (root in memory or root in products) and root != name:
            return products[name], other
    return None
