"""The verifiers of step graphs and of programs. The pipeline runs them after every pass if `is_enabled()`.

`verify_loop` in `ir/loop_ir.py` verifies loop programs; lowering always runs it, since kernels rely on it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from throughtime.compiler.errors import VerificationError
from throughtime.compiler.ir.graph import ROWS, Graph, Node, Value
from throughtime.compiler.ir.program import Adjoint, Program
from throughtime.compiler.ir.sections import Loop, Section


def is_enabled() -> bool:
    """Whether to verify after every pass: if the environment variable `THROUGHTIME_VERIFY` is 1, as in the tests."""
    return os.environ.get("THROUGHTIME_VERIFY") == "1"


def verify_graph(
    graph: Graph, given: Iterable[Value], results: Iterable[Value], *, overwritable: set[Value] | None = None
) -> None:
    """Raise a `VerificationError` unless every value is defined once, before its uses, with at most one axis of rows.

    A node may work in place only if there are `overwritable` values: these, or values that the graph computes, if no
    later node and no result needs them.
    """
    known = set(given)
    foreign = known - (overwritable or set())
    for value in known:
        _check_value(value)
    for node in graph.nodes:
        for value in node.values:
            if value not in known:
                raise VerificationError(f"`{node}` uses {value} before it is defined")
        if node.target._schema.is_mutable:
            known.discard(_overwritten(node, foreign, in_place=overwritable is not None))
        for value in node.results:
            if value in known:
                raise VerificationError(f"`{node}` defines {value} again")
            _check_value(value)
            known.add(value)
    for value in results:
        if value not in known:
            raise VerificationError(f"the result {value} is never computed")


def _overwritten(node: Node, foreign: set[Value], *, in_place: bool) -> Value:
    """The value that a node writes over, which is its first argument."""
    if not in_place:
        raise VerificationError(f"`{node}` changes its arguments")
    if node.values[0] in foreign:
        raise VerificationError(f"`{node}` overwrites {node.values[0]}, which other sections may read")
    return node.values[0]


def _check_value(value: Value) -> None:
    if value.shape.count(ROWS) > 1:
        raise VerificationError(f"{value.described} has rows along two axes")


def verify_section(before: Sequence[Node], after: Sequence[Node], gives: Iterable[Value]) -> None:
    """Raise a `VerificationError` unless the nodes `after` a rewrite compute what the nodes `before` it did."""
    made = {value for node in before for value in node.results}
    used = {value for node in before for value in node.values}
    gives = set(gives)
    overwritable = {node.values[0] for node in before if node.target._schema.is_mutable}
    verify_graph(Graph(list(after)), (used | gives) - made, gives, overwritable=overwritable)


def verify_program(program: Program) -> None:
    """Raise a `VerificationError` unless every section only reads what has run before it."""
    constants = {*program.tensors, *program.literals}
    _verify_nodes(program.random, constants)
    constants.update(program.random.gives)
    _verify_nodes(program.invariant, constants)
    available = {*constants, *program.inputs, *program.invariant.gives}
    available |= _verify_sections(program.before, program.loop, program.after, available)
    _check_available("output", program.outputs, available)
    if program.adjoint is not None:
        _verify_adjoint(program, program.adjoint, available)


def _verify_adjoint(program: Program, adjoint: Adjoint, available: set[Value]) -> None:
    _check_available("saved value", adjoint.saved, available)
    _check_available("state", adjoint.lagged, set(program.state))
    constants = {*program.tensors, *program.literals, *adjoint.saved}
    _verify_nodes(adjoint.invariant, constants)
    found = {*constants, *program.inputs, *adjoint.lagged, *adjoint.invariant.gives}
    found |= {value for value in adjoint.output_cotangents if value is not None}
    found |= _verify_sections(adjoint.before, adjoint.loop, adjoint.after, found)
    _check_available("gradient", adjoint.gradients, found)


def _verify_sections(before: Section, loop: Loop, after: Section, available: set[Value]) -> set[Value]:
    """What the three sections compute for all rows."""
    _verify_nodes(before, available)
    available = available | set(before.gives)
    _verify_nodes(loop, available | loop.found)
    inside = available | loop.found | set(loop.gives)
    _check_available("carried value", [value for _, value in loop.carried], inside)
    _check_available("stored value", loop.stored, loop.found | set(loop.gives))
    _verify_nodes(after, available | set(loop.stored))
    return {*before.gives, *loop.stored, *after.gives}


def _verify_nodes(section: Section, available: set[Value]) -> None:
    # Several sections may compute the same cheap value, each for itself.
    verify_graph(Graph(section.nodes), available - set(section.gives), ())


def _check_available(what: str, values: Iterable[Value], available: set[Value]) -> None:
    for value in values:
        if value not in available:
            raise VerificationError(f"the {what} {value} is not available")
