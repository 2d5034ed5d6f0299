"""What the GPU suites share: a clock on the card, and comparisons at the precision of the dtype."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree

from record import Turn

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
TOLERANCE = {torch.float64: 1e-6, torch.float32: 5e-3, torch.bfloat16: 5e-2, torch.float16: 1e-2}
"""Relative differences of norms: float32 is multiplied as TF32 by both sides."""


def on_card(run: Callable[[], object]) -> Turn:
    """The turn of something on the GPU: calls in a row, the time between events of the card, spread evenly."""

    def turn(calls: int) -> list[float]:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(calls):
            run()
        end.record()
        end.synchronize()
        return [start.elapsed_time(end) / 1000 / calls] * calls

    return turn


@torch.no_grad()
def check(what: str, got: Any, want: Any) -> float:
    """The largest difference of two nests of tensors, as norms; raises where it is more than rounding."""
    pairs = list(zip(pytree.tree_leaves(got), pytree.tree_leaves(want), strict=True))
    worst = max(float((a.double() - b.double()).norm() / b.double().norm().clamp_min(1e-20)) for a, b in pairs)
    bound = TOLERANCE[pairs[0][0].dtype]
    # Written so that NaN fails too.
    if not worst <= bound:
        raise AssertionError(f"{what}: values or gradients differ by {worst:.1e}, more than {bound:.0e}: no timing")
    return float(f"{worst:.1e}")


def is_mine(index: int) -> bool:
    """Whether a case is this process's: `SHARE=2/8` takes every eighth, to compile kernels in many processes first."""
    mine, _, of = os.environ.get("SHARE", "0/1").partition("/")
    return index % int(of) == int(mine)
