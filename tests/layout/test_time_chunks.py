"""Time cut into chunks: by steps, by rows, by both."""

from __future__ import annotations

import pytest
import torch

from throughtime.layout.step_layout import StepLayout
from throughtime.layout.time_chunks import first_steps, spans, time_chunks

pytestmark = pytest.mark.covers("kernels")

COUNTS = [5, 4, 4, 2, 1]


@pytest.mark.parametrize(
    ("most_steps", "most_rows", "firsts"),
    [(None, None, [0]), (2, None, [0, 2, 4]), (9, None, [0]), (None, 8, [0, 1, 3]), (1, 8, [0, 1, 2, 3, 4])],
)
def test_first_steps(most_steps: int | None, most_rows: int | None, firsts: list[int]) -> None:
    assert first_steps(COUNTS, most_steps=most_steps, most_rows=most_rows) == firsts


@pytest.mark.parametrize(
    ("counts", "rows", "most", "firsts"),
    [
        ([4, 4, 4, 4], 8, None, [0, 2]),
        ([4, 4, 4, 4], 8, 1, [0, 1, 2, 3]),
        ([4, 4, 4, 4], 100, 3, [0, 3]),
        ([9, 9], 8, None, [0, 1]),
        ([6, 3, 2, 1, 1, 1], 6, None, [0, 1, 4]),
        ([1], 8, None, [0]),
    ],
)
def test_chunks_of_rows_and_steps(counts: list[int], rows: int, most: int | None, firsts: list[int]) -> None:
    assert first_steps(counts, most_steps=most, most_rows=rows) == firsts


def test_a_chunk_has_at_least_one_step() -> None:
    assert first_steps(COUNTS, most_rows=1) == [0, 1, 2, 3, 4]


def test_no_steps_have_no_chunks() -> None:
    assert spans([], first_steps([])) == []


def test_chunks_cover_all_rows_in_either_direction() -> None:
    active = torch.tensor(COUNTS)
    steps = StepLayout(active, active.cumsum(0) - active, 1, COUNTS[0])
    chunks = list(time_chunks(steps, first_steps(COUNTS, most_steps=2)))
    assert [chunk.rows for chunk in chunks] == [slice(0, 9), slice(9, 15), slice(15, 16)]
    assert [chunk.steps.counts for chunk in chunks] == [[5, 4], [4, 2], [1]]
    backwards = time_chunks(steps, first_steps(COUNTS, most_steps=2), backwards=True)
    assert [chunk.first for chunk in backwards] == [4, 2, 0]


def test_one_chunk_is_the_layout_itself() -> None:
    active = torch.tensor(COUNTS)
    steps = StepLayout(active, active.cumsum(0) - active, 1, COUNTS[0])
    (chunk,) = time_chunks(steps, first_steps(COUNTS))
    assert chunk.steps is steps
    assert chunk.rows is None
