"""From a cell to its programs: forward, and for training backward as well. The passes in their order."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from throughtime.compiler.errors import Uncompilable
from throughtime.compiler.guards.fingerprint import CellFingerprint, hooked_module, norm_over_rows
from throughtime.compiler.ir.graph import Graph, Value
from throughtime.compiler.ir.sections import Loop, Section
from throughtime.compiler.ir.verify import verify_graph
from throughtime.compiler.passes.adjoint import Adjoint, make_adjoint
from throughtime.compiler.passes.batch_independence import check_batch_independence, check_random
from throughtime.compiler.passes.broadcast_scalar_state import broadcast_scalar_state
from throughtime.compiler.passes.hoist import hoist, regroup_sums
from throughtime.compiler.passes.index_to_gather import index_to_gather
from throughtime.compiler.passes.simplify import Pass, simplification_passes
from throughtime.compiler.passes.unfold_batch import unfold_rows
from throughtime.compiler.trace.batched_matmul import MOST_SLOTS
from throughtime.compiler.trace.rerun_cell import CellRerun
from throughtime.compiler.trace.trace import StepSignature, Trace
from throughtime.compiler.trace.tracer import Tracing


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
    replay: CellRerun | None = None

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
    anatomy: CellFingerprint,
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
    broadcast_scalar_state(traced)
    _simplify(traced)
    check_batch_independence(
        traced.graph, traced.backward_start, [value for value in traced.tensor_gradients if value is not None]
    )
    if traced.objection is not None:
        raise Uncompilable(traced.objection)
    # Last: whatever is wrong with many rows says more about the cell.
    tracing.check_single_row()
    program = _partition(traced, type(cell).__name__)
    program.replay = None if traced.is_plain else tracing.replay
    return program


def _check_devices(anatomy: CellFingerprint, signature: StepSignature) -> None:
    devices = {leaf.device for leaf in (*signature.input_leaves, *signature.state_leaves)}
    devices |= {tensor.device for tensor in anatomy.tensors if tensor.ndim}
    if len(devices) > 1:
        raise Uncompilable(f"its tensors are on several devices ({', '.join(sorted(map(str, devices)))})")


def _simplify(traced: Trace) -> None:
    """Every pass over the whole graph, forward and backward together, with the grammar checked after each."""
    traced.graph.results = frozenset(traced.results)
    verify_graph(traced.graph, traced.given, traced.results)
    of_outputs, of_state = (
        [cotangent for cotangent in cotangents if cotangent is not None]
        for cotangents in (traced.output_cotangents, traced.state_cotangents)
    )
    # Where torch multiplies, several groups at once are better.
    most_groups = MOST_SLOTS if traced.device.type == "cpu" else 1
    simplifying = simplification_passes([*of_outputs, *of_state], of_state, most_groups)
    passes: tuple[Pass, ...] = (index_to_gather, *simplifying, lambda graph: regroup_sums(graph, traced.state))
    for simplify in passes:
        rewriter = simplify(traced.graph)
        traced.resolve(rewriter.resolve)
        traced.graph = Graph(Graph(rewriter.nodes).needed_for(traced.results), frozenset(traced.results))
        verify_graph(traced.graph, traced.given, traced.results)
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
    for output, cotangent in zip(traced.outputs, traced.output_cotangents, strict=True):
        if output in made:
            output.name = "output"
        if cotangent is not None:
            cotangent.name = "d_output"
    for old, new, cotangent in zip(traced.state, traced.new_state, traced.state_cotangents, strict=True):
        if new in made:
            new.name = f"new_{old.name}"
        if cotangent is not None:
            cotangent.name = f"d_new_{old.name}"
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
