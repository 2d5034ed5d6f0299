"""Rows cut into shards: contiguous, of about equal cost, each for one thread from the first step to the last."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from throughtime.compiler._loop import LoopProgram, Matrix

STEP_COST = 1.0
"""What a step costs a shard beside its rows, in rows."""
SHARD_NANOSECONDS = 30_000
"""Work that is worth a thread of its own: waking one up and hearing back from it costs about half of that."""


def nanoseconds_of(program: LoopProgram) -> float:
    """About how long one row takes for one step: 0.02 ns for a multiply-add, 0.2 ns for any other number."""
    matrices = (arg for op in program.body for arg in op.args if isinstance(arg, Matrix))
    return sum(0.02 * m.rows * m.columns for m in matrices) + sum(0.2 * op.result.width for op in program.body)


def useful_shards(nanoseconds: float) -> int:
    """Into how many shards this much work is worth cutting."""
    return max(1, int(nanoseconds / SHARD_NANOSECONDS))


def cut_rows(active: NDArray[np.int64], count: int) -> list[tuple[int, int]]:
    """At most `count` ranges of rows, none of them empty, for steps with these numbers of active rows."""
    rows = int(active.max(initial=0))
    count = min(count, rows)
    if count <= 1:
        return [(0, rows)] if rows else []
    # Row r lives for as many steps as have more than r active rows.
    lives = np.searchsorted(np.sort(active), np.arange(rows), side="right")
    lengths = (len(active) - lives).astype(np.float64)
    total = np.concatenate([[0.0], np.cumsum(lengths)])
    bounds = [0]
    for shard in range(count - 1):
        # What is left, shared among the shards that are left; the steps of this shard are those of its longest row.
        start, shards = bounds[-1], count - shard
        fixed = STEP_COST * lengths[start]
        share = (total[-1] - total[start] + fixed * shards) / shards - fixed
        stop = int(np.searchsorted(total, total[start] + share - lengths[start] / 2))
        bounds.append(min(max(stop, start + 1), rows - (shards - 1)))
    bounds.append(rows)
    return list(zip(bounds, bounds[1:], strict=False))
