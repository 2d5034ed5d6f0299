"""What a forward pass keeps, in rows as wide as those that the backward loop stores.

A backward kernel reads what was kept of a row, and stores what gradients are made of: often as much, and at the very
place where it has just read for the last time. Then it can be written there (`Backward.overwritten`), which takes no
memory of its own and meets lines that are in the cache already. Several kept values that are as wide together as one
that is stored are therefore kept side by side, as one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate

import torch

from throughtime.compiler.ir.graph import ROWS, Node, Value
from throughtime.compiler.ir.program import Adjoint, Program
from throughtime.compiler.ir.sections import Loop

aten = torch.ops.aten


def spendable(program: Program) -> list[Value]:
    """What is kept for the backward loop alone, in memory of its own, and read at its own step only."""
    adjoint = program.adjoint
    if adjoint is None:
        return []
    others = {*program.outputs, *program.after.takes, *(new for _, new in program.states), *adjoint.gradients}
    others.update(value for part in (adjoint.invariant, adjoint.before, adjoint.after) for value in part.takes)
    stored, read = set(program.loop.stored), set(adjoint.loop.takes)
    found = [value for value in adjoint.saved if value in stored and value in read and value not in others]
    return [value for value in found if value.row_axis == 0]


def pack_saved_values(program: Program) -> Program:
    """The same program, with kept values side by side where that makes room for one that the backward loop stores."""
    adjoint = program.adjoint
    if adjoint is None:
        return program
    free = [value for value in spendable(program) if len(value.shape) == 2]
    groups = []
    for wanted in sorted(adjoint.loop.stored, key=lambda value: -value.row_size):
        parts = _as_wide_as(wanted, free)
        free = [value for value in free if value not in parts]
        if len(parts) > 1:
            groups.append(parts)
    for number, parts in enumerate(groups):
        program = _joined(program, parts, f"kept_{number}" if number else "kept")
    return program


def _as_wide_as(wanted: Value, free: Sequence[Value]) -> list[Value]:
    """One value that is as wide, or several that are so together; none if the first that have room do not add up."""
    alike = [value for value in free if value.dtype is wanted.dtype and value.row_size <= wanted.row_size]
    single = [value for value in alike if value.row_size == wanted.row_size]
    if single:
        return single[:1]
    parts: list[Value] = []
    room = wanted.row_size
    for value in alike:
        if value.row_size <= room:
            parts.append(value)
            room -= value.row_size
    return parts if not room else []


def _joined(program: Program, parts: list[Value], name: str) -> Program:
    """The program with these kept values as one, of which the backward loop takes its parts."""
    adjoint = program.adjoint
    assert adjoint is not None
    widths = [value.row_size for value in parts]
    whole = Value(name, (ROWS, sum(widths)), parts[0].dtype)
    join = Node(aten.cat.default, (parts, 1), {}, (whole,))
    slices = [
        Node(aten.slice.Tensor, (whole, 1, end - width, end), {}, (part,))
        for part, width, end in zip(parts, widths, accumulate(widths), strict=True)
    ]
    saved = [whole, *(value for value in adjoint.saved if value not in parts)]
    stored = [*(value for value in program.loop.stored if value not in parts), whole]
    loop: Loop = replace(program.loop, nodes=[*program.loop.nodes, join], stored=stored)
    backward: Loop = replace(adjoint.loop, nodes=[*slices, *adjoint.loop.nodes])
    changed: Adjoint = replace(adjoint, loop=backward, saved=saved)
    return replace(program, loop=loop, adjoint=changed)
