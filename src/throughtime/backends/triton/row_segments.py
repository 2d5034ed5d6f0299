"""Rows cut into pieces: slices and joins disappear, and what is left is pointwise, a product or a reduction of pieces.

Blocks of the GPU share the units of a row. The four gates of an LSTM are one row of 4H features to the program, but a
block that owns some units wants those of every gate: so rows are cut wherever anybody slices or joins them, and each
piece is tiled on its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate, pairwise

import torch

from throughtime.compiler import Uncompilable
from throughtime.compiler.ir.loop_ir import REDUCTIONS, LoopProgram, Matrix, Op, Row
from throughtime.compiler.ir.strided_view import StridedView

MOST_PIECES = 32
"""Rows cut finer than this are not worth a kernel: every piece is code of its own."""


@dataclass(frozen=True)
class Segment:
    """Neighbouring features of a row. One of width 1 is a number that every block has."""

    name: str
    width: int
    dtype: torch.dtype


Argument = Segment | float | int | bool


@dataclass(frozen=True)
class Pointwise:
    """`result = kind(args)`, one piece for one."""

    kind: str
    result: Segment
    args: tuple[Argument, ...]


@dataclass(frozen=True)
class Reduction:
    """`result = kind(pieces)`, over all features of all pieces."""

    kind: str
    result: Segment
    pieces: tuple[Segment, ...]


@dataclass(frozen=True)
class SegmentProduct:
    """`results = pieces @ matrix`: the operand and the result are rows in pieces."""

    matrix: Matrix
    pieces: tuple[Segment, ...]
    results: tuple[Segment, ...]


Operation = Pointwise | Reduction | SegmentProduct


@dataclass(frozen=True)
class SegmentedProgram:
    """A loop program in pieces: `pieces` are those of every row, and the operations are in order."""

    program: LoopProgram
    pieces: dict[str, tuple[Segment, ...]]
    operations: tuple[Operation, ...]


def cut(program: LoopProgram) -> SegmentedProgram:
    """The program in pieces; refused if they are too many."""
    edges = _edges(program)
    pieces: dict[str, tuple[Segment, ...]] = {}
    operations: list[Operation] = []
    befores = [carry.before for carry in program.carried]
    for row in (*program.streams, *program.lagged, *program.constants, *befores):
        pieces[row.name] = _fresh(row, edges)
    for op in program.body:
        if op.kind == "slice":
            pieces[op.result.name] = _within(pieces, op)
        elif op.kind == "cat":
            pieces[op.result.name] = tuple(piece for row in op.rows for piece in pieces[row.name])
        else:
            results = pieces[op.result.name] = _fresh(op.result, edges)
            operations += _operations(op, pieces, results)
    return SegmentedProgram(program, pieces, tuple(operations))


def _edges(program: LoopProgram) -> dict[str, set[int]]:
    """Where each row must be cut: what one place asks for, all that are tied to it must follow."""
    befores = [carry.before for carry in program.carried]
    rows = (*program.streams, *program.lagged, *program.constants, *befores, *(op.result for op in program.body))
    edges = {row.name: {0, row.width} for row in rows}
    ties = list(_ties(program))
    changed = True
    while changed:
        changed = False
        for one, other, start, width in ties:
            there = {edge - start for edge in edges[other] if 0 <= edge - start <= width}
            together = edges[one] | there | {0, width}
            if together != edges[one] or together != there:
                edges[one] = together
                edges[other] |= {edge + start for edge in together}
                changed = True
    most = max(map(len, edges.values())) - 1
    if most > MOST_PIECES:
        raise Uncompilable(f"a row falls into {most} pieces")
    return edges


def _ties(program: LoopProgram) -> Iterator[tuple[str, str, int, int]]:
    """All pairs of a row and the same features of another one: where they start there, and their number."""
    for op in program.body:
        if op.kind == "slice":
            yield op.result.name, op.rows[0].name, int(op.args[1]), op.result.width  # type: ignore[arg-type]
        elif op.kind == "cat":
            for row, start in zip(op.rows, accumulate((row.width for row in op.rows), initial=0), strict=False):
                yield row.name, op.result.name, start, row.width
        elif op.kind != "product" and op.kind not in REDUCTIONS:
            same = (row for row in op.rows if row.width == op.result.width)
            yield from ((row.name, op.result.name, 0, row.width) for row in same)
    for carry in program.carried:
        yield carry.before.name, carry.after.name, 0, carry.before.width


def _fresh(row: Row, edges: dict[str, set[int]]) -> tuple[Segment, ...]:
    places = sorted(edges[row.name])
    if len(places) == 2:
        return (Segment(row.name, row.width, row.dtype),)
    return tuple(Segment(f"{row.name}_at_{start}", stop - start, row.dtype) for start, stop in pairwise(places))


def _within(pieces: dict[str, tuple[Segment, ...]], op: Op) -> tuple[Segment, ...]:
    """The pieces of a row that a slice consists of."""
    first, last = op.args[1:]
    found, start = [], 0
    for piece in pieces[op.rows[0].name]:
        if first <= start < last:  # type: ignore[operator]
            found.append(piece)
        start += piece.width
    return tuple(found)


def _operations(op: Op, pieces: dict[str, tuple[Segment, ...]], results: tuple[Segment, ...]) -> list[Operation]:
    if op.kind == "product":
        row, matrix = op.args
        assert isinstance(row, Row)
        assert isinstance(matrix, Matrix)
        return [SegmentProduct(matrix, pieces[row.name], results)]
    if op.kind in REDUCTIONS:
        return [Reduction(op.kind, results[0], pieces[op.rows[0].name])]
    made: list[Operation] = []
    for index, result in enumerate(results):
        args: list[Argument] = []
        for arg in op.args:
            if isinstance(arg, Row):
                own = pieces[arg.name]
                # A row of one feature meets every piece.
                args.append(own[index] if arg.width == op.result.width else own[0])
            else:
                assert not isinstance(arg, Matrix | StridedView)
                args.append(arg)
        made.append(Pointwise(op.kind, result, tuple(args)))
    return made
