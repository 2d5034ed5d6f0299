"""Why the CPU backend does not support a program."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from throughtime.backends.integer_rules import constant_reasons, dtype_name
from throughtime.compiler.ir.loop_ir import COMPARISONS, POINTWISE, REDUCTIONS, LoopProgram, Op, Row
from throughtime.native.toolchain.llvm import is_installed

_LAYOUT = {"slice", "cat", "strided", "where", "cast"}
_BOOLEAN = {"bitwise_and", "bitwise_not", "bitwise_or", "bitwise_xor", "add", "mul", "maximum", "minimum"}
_INTEGER = _BOOLEAN | {
    "abs",
    "ceil",
    "floor",
    "floor_divide",
    "neg",
    "pow",
    "relu",
    "remainder",
    "round",
    "sign",
    "sub",
    "trunc",
}
_FLOATING = POINTWISE - {"bitwise_and", "bitwise_not", "bitwise_or", "bitwise_xor"}


def unsupported_reason(program: LoopProgram) -> str | None:
    """Why this backend does not support `program`, or None if it does."""
    if not is_installed():
        return "llvmlite is not installed"
    return next(_reasons(program), None)


def _reasons(program: LoopProgram) -> Iterator[str]:
    if program.ahead is not None:
        yield from _reasons(program.ahead.program)
    befores = [carry.before for carry in program.carried]
    results = [op.result for op in program.body]
    for row in (*program.streams, *program.lagged, *program.constants, *befores, *results):
        if row.dtype in (torch.bfloat16, torch.float16):
            yield f"{row.name} has dtype {dtype_name(row.dtype)}"
        if row.width < 1:
            yield f"`{row}` has no features"
    for matrix in program.matrices:
        if matrix.rows < 1 or matrix.columns < 1:
            yield f"`{matrix}` is empty"
    for op in program.body:
        yield from (f"`{op}`: {reason}" for reason in _op_reasons(op))


def _op_reasons(op: Op) -> Iterator[str]:
    dtypes = {row.dtype for row in op.rows}
    if op.kind in COMPARISONS:
        if len(dtypes) > 1 and not op.kind.startswith("logical"):
            yield "rows of different dtypes are compared"
        yield from _number_reasons(op, op.rows[0].dtype)
        return
    if op.kind in _LAYOUT or op.kind in REDUCTIONS or op.kind == "product":
        yield from _number_reasons(op, op.result.dtype)
        return
    dtype = op.result.dtype
    known = _FLOATING if dtype.is_floating_point else _BOOLEAN if dtype == torch.bool else _INTEGER
    if op.kind not in known:
        yield f"{op.kind} is not defined for {dtype_name(dtype)}"
    if not dtype.is_floating_point:
        yield from _number_reasons(op, dtype)
        yield from _division_reasons(op)


def _number_reasons(op: Op, dtype: torch.dtype) -> Iterator[str]:
    """Constants that the dtype of an operation on integers or booleans does not have."""
    if dtype.is_floating_point or op.kind in {"slice", "strided", *REDUCTIONS} or op.kind.startswith("logical"):
        return
    yield from constant_reasons(op, dtype)
    for number in op.args:
        if dtype == torch.bool and isinstance(number, int | float) and number not in {0, 1}:
            yield f"{number!r} is no bool"


def _division_reasons(op: Op) -> Iterator[str]:
    """Divisions of integers that a processor traps, and powers without an integer result."""
    if op.kind not in {"floor_divide", "remainder", "pow"}:
        return
    left, right = op.args
    if isinstance(right, Row) or not isinstance(left, Row):
        yield "integers are divided or raised only by a constant"
    elif op.kind == "pow" and isinstance(right, int | float) and right < 0:
        yield "a negative power of an integer"
    elif op.kind != "pow" and right in {0, -1}:
        yield f"division by {right}"
