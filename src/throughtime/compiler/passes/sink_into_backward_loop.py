"""What a backward kernel computes on its way for those who come after it.

Gradients of parameters are sums over the rows of all steps, taken when the backward loop is over. What is summed up
often is made of what a step of that loop has at hand, `r * h` in a GRU: the loop stores it. To compute it afterwards
would mean to read everything again, and to copy states as they were at the step before.
"""

from __future__ import annotations

from dataclasses import replace

from throughtime.compiler import Adjoint, Graph, Loop, Node, Program, Section, Value, is_lowerable


def sink_into_backward_loop(program: Program) -> Program:
    """The same program, with such work in the backward loop; it may be more than a backend has words for."""
    adjoint = program.adjoint
    if adjoint is None:
        return program
    movable = _movable(program, adjoint)
    chosen = set(map(id, movable))
    left = [node for node in adjoint.after.nodes if id(node) not in chosen]
    wanted = {*adjoint.gradients, *(value for node in left for value in node.values)}
    # A part of a row is found where it lies: only what is computed is worth its place.
    found = [value for node in movable if node.is_pointwise for value in node.results if value in wanted]
    if not found:
        return program
    others = [node for node in adjoint.after.nodes if set(found).isdisjoint(node.results)]
    after = Section(adjoint.after.name, Graph(others).needed_for(adjoint.gradients))
    needed = {*after.takes, *adjoint.gradients}
    nodes = [*adjoint.loop.nodes, *Graph(movable).needed_for(found)]
    loop: Loop = replace(adjoint.loop, nodes=nodes, stored=[])
    loop.store([value for value in (*adjoint.loop.stored, *found) if value in needed])
    changed: Adjoint = replace(adjoint, loop=loop, after=after)
    return replace(program, adjoint=changed)


def _movable(program: Program, adjoint: Adjoint) -> list[Node]:
    """What follows the loop, row by row and without a product, from what a step can read."""
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
