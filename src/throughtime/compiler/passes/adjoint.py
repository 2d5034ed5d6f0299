"""The adjoint: the backward program, its saved values, and rematerialisation of cheap ones.

The backward loop carries the gradients of states from each step to the previous one. Gradients of parameters are sums
over rows: computed for the rows of all steps at once, they are sums over time as well.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

import torch

from throughtime.compiler.ir.graph import Graph, Node, Value, depends_on
from throughtime.compiler.ir.program import Adjoint, Program
from throughtime.compiler.ir.sections import Loop, Section
from throughtime.compiler.lowering.rules import rule_for
from throughtime.compiler.passes.hoist import Partition, hoist, is_cheap
from throughtime.compiler.passes.regroup_sums import regroup_sums
from throughtime.compiler.trace.trace import Trace


def add_adjoint(traced: Trace, program: Program) -> Program:
    """The program with its backward part, if anything has a gradient; the forward loop stores what that needs."""
    gradients = (*traced.tensor_gradients, *traced.input_gradients, *traced.state_gradients)
    if all(gradient is None for gradient in gradients):
        return program
    sections = (program.random, program.invariant, program.before, program.loop, program.after)
    forward = Partition(*(section.nodes for section in sections))
    adjoint = _adjoint(traced, forward, Graph(traced.graph.nodes[traced.backward_start :]), program.name)
    found = replace(program, adjoint=adjoint)
    found.loop.store(found.saved)
    return found


def _adjoint(traced: Trace, forward: Partition, backward: Graph, name: str) -> Adjoint:
    """Partition the backward part of a trace."""
    closed = _close(traced)
    available = _forward_values(forward, traced)
    again = _recomputed(forward, backward, traced, closed.gradients)
    nodes = [*again, *closed.nodes, *backward.nodes]
    rewriter = regroup_sums(Graph(nodes), closed.cotangents)

    def resolved(values: Iterable[Value | None]) -> list[Value | None]:
        return [None if value is None else rewriter.resolve(value) for value in values]

    tensor_gradients, input_gradients = resolved(traced.tensor_gradients), resolved(traced.input_gradients)
    gradients = [rewriter.resolve(value) for value in closed.gradients]
    wanted = [value for value in (*tensor_gradients, *input_gradients, *gradients) if value is not None]
    graph = Graph(Graph(rewriter.nodes).needed_for(wanted))
    given = [value for value in traced.output_cotangents if value is not None]
    standing = _standing(traced, graph, [*given, *closed.cotangents])
    found, left = [*closed.cotangents, *standing], [*gradients, *standing]
    varying = [value for value in (*given, *available) if value.has_rows and value not in standing]
    moving = depends_on(graph.nodes, [*given, *found])
    still = [node for node in graph.nodes if is_cheap(node) and node.result not in moving]
    asked = [value for value in (*tensor_gradients, *input_gradients) if value is not None]
    parts = hoist(graph, varying, found, left, asked, everywhere=still)
    loop = Loop.of(f"{name} backward", parts.loop, found, left, reverse=True)
    invariant, before, after = (Section(part, getattr(parts, part)) for part in ("invariant", "before", "after"))
    loop.store([*after.takes, *(value for value in (*tensor_gradients, *input_gradients) if value is not None)])
    computed = {value for section in (invariant, before, loop, after) for value in section.gives}
    known, states = set(available) - computed, set(traced.state) - set(standing)
    used = dict.fromkeys(
        [*(value for section in (invariant, before, loop, after) for value in section.takes), *loop.reads, *wanted]
    )
    return Adjoint(
        output_cotangents=traced.output_cotangents,
        carries=closed.carries,
        standing=[index for index, state in enumerate(traced.state) if state in standing],
        tensor_gradients=tensor_gradients,
        input_gradients=input_gradients,
        invariant=invariant,
        before=before,
        loop=loop,
        after=after,
        saved=[value for value in used if value in known and value not in traced.state],
        lagged=[value for value in used if value in states],
    )


def _standing(traced: Trace, graph: Graph, cotangents: list[Value]) -> list[Value]:
    """The states that nodes read and no step changes, such as the memory of an attention.

    Values that depend on them alone are then computed at every step. If that cannot be lowered, such states are saved
    for every step like others, and these values are computed before the loop.
    """
    taken = {value for node in graph.nodes for value in node.values}
    moving = depends_on(graph.nodes, cotangents)
    pairs = zip(traced.state, traced.new_state, strict=True)
    found = [old for old, new in pairs if old is new and old in taken]
    return [state for state in found if all(map(rule_for, _made_of(graph.nodes, state, moving)))]


def _made_of(nodes: list[Node], state: Value, moving: set[Value]) -> list[Node]:
    """The nodes that depend on a state, and not on gradients from later steps."""
    reached = depends_on(nodes, [state])
    return [node for node in nodes if not reached.isdisjoint(node.results) and moving.isdisjoint(node.results)]


class _Closed(NamedTuple):
    """The states with a gradient, by index, each with its cotangent and gradient."""

    carries: list[int]
    cotangents: list[Value]
    gradients: list[Value]
    nodes: list[Node]


def _close(traced: Trace) -> _Closed:
    """Pair cotangents and gradients of states, so that the backward loop can carry them.

    A state without a gradient gets zeros; one without a cotangent gets a value that nothing reads before the first
    step. States with neither are carried too: the final state of a row without steps is its initial state.
    """
    closed = _Closed([], [], [], [])
    pairs = zip(traced.state, traced.state_cotangents, traced.state_gradients, strict=True)
    for index, (state, cotangent, gradient) in enumerate(pairs):
        if cotangent is None and gradient is None and not state.dtype.is_floating_point:
            continue
        closed.carries.append(index)
        closed.cotangents.append(cotangent or Value(f"d_new_{state.name}", state.shape, state.dtype))
        closed.gradients.append(gradient or Value(f"d_{state.name}", state.shape, state.dtype))
        if gradient is None:
            options = {"dtype": state.dtype, "device": traced.device}
            node = Node(torch.ops.aten.zeros.default, (list(state.shape),), options, (closed.gradients[-1],))
            closed.nodes.append(node)
    return closed


def _forward_values(forward: Partition, traced: Trace) -> list[Value]:
    nodes = [*forward.random, *forward.invariant, *forward.before, *forward.loop, *forward.after]
    made = [value for node in nodes for value in node.results]
    return [*traced.tensors, *traced.inputs, *traced.state, *traced.literals, *made]


def _recomputed(forward: Partition, backward: Graph, traced: Trace, gradients: list[Value]) -> list[Node]:
    """Forward nodes that are cheaper to recompute than to save: all that they read is available anyway."""
    used = {value for node in backward.nodes for value in node.values} | set(gradients)
    there = {*traced.tensors, *traced.inputs, *traced.literals}
    there |= {value for node in (*forward.random, *forward.invariant) for value in node.results}
    # The caller holds outputs. A state that is read as it was before a step is saved for every step, if it changes.
    pairs = list(zip(traced.state, traced.new_state, strict=True))
    there |= {*traced.outputs, *(new for old, new in pairs if old in used or old is new)}
    order = [*forward.before, *forward.loop, *forward.after]
    made = Graph(order).producers()

    def chain(value: Value) -> list[Node] | None:
        """The cheap nodes that compute a value from available ones; None if there are none."""
        if value in used or value in there:
            return []
        return again(value)

    def again(value: Value) -> list[Node] | None:
        node = made.get(value)
        if node is None or not is_cheap(node):
            return None
        chains = [chain(argument) for argument in node.values]
        return None if any(part is None for part in chains) else [node, *(n for part in chains for n in part or ())]

    chosen: set[int] = set()
    for node in reversed(order):
        for value in node.results:
            found = again(value) if value in used and value not in there else None
            if found is not None:
                chosen.update(map(id, found))
                used.discard(value)
    return [node for node in order if id(node) in chosen]
