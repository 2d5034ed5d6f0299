"""Epilogue fusion: pointwise work after the backward loop moves into the loop.

Gradients of parameters are sums over the rows of all steps, taken after the backward loop. Their operands are often
pointwise in values that a step of that loop reads anyway, such as `r * h` in a GRU: then the loop computes and stores
them. After the loop, torch would read everything again and copy the states of the previous steps.
"""

from __future__ import annotations

from dataclasses import replace

from throughtime.compiler.ir.graph import Graph, Node, Value
from throughtime.compiler.ir.program import Adjoint, Program
from throughtime.compiler.ir.sections import Loop, Section
from throughtime.compiler.lowering.lower import is_lowerable


def sink_into_backward_loop(program: Program) -> Program:
    """The program with such work in the backward loop. A backend may not be able to lower that loop any more."""
    adjoint = program.adjoint
    if adjoint is None:
        return program
    movable = _movable(program, adjoint)
    chosen = set(map(id, movable))
    left = [node for node in adjoint.after.nodes if id(node) not in chosen]
    wanted = {*adjoint.gradients, *(value for node in left for value in node.values)}
    # A slice of a row is read in place: only computed values are worth storing.
    found = [value for node in movable if node.is_pointwise for value in node.results if value in wanted]
    if not found:
        return program
    others = [node for node in adjoint.after.nodes if set(found).isdisjoint(node.results)]
    after = Section(adjoint.after.name, Graph(others).needed_for(adjoint.gradients))
    needed = {*after.takes, *adjoint.gradients}
    # Cheap nodes may be in both sections.
    inside = set(adjoint.loop.gives)
    moved = [node for node in Graph(movable).needed_for(found) if inside.isdisjoint(node.results)]
    nodes = [*adjoint.loop.nodes, *moved]
    loop: Loop = replace(adjoint.loop, nodes=nodes, stored=[])
    loop.store([value for value in (*adjoint.loop.stored, *found) if value in needed])
    changed: Adjoint = replace(adjoint, loop=loop, after=after)
    return replace(program, adjoint=changed)


def _movable(program: Program, adjoint: Adjoint) -> list[Node]:
    """Nodes after the loop that work row by row, without a product, on values that a step can read."""
    loop = adjoint.loop
    there: set[Value] = {*program.inputs, *adjoint.saved, *adjoint.lagged, *loop.gives, *loop.found}
    there |= {*adjoint.before.gives, *(value for value in adjoint.output_cotangents if value is not None)}
    there |= {*program.tensors, *program.literals, *program.invariant.gives, *adjoint.invariant.gives}
    movable: list[Node] = []
    for node in adjoint.after.nodes:
        by_rows = all(value.row_axis == 0 for value in node.results)
        if by_rows and node.name != "mm" and is_lowerable(node) and there.issuperset(node.values):
            movable.append(node)
            there.update(node.results)
    return movable
