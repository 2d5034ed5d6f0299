"""Hoisting, or loop-invariant code motion: nodes that do not depend on the state leave the loop.

Nodes whose results no later step needs leave it as well, to run after the loop for all steps at once.
"""

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

    `random`: random numbers that depend on shapes alone, for all steps at once. `invariant`: once, from parameters.
    `before`: for all steps at once, before the loop. `loop`: what the next state depends on, step by step. `after`: for
    all steps at once, after the loop.
    """

    random: list[Node]
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
        random=Section("random", parts.random),
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
    """Partition the nodes. `varying` values differ from step to step, `carried` ones come from the previous step.

    `carried_on` values go to the next step, `results` are needed outside. Cheap nodes that may run `everywhere`, and
    fills of rows, are copied into every section that uses them.
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
    # Values that depend on rows are not invariant even if they are constant, such as a sum of zeros.
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
    """Random nodes that depend on shapes alone, and the nodes that they need."""
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
    """Move cheap nodes into the loop if only it needs them, and it reads their arguments anyway or these are narrow."""
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
"""Rows of at least `_WIDE` features are wide; rows with `_MUCH` times fewer features are narrow beside them."""


def _spread_out(nodes: Iterable[Node]) -> set[Value]:
    """Wide rows that are cheap to compute from narrow ones, such as outer products: not worth storing."""
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
    """Leave reductions of wide rows to narrow ones in the loop, so that the wide rows are not stored for every step."""
    known = dict.fromkeys([*carried, *(value for node in parts.loop for value in node.results)])
    for value in known:
        moved = _narrowing(parts.after, value, results) if value.row_size >= _WIDE and value not in results else []
        parts.loop += moved
        chosen = set(map(id, moved))
        parts.after[:] = [node for node in parts.after if id(node) not in chosen]


def _narrowing(nodes: list[Node], value: Value, results: set[Value]) -> list[Node]:
    """The nodes that reduce a wide value to narrow ones; none if something else needs it as well."""
    wide, moved = {value}, list[Node]()
    for node in nodes:
        if wide.isdisjoint(node.values):
            continue
        moved.append(node)
        wide.update(result for result in node.results if result.row_size * _MUCH > value.row_size)
    needed = Graph(nodes).needed_for([value for node in moved for value in (*node.values, *node.results)])
    return needed if wide.isdisjoint(results) and all(map(_goes_by_rows, needed)) else []


def _goes_by_rows(node: Node) -> bool:
    """Whether a node is as fast in every step as once for all steps."""
    rows = [*node.results, *(value for value in node.values if value.has_rows)]
    return (node.is_pointwise or node.operation.narrows) and not node.is_random and all(v.row_axis == 0 for v in rows)


def is_cheap(node: Node) -> bool:
    """Whether a node is cheaper to recompute than to save."""
    return node.operation.recompute is RecomputePolicy.ALWAYS and node.result.row_axis == 0


def _touches(node: Node, values: set[Value]) -> bool:
    return not values.isdisjoint(node.results)
