"""Passes of the CPU backend over a loop program: sums start in products, slices sink through pointwise operations."""

from __future__ import annotations

import itertools
from collections import defaultdict
from dataclasses import replace
from typing import NamedTuple

from throughtime.compiler.errors import VerificationError
from throughtime.compiler.ir.loop_ir import POINTWISE, LoopProgram, Op, Operand, Row, verify_loop


class LoopBody(NamedTuple):
    """The operations of a loop program for the CPU: products may accumulate onto a row.

    `starts` has these rows, by the name of the product's result.
    """

    program: LoopProgram
    ops: list[Op]
    starts: dict[str, Row]

    @classmethod
    def of(cls, program: LoopProgram) -> LoopBody:
        """The operations as lowering made them."""
        return cls(program, list(program.body), {})

    @property
    def results(self) -> set[str]:
        """Names of the rows that a step stores or carries on."""
        program = self.program
        return {row.name for row in program.stored} | {carry.after.name for carry in program.carried}


def verify_body(body: LoopBody) -> None:
    """Raise a `VerificationError` unless the operations are a loop program, and `starts` are computed in time."""
    verify_loop(replace(body.program, body=tuple(body.ops), ahead=None))
    later = {op.result.name for op in body.ops}
    for op in body.ops:
        start = body.starts.get(op.result.name)
        if start is not None and (op.kind != "product" or start.name in later or start.width != op.result.width):
            raise VerificationError(f"`{op}` cannot start from {start}")
        later.discard(op.result.name)


def accumulate_into_products(body: LoopBody) -> LoopBody:
    """`product + row` becomes a product that accumulates onto the row, if the row is in memory anyway."""
    program = body.program
    saved = body.results
    uses: defaultdict[str, int] = defaultdict(int)
    for op in program.body:
        for row in op.rows:
            uses[row.name] += 1
    once = {name for name, count in uses.items() if count == 1} - saved
    befores = [carry.before for carry in program.carried]
    memory = {row.name for row in (*program.streams, *program.lagged, *program.constants, *befores)}
    ops: dict[str, Op] = {}
    starts: dict[str, Row] = {}
    for op in program.body:
        found = _product_in(op, ops, {name for name in once if name not in starts}, memory)
        new = op
        if found is not None:
            product, other = found
            new = Op("product", op.result, ops.pop(product.name).args)
            starts[op.result.name] = other
        ops[op.result.name] = new
        if new.kind == "product" or (new.kind == "slice" and new.rows[0].name in memory):
            memory.add(new.result.name)
    return LoopBody(program, list(ops.values()), starts)


def _product_in(op: Op, ops: dict[str, Op], free: set[str], memory: set[str]) -> tuple[Row, Row] | None:
    """The product and the other row of a sum of the two, if nothing else uses the product."""
    if op.kind != "add" or len(op.rows) != 2 or op.rows[0] == op.rows[1]:
        return None
    # The later of two products accumulates onto the earlier one.
    late = sorted(op.rows, key=lambda row: list(ops).index(row.name) if row.name in ops else -1, reverse=True)
    for own, other in (late, late[::-1]):
        product = own.name in ops and ops[own.name].kind == "product" and own.name in free
        if product and other.width == own.width and other.name in memory:
            return own, other
    return None


def sink_slices(body: LoopBody) -> LoopBody:
    """`slice(f(x))` becomes `f(slice(x))` where `f(x)` is used in disjoint slices only, so that it needs no memory."""
    wanted = body.results | {row.name for row in body.starts.values()}
    return body._replace(ops=_sunk(body.ops, wanted))


def _sunk(ops: list[Op], wanted: set[str]) -> list[Op]:
    kept: dict[str, Op] = {}
    uses: defaultdict[str, list[Op]] = defaultdict(list)
    same: dict[str, Row] = {}
    for op in reversed(ops):
        groups = _separate_slices(op, uses[op.result.name], wanted) if op.result.name not in wanted else None
        for cuts in groups or []:
            same.update({cut.result.name: cuts[0].result for cut in cuts[1:]})
            for cut in cuts:
                del kept[cut.result.name]
        for made in [op] if groups is None else _sliced(op, [cuts[0] for cuts in groups])[::-1]:
            # An existing slice moves up to its first use.
            known = kept.pop(made.result.name, None)
            kept[made.result.name] = known or made
            for row in made.rows if known is None else ():
                uses[row.name].append(made)
    return [_renamed(op, same) for op in reversed(kept.values())]


def _renamed(op: Op, same: dict[str, Row]) -> Op:
    args = tuple(same.get(arg.name, arg) if isinstance(arg, Row) else arg for arg in op.args)
    return Op(op.kind, op.result, args)


def _separate_slices(op: Op, uses: list[Op], wanted: set[str]) -> list[list[Op]] | None:
    """The uses of a pointwise result, if they are disjoint slices; equal slices in one list."""
    if op.kind not in POINTWISE or op.result.width == 1 or not uses or any(use.kind != "slice" for use in uses):
        return None
    groups: defaultdict[tuple[int, int], list[Op]] = defaultdict(list)
    for use in sorted(uses, key=lambda use: use.result.name not in wanted):
        groups[bounds(use)].append(use)
    ordered = sorted(groups)
    clear = all(left[1] <= right[0] for left, right in itertools.pairwise(ordered))
    unwanted = all(cut.result.name not in wanted for cuts in groups.values() for cut in cuts[1:])
    return list(groups.values()) if clear and unwanted else None


def bounds(cut: Op) -> tuple[int, int]:
    """The start and the stop of a slice."""
    _, start, stop = cut.args
    assert isinstance(start, int)
    assert isinstance(stop, int)
    return start, stop


def _sliced(op: Op, slices: list[Op]) -> list[Op]:
    """The operation for each slice of its result, on slices of its arguments."""
    new: list[Op] = []
    for cut in slices:
        start, stop = bounds(cut)
        args: list[Operand] = []
        for arg in op.args:
            if isinstance(arg, Row) and arg.width > 1:
                part = Row(f"{arg.name}[{start}:{stop}]", stop - start, arg.dtype)
                new.append(Op("slice", part, (arg, start, stop)))
                args.append(part)
            else:
                args.append(arg)
        new.append(Op(op.kind, cut.result, tuple(args)))
    return new
