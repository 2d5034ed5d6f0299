"""Time cut into chunks of consecutive steps."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from throughtime.layout.step_layout import StepLayout


class TimeChunk(NamedTuple):
    """Steps as a layout of their own, which rows of all steps are theirs (None for all), and the first step."""

    steps: StepLayout
    rows: slice | None
    first: int


def first_steps(counts: Sequence[int], *, most_steps: int | None = None, most_rows: int | None = None) -> list[int]:
    """The first step of each chunk, where step t has `counts[t]` rows; without limits one chunk has all steps.

    A chunk has at most `most_steps` steps and `most_rows` rows, but never less than one step.
    """
    if most_rows is None:
        return list(range(0, len(counts), max(1, len(counts)) if most_steps is None else most_steps))
    firsts: list[int] = []
    rows = 0
    for step, count in enumerate(counts):
        if not firsts or rows + count > most_rows or (most_steps is not None and step - firsts[-1] >= most_steps):
            firsts.append(step)
            rows = 0
        rows += count
    return firsts


def spans(counts: Sequence[int], firsts: Sequence[int]) -> list[tuple[int, int]]:
    """The first step of each chunk and the one after its last."""
    return list(itertools.pairwise([*firsts, len(counts)]))


def time_chunks(steps: StepLayout, firsts: Sequence[int], *, backwards: bool = False) -> Iterator[TimeChunk]:
    """The chunks that begin with these steps, in order or from the last one to the first."""
    if len(firsts) == 1:
        yield TimeChunk(steps, None, 0)
        return
    cuts = spans(steps.counts, firsts)
    for first, last in reversed(cuts) if backwards else cuts:
        yield TimeChunk(*steps.block(first, last), first)
