"""Hoisting: what does not truly recur leaves the loop."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from throughtime.compiler.ir.graph import Graph, Node, Value, depends_on
from throughtime.compiler.ir.ops import Kind, RecomputePolicy
from throughtime.compiler.ir.program import Program
from throughtime.compiler.ir.sections import Loop, Section
from throughtime.compiler.trace.trace import Trace


@dataclass
class Partition:
    """The nodes of a step by the time at which they can run.

    `drawn`: random numbers that depend on nothing, for all steps at once. `invariant`: once, from parameters alone.
    `before`: for all steps at once, ahead of the loop. `loop`: what the next state truly needs. `after`: for all steps
    at once, when the loop has run.
    """

    drawn: list[Node]
    invariant: list[Node]
    before: list[Node]
    loop: list[Node]
    after: list[Node]


def hoist_step(traced: Trace, program: Program) -> Program:
    """Move the nodes of the forward loop to the sections in which they can run."""
    loop = program.loop
    parts = hoist(Graph(loop.nodes), traced.inputs, traced.state, traced.new_state, traced.outputs)
    hoisted = replace(
        program,
        drawn=Section("drawn", parts.drawn),
        invariant=Section("invariant", parts.invariant),
        before=Section("before", parts.before),
        loop=Loop.of(loop.name, parts.loop, traced.state, traced.new_state, reverse=False),
        after=Section("after", parts.after),
    )
    hoisted.loop.store([*traced.outputs, *hoisted.after.takes])
    return hoisted


def hoist(
    graph: Graph,
    varying: Iterable[Value],
    carried: Sequence[Value],
    carried_on: Sequence[Value],
    results: Iterable[Value] = (),
    everywhere: Iterable[Node] = (),
) -> Partition:
    """Sort the nodes; `varying` differs from step to step, `carried` is known only once the step before has run.

    `carried_on` is what the next step will find, `results` are wanted outside. Nodes that are to run `everywhere` cost
    next to nothing: each part that uses some has its own. Rows of zeros and the like are of that kind too.
    """
    drawn = _drawn(graph)
    cheap = {id(node) for node in everywhere}
    made_up = [node for node in graph.nodes if id(node) in cheap or _is_made_up(node)]
    chosen = {*map(id, made_up), *(id(node) for node in drawn if node.is_random)}
    nodes = [node for node in graph.nodes if id(node) not in chosen]
    recurrent = depends_on(nodes, carried)
    changing = depends_on(nodes, [*varying, *carried])
    needed = set(map(id, graph.needed_for(carried_on)))
    loop = [node for node in nodes if id(node) in needed and _touches(node, recurrent)]
    wanted = [*carried_on, *(value for node in loop for value in node.values)]
    wanted += [value for node in Graph(made_up).needed_for(wanted) for value in node.values]
    ahead = set(map(id, graph.needed_for(wanted)))
    looping = set(map(id, loop))
    parts = Partition(drawn, [], [], loop, [])
    # What is made of rows has to wait for them, even if it is the same for all of them, as a sum of zeros is.
    later = set(changing)
    for node in nodes:
        if id(node) in looping:
            continue
        of_rows = any(value.has_rows for value in (*node.values, *node.results))
        if not of_rows and later.isdisjoint((*node.values, *node.results)):
            parts.invariant.append(node)
            continue
        later.update(node.results)
        (parts.before if id(node) in ahead else parts.after).append(node)
    results = set(results)
    _sink(parts, carried, carried_on)
    _stay(parts, carried, results)
    order = {id(node): position for position, node in enumerate(graph.nodes)}
    for name, wanted_here in (("before", ()), ("loop", carried_on), ("after", results)):
        part = getattr(parts, name)
        used = {value for node in part for value in node.values} | set(wanted_here)
        setattr(parts, name, sorted([*Graph(made_up).needed_for(used), *part], key=lambda node: order[id(node)]))
    return parts


def _drawn(graph: Graph) -> list[Node]:
    """Random nodes that depend on nothing but shapes, and what they need."""
    free: set[Value] = set()
    wanted: list[Value] = []
    for node in graph.nodes:
        if (node.is_random or node.operation.kind is Kind.FILL) and free.issuperset(node.values):
            free.update(node.results)
            wanted += node.results if node.is_random else ()
    return graph.needed_for(wanted)


def _is_made_up(node: Node) -> bool:
    return node.operation.kind is Kind.FILL and not node.values and node.result.has_rows


def _sink(parts: Partition, carried: Sequence[Value], carried_on: Sequence[Value]) -> None:
    """Move cheap work into the loop that only the loop needs, from rows that the loop reads anyway, or narrow ones."""
    outside = {value for node in parts.after for value in node.values}
    inside = {value for node in parts.loop for value in node.values} | set(carried) | set(carried_on)
    spread = _spread_out(parts.before)
    kept: list[Node] = []
    for node in reversed(parts.before):
        rows = [value for value in node.values if value.has_rows]
        free = is_cheap(node) and all(value in inside for value in rows)
        alone = inside.issuperset(node.results) and outside.isdisjoint(node.results)
        if alone and (free or spread.issuperset(node.results)):
            parts.loop.insert(0, node)
            inside.update(rows)
        else:
            kept.insert(0, node)
            outside.update(node.values)
    parts.before[:] = kept


_WIDE, _MUCH = 256, 8
"""Rows of so many features are wide, and those of so many times fewer are narrow beside them."""


def _spread_out(nodes: Iterable[Node]) -> set[Value]:
    """Wide rows that are made of narrow ones at little cost, as outer products are: not worth to be kept anywhere."""
    found: set[Value] = set()
    for node in nodes:
        is_outer = node.name == "bmm" and node.args[0].shape[2] == 1 and node.result.row_axis == 0
        if not is_cheap(node) and not is_outer:
            continue
        size = node.result.row_size
        rows = [value for value in node.values if value.has_rows]
        if size >= _WIDE and all(value in found or value.row_size * _MUCH <= size for value in rows):
            found.add(node.result)
    return found


def _stay(parts: Partition, carried: Sequence[Value], results: set[Value]) -> None:
    """Leave in the loop what makes narrow rows of wide ones: the wide ones need not be kept for every step then."""
    known = dict.fromkeys([*carried, *(value for node in parts.loop for value in node.results)])
    for value in known:
        moved = _narrowing(parts.after, value, results) if value.row_size >= _WIDE and value not in results else []
        parts.loop += moved
        chosen = set(map(id, moved))
        parts.after[:] = [node for node in parts.after if id(node) not in chosen]


def _narrowing(nodes: list[Node], value: Value, results: set[Value]) -> list[Node]:
    """The nodes that lead from a wide value to narrow ones; none if it is wanted for something else as well."""
    wide, moved = {value}, list[Node]()
    for node in nodes:
        if wide.isdisjoint(node.values):
            continue
        moved.append(node)
        wide.update(result for result in node.results if result.row_size * _MUCH > value.row_size)
    needed = Graph(nodes).needed_for([value for node in moved for value in (*node.values, *node.results)])
    return needed if wide.isdisjoint(results) and all(map(_goes_by_rows, needed)) else []


def _goes_by_rows(node: Node) -> bool:
    """Whether a node is as good a part of every step as of all of them."""
    rows = [*node.results, *(value for value in node.values if value.has_rows)]
    return (node.is_pointwise or node.operation.narrows) and not node.is_random and all(v.row_axis == 0 for v in rows)


def is_cheap(node: Node) -> bool:
    """Whether running a node again costs less than keeping its result."""
    return node.operation.recompute is RecomputePolicy.ALWAYS and node.result.row_axis == 0


def _touches(node: Node, values: set[Value]) -> bool:
    return not values.isdisjoint(node.results)
