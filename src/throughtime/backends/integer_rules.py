"""Rules for integers that every backend with kernels shares: why an operation on them is not supported."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from throughtime.compiler.ir.loop_ir import Op


def dtype_name(dtype: torch.dtype) -> str:
    """The name of a dtype without the module."""
    return str(dtype).removeprefix("torch.")


def constant_reasons(op: Op, dtype: torch.dtype) -> Iterator[str]:
    """Constants that an integer dtype does not have: torch would compute in another one."""
    for number in op.args:
        if isinstance(number, int | float) and number != number // 1:
            yield f"{number!r} is no {dtype_name(dtype)}"
