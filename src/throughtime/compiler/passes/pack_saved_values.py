"""Packing of saved values, so that the backward loop can store into their memory.

A backward kernel reads the saved values of a row for the last time and stores values for gradients, often of the same
size. It can write them to the same memory (`Backward.overwritten`): that allocates nothing, and the lines are in cache.
Saved values that are together as wide as a stored one are therefore concatenated.
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
    """The saved values that only the backward loop reads, at their own step, and that own their memory."""
    adjoint = program.adjoint
    if adjoint is None:
        return []
    others = {*program.outputs, *program.after.takes, *(new for _, new in program.states), *adjoint.gradients}
    others.update(value for part in (adjoint.invariant, adjoint.before, adjoint.after) for value in part.takes)
    stored, read = set(program.loop.stored), set(adjoint.loop.takes)
    found = [value for value in adjoint.saved if value in stored and value in read and value not in others]
    return [value for value in found if value.row_axis == 0]


def pack_saved_values(program: Program) -> Program:
    """The program with saved values concatenated where the backward loop can then store into their memory."""
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
        program = _joined(program, parts, f"saved_{number}" if number else "saved")
    return program


def _as_wide_as(wanted: Value, free: Sequence[Value]) -> list[Value]:
    """One value of the same width, or several that add up to it; none if the first ones that fit do not."""
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
    """The program with these saved values as one, of which the backward loop reads slices."""
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
