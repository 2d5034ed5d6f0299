"""Two passes over the operations of a program: sums start in products, slices sink through pointwise operations."""

from __future__ import annotations

import itertools
from collections import defaultdict

from throughtime.compiler.ir.loop_ir import POINTWISE, LoopProgram, Op, Operand, Row


def start_products(program: LoopProgram) -> tuple[list[Op], dict[str, Row]]:
    """`product + row` becomes a product whose sums start from the row, if that is in memory anyway.

    Returns the operations, and for each of these products, by the name of its result, the row that it starts from.
    """
    live = {row.name for row in program.stored} | {carry.after.name for carry in program.carried}
    uses: defaultdict[str, int] = defaultdict(int)
    for op in program.body:
        for row in op.rows:
            uses[row.name] += 1
    once = {name for name, count in uses.items() if count == 1} - live
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
    return list(ops.values()), starts


def _product_in(op: Op, ops: dict[str, Op], free: set[str], memory: set[str]) -> tuple[Row, Row] | None:
    """The product and the other row of a sum of the two, if the product serves nothing else."""
    if op.kind != "add" or len(op.rows) != 2 or op.rows[0] == op.rows[1]:
        return None
    # The later of two products, so that the earlier one is there to start from.
    late = sorted(op.rows, key=lambda row: list(ops).index(row.name) if row.name in ops else -1, reverse=True)
    for own, other in (late, late[::-1]):
        product = own.name in ops and ops[own.name].kind == "product" and own.name in free
        if product and other.width == own.width and other.name in memory:
            return own, other
    return None


def sink_slices(ops: list[Op], wanted: set[str]) -> list[Op]:
    """`slice(f(x))` becomes `f(slice(x))` where `f(x)` is used in separate slices alone, so that it needs no memory."""
    live: dict[str, Op] = {}
    uses: defaultdict[str, list[Op]] = defaultdict(list)
    same: dict[str, Row] = {}
    for op in reversed(ops):
        groups = _separate_slices(op, uses[op.result.name], wanted) if op.result.name not in wanted else None
        for cuts in groups or []:
            same.update({cut.result.name: cuts[0].result for cut in cuts[1:]})
            for cut in cuts:
                del live[cut.result.name]
        for made in [op] if groups is None else _sliced(op, [cuts[0] for cuts in groups])[::-1]:
            # A slice that is there already moves up to where it is first needed.
            known = live.pop(made.result.name, None)
            live[made.result.name] = known or made
            for row in made.rows if known is None else ():
                uses[row.name].append(made)
    return [_renamed(op, same) for op in reversed(live.values())]


def _renamed(op: Op, same: dict[str, Row]) -> Op:
    args = tuple(same.get(arg.name, arg) if isinstance(arg, Row) else arg for arg in op.args)
    return Op(op.kind, op.result, args)


def _separate_slices(op: Op, uses: list[Op], wanted: set[str]) -> list[list[Op]] | None:
    """The uses of a pointwise result, if they are slices that do not overlap; those of the same columns together."""
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
    """The operation once for each slice of its result, on slices of its arguments."""
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
