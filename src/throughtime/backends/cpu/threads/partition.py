"""The estimated work of a program, and the pieces and halves of shards for work stealing.

A shard is a contiguous range of rows for one thread, from the first step to the last. With enough work its steps are
cut into pieces: between two of them a slow thread can hand over half of its rows.
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

PIECES = 24
"""Pieces of a shard."""
HALVINGS = 2
"""How often a shard can be split."""


def nanoseconds_of(program: LoopProgram) -> float:
    """Estimated nanoseconds of a step for one row."""
    own = MULTIPLY_ADD_NANOSECONDS * multiply_adds(program) + ELEMENT_NANOSECONDS * elements(program)
    return own + (0.0 if program.ahead is None else nanoseconds_of(program.ahead.program))


def with_halves(shards: Sequence[tuple[int, int]], half_rows: int) -> tuple[list[tuple[int, int]], list[int]]:
    """Shards, then their halves and the halves of these, none under `half_rows`; the first half of each, or 0."""
    ranges, firsts, whole = list(shards), list[int](), list(shards)
    for _ in range(HALVINGS):
        halves: list[tuple[int, int]] = []
        for start, stop in whole:
            is_divided = stop - start >= 2 * half_rows
            firsts.append(len(ranges) + len(halves) if is_divided else 0)
            middle = (start + stop + 1) // 2
            halves += [(start, middle), (middle, stop)] if is_divided else []
        ranges += halves
        whole = halves
    return ranges, firsts + [0] * len(whole)


def cut_steps(active: NDArray[np.int64], start: int, stop: int, *, reverse: bool) -> array[int]:
    """The pieces of a shard of rows, of about equal cost and in the order of the loop.

    Each is its first step and the one after its last. A piece has whole blocks of the steps that are computed ahead: a
    block of few rows would be slow to multiply.
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
