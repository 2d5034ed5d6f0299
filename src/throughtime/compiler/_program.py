"""From a cell to its programs: forward, and for training backward as well. The passes in their order."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from throughtime.compiler._adjoint import Adjoint, make_adjoint
from throughtime.compiler._errors import Uncompilable
from throughtime.compiler._graph import Graph, Value
from throughtime.compiler._hoist import hoist, regroup_sums
from throughtime.compiler._products import MOST_SLOTS
from throughtime.compiler._replay import Replay
from throughtime.compiler._row_numbers import pick_by_row
from throughtime.compiler._rows import check_random, check_rows
from throughtime.compiler._sections import Loop, Section
from throughtime.compiler._simplify import Pass, passes_for
from throughtime.compiler._spread import spread_scalars
from throughtime.compiler._trace import Tracing
from throughtime.compiler._traced import StepSignature, Trace
from throughtime.compiler._unfold import unfold_rows
from throughtime.compiler._verify import check_graph
from throughtime.compiler._watch import Anatomy, hooked_module, norm_over_rows


@dataclass
class Program:
    """One step of a cell, sorted by when its parts can run.

    `tensors` are the cell's own, in the order of its `Anatomy`.
    """

    name: str
    tensors: list[Value]
    inputs: list[Value]
    state: list[Value]
    outputs: list[Value]
    new_state: list[Value]
    literals: dict[Value, Tensor]
    drawn: Section
    invariant: Section
    before: Section
    loop: Loop
    after: Section
    adjoint: Adjoint | None
    # How to run a step again whose gradient torch is to differentiate, if the nodes here do not tell.
    replay: Replay | None = None

    @property
    def states(self) -> list[tuple[Value, Value]]:
        """Each state with the one that takes its place."""
        return list(zip(self.state, self.new_state, strict=True))

    @property
    def kept(self) -> list[Value]:
        """What the backward pass must find again.

        A state that it needs as it was before a step is the new state of the step before.
        """
        if self.adjoint is None:
            return []
        lagged = set(self.adjoint.lagged)
        return list(dict.fromkeys([*(new for old, new in self.states if old in lagged), *self.adjoint.saved]))


def compile_step(
    cell: Any,
    anatomy: Anatomy,
    signature: StepSignature,
    call: Callable[..., Any],
    *,
    differentiate: bool,
    keep_states: bool,
) -> Program:
    """Trace, simplify, hoist and differentiate one step; `Uncompilable` says why it cannot be done.

    With `keep_states` the new states are outputs as well, after those of the cell.
    """
    strange = anatomy.strange_tensor
    if strange is not None:
        raise Uncompilable(f"a tensor inside it is of a class of its own ({strange})")
    if anatomy.opaque is not None:
        raise Uncompilable(f"it holds {anatomy.opaque}, whose changes cannot be seen")
    hooked = hooked_module(cell)
    if hooked is not None:
        raise Uncompilable(f"a {hooked} in it has hooks, which are to see every step")
    norm = norm_over_rows(cell)
    if norm is not None:
        raise Uncompilable(f"the rows of a batch are not independent: a {norm} in it takes its statistics of them")
    tracing = Tracing(cell, anatomy, signature, call, differentiate=differentiate, keep_states=keep_states)
    traced = tracing.merged()
    _check_devices(anatomy, signature)
    unfold_rows(traced)
    check_random(traced.graph, traced.once)
    spread_scalars(traced)
    _simplify(traced)
    check_rows(traced.graph, traced.backward_start, [value for value in traced.tensor_gradients if value is not None])
    if traced.objection is not None:
        raise Uncompilable(traced.objection)
    # Last: whatever is wrong with many rows says more about the cell.
    tracing.check_single_row()
    program = _partition(traced, type(cell).__name__)
    program.replay = None if traced.is_plain else tracing.replay
    return program


def _check_devices(anatomy: Anatomy, signature: StepSignature) -> None:
    devices = {leaf.device for leaf in (*signature.input_leaves, *signature.state_leaves)}
    devices |= {tensor.device for tensor in anatomy.tensors if tensor.ndim}
    if len(devices) > 1:
        raise Uncompilable(f"its tensors are on several devices ({', '.join(sorted(map(str, devices)))})")


def _simplify(traced: Trace) -> None:
    """Every pass over the whole graph, forward and backward together, with the grammar checked after each."""
    traced.graph.results = frozenset(traced.results)
    check_graph(traced.graph, traced.given, traced.results)
    of_outputs, of_state = (
        [tangent for tangent in tangents if tangent is not None]
        for tangents in (traced.output_tangents, traced.state_tangents)
    )
    # Where torch multiplies, several groups at once are better.
    most_groups = MOST_SLOTS if traced.device.type == "cpu" else 1
    simplifying = passes_for([*of_outputs, *of_state], of_state, most_groups)
    passes: tuple[Pass, ...] = (pick_by_row, *simplifying, lambda graph: regroup_sums(graph, traced.state))
    for simplify in passes:
        rewriter = simplify(traced.graph)
        traced.resolve(rewriter.resolve)
        traced.graph = Graph(Graph(rewriter.nodes).needed_for(traced.results), frozenset(traced.results))
        check_graph(traced.graph, traced.given, traced.results)
    _name_apart(traced)
    traced.graph, traced.backward_start = _forward_first(traced.graph, [*traced.outputs, *traced.new_state])


def _forward_first(graph: Graph, results: list[Value]) -> tuple[Graph, int]:
    """The nodes that the results need, then those that only gradients need; and where these begin."""
    needed = set(map(id, graph.needed_for(results)))
    first = [node for node in graph.nodes if id(node) in needed]
    second = [node for node in graph.nodes if id(node) not in needed]
    return Graph(first + second), len(first)


def _name_apart(traced: Trace) -> None:
    """Names are unique, and say what they can: new states are called after the states they replace."""
    made = [value for node in traced.graph.nodes for value in node.results]
    for value in made:
        value.name = re.sub(r"(_\d+)+$", "", value.name)
    for output, tangent in zip(traced.outputs, traced.output_tangents, strict=True):
        if output in made:
            output.name = "output"
        if tangent is not None:
            tangent.name = "d_output"
    for old, new, tangent in zip(traced.state, traced.new_state, traced.state_tangents, strict=True):
        if new in made:
            new.name = f"new_{old.name}"
        if tangent is not None:
            tangent.name = f"d_new_{old.name}"
    taken: set[str] = set()
    counts: dict[str, int] = {}
    for value in (*traced.given, *made):
        base = value.name
        while value.name in taken:
            counts[base] = counts.get(base, 0) + 1
            value.name = f"{base}_{counts[base]}"
        taken.add(value.name)


def _partition(traced: Trace, name: str) -> Program:
    nodes, start = traced.graph.nodes, traced.backward_start
    forward, backward = Graph(nodes[:start]), Graph(nodes[start:])
    parts = hoist(forward, traced.inputs, traced.state, traced.new_state, traced.outputs)
    program = Program(
        name=name,
        tensors=traced.tensors,
        inputs=traced.inputs,
        state=traced.state,
        outputs=traced.outputs,
        new_state=traced.new_state,
        literals=traced.literals,
        drawn=Section("drawn", parts.drawn),
        invariant=Section("invariant", parts.invariant),
        before=Section("before", parts.before),
        loop=Loop.of(name, parts.loop, traced.state, traced.new_state, reverse=False),
        after=Section("after", parts.after),
        adjoint=None,
    )
    wanted: list[Value] = [*traced.outputs, *program.after.takes]
    gradients = (*traced.tensor_gradients, *traced.input_gradients, *traced.state_gradients)
    if any(gradient is not None for gradient in gradients):
        program.adjoint = make_adjoint(traced, parts, backward, name)
    program.loop.store([*wanted, *program.kept])
    return program
