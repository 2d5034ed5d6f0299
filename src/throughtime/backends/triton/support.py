"""Why the GPU backend does not support a program: as a loop, or as one elementwise kernel."""

from __future__ import annotations

import functools
import importlib.util
import os
from collections.abc import Iterator

from throughtime._setting import Setting
from throughtime.backends.integer_rules import constant_reasons, dtype_name
from throughtime.backends.triton.codegen_expressions import INSIDE, table
from throughtime.backends.triton.row_segments import Reduction, cut
from throughtime.compiler import Uncompilable
from throughtime.compiler.ir.loop_ir import COMPARISONS, REDUCTIONS, LoopProgram, Op

most_operations = Setting(256)
"""Operations of one kernel: the compiler takes too long for more."""
MOST_REDUCED = 1 << 14
"""Features of a row that one block reduces."""


def unsupported_reason(program: LoopProgram) -> str | None:
    """Why this backend does not support `program`, or None if it does."""
    if not has_triton():
        return "triton is not installed"
    return next(_reasons(program), None)


@functools.cache
def has_triton() -> bool:
    """Whether Triton is installed."""
    return importlib.util.find_spec("triton") is not None


def is_interpreted() -> bool:
    """Whether Triton runs kernels in its interpreter, on the CPU."""
    return os.environ.get("TRITON_INTERPRET", "0") in ("1", "true", "on", "yes")


def _reasons(program: LoopProgram) -> Iterator[str]:
    results = [op.result for op in program.body]
    befores = [carry.before for carry in program.carried]
    for row in (*program.streams, *program.lagged, *program.constants, *befores, *results):
        if row.dtype not in INSIDE:
            yield f"`{row}`: there are no fast products of {dtype_name(row.dtype)} on a GPU"
    for op in program.body:
        yield from (f"`{op}`: {reason}" for reason in _op_reasons(op))
    try:
        cut(program)
    except Uncompilable as reason:
        yield str(reason)


def _op_reasons(op: Op) -> Iterator[str]:
    """Why one operation is not supported."""
    if op.kind in ("slice", "cat", "product", "where", "cast"):
        return
    if op.kind == "strided" or op.is_in_groups:
        yield "features are read or reduced along an axis of a row"
        return
    if op.kind in REDUCTIONS:
        if not op.result.dtype.is_floating_point:
            yield "integers are reduced"
        return
    if op.kind not in COMPARISONS and op.kind not in table(op.result.dtype):
        yield f"{op.kind} is not defined for {dtype_name(op.result.dtype)}"
    compared = op.kind in COMPARISONS and not op.kind.startswith("logical")
    if compared and len({row.dtype for row in op.rows}) > 1:
        yield "rows of different dtypes are compared"
    dtype = op.rows[0].dtype
    if not dtype.is_floating_point:
        yield from constant_reasons(op, dtype)


def elementwise_unsupported_reason(program: LoopProgram) -> str | None:
    """Why a program without recurrence cannot be one elementwise kernel, or None if it can."""
    return next(_elementwise_reasons(program), None)


def _elementwise_reasons(program: LoopProgram) -> Iterator[str]:
    if not has_triton():
        yield "triton is not installed"
    if program.matrices:
        yield "it has a product"
    if len(program.body) > most_operations.value:
        yield f"it has {len(program.body)} operations"
    for op in program.body:
        yield from _op_reasons(op)
        if op.kind in ("floor_divide", "remainder") and op.result.dtype.is_floating_point:
            yield f"{op.kind} is not what torch has for it"
    try:
        operations = cut(program).operations
    except Uncompilable as reason:
        yield str(reason)
        return
    widest = max((piece.width for op in operations if isinstance(op, Reduction) for piece in op.pieces), default=0)
    if widest > MOST_REDUCED:
        yield f"it reduces {widest} features"
