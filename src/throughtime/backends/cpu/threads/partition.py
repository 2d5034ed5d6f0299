"""Rows cut into shards: contiguous, of about equal cost.

A shard is for one thread from the first step to the last. Where there is much to do its steps are cut into pieces:
between two of them a thread that is slower than others, because somebody else wants its processor or because it is of a
slower kind, can hand over half of its rows.
"""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from throughtime.backends.cpu.plan.scratch_layout import BLOCK_ROWS
from throughtime.backends.hardware_rates import ELEMENT_NANOSECONDS, MULTIPLY_ADD_NANOSECONDS
from throughtime.compiler.ir.costs import elements, multiply_adds
from throughtime.compiler.ir.loop_ir import LoopProgram
from throughtime.native.threads.split_rows import STEP_COST

SHARD_NANOSECONDS = 20_000
"""Work that is worth a thread of its own.

A thread of torch's team costs some microseconds if it is awake, and tens of them on a virtual machine if it has to be
woken up. A second one gets some work from two shards of this size on.
"""
PIECES = 24
"""Of a shard whose rows may be divided on the way."""
HELP_NANOSECONDS = 25_000
"""Work ahead of a loop that another thread is asked to do."""
PIECES_NANOSECONDS = 4e6
RAGGED_PIECES_NANOSECONDS = 4e7
"""Work that is worth cutting into pieces; where lengths differ, at every call anew, and only much of it is."""
HALF_ROWS = 4
"""A half of fewer rows is slow to multiply, and is not made."""
HALVINGS = 2
"""How often a shard can be divided."""


def nanoseconds_of(program: LoopProgram) -> float:
    """About how long one row takes for one step."""
    own = MULTIPLY_ADD_NANOSECONDS * multiply_adds(program) + ELEMENT_NANOSECONDS * elements(program)
    return own + (0.0 if program.ahead is None else nanoseconds_of(program.ahead.program))


def useful_shards(nanoseconds: float) -> int:
    """Into how many shards this much work is worth cutting."""
    return max(1, int(nanoseconds / SHARD_NANOSECONDS))


def is_worth_help(nanoseconds: float) -> bool:
    """Whether another thread should do so much ahead of a loop."""
    return nanoseconds >= HELP_NANOSECONDS


def is_worth_pieces(nanoseconds: float, *, is_ragged: bool) -> bool:
    """Whether so much work should go in pieces."""
    return nanoseconds >= (RAGGED_PIECES_NANOSECONDS if is_ragged else PIECES_NANOSECONDS)


def with_halves(shards: Sequence[tuple[int, int]]) -> tuple[list[tuple[int, int]], list[int]]:
    """Shards, then their halves and the halves of these, if they have rows enough; the first half of each, or 0."""
    ranges, firsts, whole = list(shards), list[int](), list(shards)
    for _ in range(HALVINGS):
        halves: list[tuple[int, int]] = []
        for start, stop in whole:
            is_divided = stop - start >= 2 * HALF_ROWS
            firsts.append(len(ranges) + len(halves) if is_divided else 0)
            middle = (start + stop + 1) // 2
            halves += [(start, middle), (middle, stop)] if is_divided else []
        ranges += halves
        whole = halves
    return ranges, firsts + [0] * len(whole)


def cut_steps(active: NDArray[np.int64], start: int, stop: int, *, reverse: bool) -> array[int]:
    """The pieces of a shard of rows, of about equal cost and in the order of the walk: two steps, from and up to.

    They have whole blocks of the steps that are prepared at a time: a block of few rows would be slow to multiply.
    """
    block = max(1, BLOCK_ROWS // (stop - start))
    if active[-1] >= stop:
        ends = [*(len(active) * piece // PIECES // block * block for piece in range(PIECES)), len(active)]
    else:
        rows = np.minimum(active, stop) - start
        costs = np.cumsum(rows[rows > 0] + STEP_COST)
        places = costs.searchsorted(costs[-1] * np.arange(1, PIECES) / PIECES) + 1
        ends = [0, *(places // block * block).tolist(), len(costs)]
    pieces = [piece for piece in itertools.pairwise(ends) if piece[0] < piece[1]]
    return array("q", itertools.chain.from_iterable(reversed(pieces) if reverse else pieces))
