"""Rows cut into shards: contiguous, of about equal cost, each for one thread from the first step to the last."""

from __future__ import annotations

import bisect
import itertools

import numpy as np
from numpy.typing import NDArray

from throughtime.compiler._loop import LoopProgram, Matrix

STEP_COST = 1.0
"""What a step costs a shard beside its rows, in rows: one row takes as long to multiply as two."""
SHARD_NANOSECONDS = 20_000
"""Work that is worth a thread of its own.

A thread of torch's team costs some microseconds if it is awake, and tens of them on a virtual machine if it has to be
woken up. A second one gets some work from two shards of this size on.
"""


def nanoseconds_of(program: LoopProgram) -> float:
    """About how long one row takes for one step: 0.02 ns for a multiply-add, 0.2 ns for any other number."""
    matrices = (arg for op in program.body for arg in op.args if isinstance(arg, Matrix))
    own = sum(0.02 * m.rows * m.columns for m in matrices) + sum(0.2 * op.result.width for op in program.body)
    return own + (0.0 if program.ahead is None else nanoseconds_of(program.ahead.program))


def useful_shards(nanoseconds: float) -> int:
    """Into how many shards this much work is worth cutting."""
    return max(1, int(nanoseconds / SHARD_NANOSECONDS))


def cut_rows(active: NDArray[np.int64], count: int) -> list[tuple[int, int]]:
    """At most `count` ranges of rows, none of them empty, for steps with these numbers of active rows."""
    rows = int(active[0])
    count = min(count, rows)
    if count <= 1:
        return [(0, rows)] if rows else []
    if active[-1] == rows:
        # All rows live for all steps.
        return list(itertools.pairwise(rows * shard // count for shard in range(count + 1)))
    # Row r lives for as many steps as have more than r active rows.
    lengths: list[int] = (len(active) - active[::-1].searchsorted(np.arange(rows), side="right")).tolist()
    return _cut(lengths, [0, *itertools.accumulate(lengths)], 0, rows, count)


def _cut(lengths: list[int], total: list[int], start: int, stop: int, count: int) -> list[tuple[int, int]]:
    """Rows `start` to `stop` cut in two where the dearer half is cheapest, and so on; `total` sums up `lengths`."""
    if count == 1:
        return [(start, stop)]
    left = count // 2
    right = count - left

    def before(place: int) -> float:
        return (total[place] - total[start]) / left + STEP_COST * lengths[start]

    def after(place: int) -> float:
        # A shard walks all steps of its first row, which is its longest.
        return (total[stop] - total[place]) / right + STEP_COST * lengths[place]

    # The one grows from place to place, the other falls. At least as many rows on each side as shards.
    places = range(start + left, stop - right + 1)
    place = places[
        min(bisect.bisect_left(places, True, key=lambda place: before(place) >= after(place)), len(places) - 1)
    ]
    if place > places[0] and after(place - 1) <= before(place):
        place -= 1
    return _cut(lengths, total, start, place, left) + _cut(lengths, total, place, stop, right)
