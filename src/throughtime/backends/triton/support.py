"""Why the backend cannot take a program."""

from __future__ import annotations

import functools
import importlib.util
import os
from collections.abc import Iterator

import torch

from throughtime.backends.triton.codegen_expressions import INSIDE, table
from throughtime.backends.triton.row_segments import cut
from throughtime.compiler import Uncompilable
from throughtime.compiler.ir.loop_ir import COMPARISONS, REDUCTIONS, LoopProgram, Op, Row


def unsupported_reason(program: LoopProgram) -> str | None:
    """Why this backend cannot take `program`, or None if it can."""
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
            yield f"`{row}`: there are no fast products of {str(row.dtype).removeprefix('torch.')} on a GPU"
    for op in program.body:
        yield from (f"`{op}`: {reason}" for reason in op_reasons(op))
    try:
        cut(program)
    except Uncompilable as reason:
        yield str(reason)


def op_reasons(op: Op) -> Iterator[str]:
    """What keeps one operation out of kernels."""
    if op.kind in ("slice", "cat", "product", "where", "cast"):
        return
    if op.kind == "strided" or op.is_in_groups:
        yield "features are read or reduced along an axis of a row"
        return
    if op.kind in REDUCTIONS:
        if not op.result.dtype.is_floating_point:
            yield "whole numbers are reduced"
        return
    if op.kind not in COMPARISONS and op.kind not in table(op.result.dtype):
        yield f"{op.kind} is not defined for {str(op.result.dtype).removeprefix('torch.')}"
    compared = op.kind in COMPARISONS and not op.kind.startswith("logical")
    if compared and len({row.dtype for row in op.rows}) > 1:
        yield "rows of different dtypes are compared"
    dtype = op.rows[0].dtype
    if not dtype.is_floating_point:
        yield from _number_reasons(op, dtype)


def _number_reasons(op: Op, dtype: torch.dtype) -> Iterator[str]:
    """Numbers that would change the dtype of an operation on whole numbers."""
    for number in op.args:
        if not isinstance(number, Row) and isinstance(number, float) and number != number // 1:
            yield f"{number!r} is no {str(dtype).removeprefix('torch.')}"
