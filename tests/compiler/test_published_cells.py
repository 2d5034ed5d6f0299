"""Cells as papers have them: compiled where they should be, and equal to the reference in values and all gradients."""

from __future__ import annotations

import pytest
import torch

import throughtime as tt
from backends import check_on, compiled_backends, lengths_for, plan_of, raises_refusal
from published_cells import PUBLISHED, GroupNorm
from unrolls import EVERY_BACKEND, dynamic, on
from user_cells import Listed

pytestmark = pytest.mark.covers("compiler")

T, B = 4, 5
LENGTHS = [2, 0, T, 1, T]

every_cell = pytest.mark.parametrize("listed", PUBLISHED, ids=lambda listed: listed.descriptor.name)


def takes(listed: Listed, backend: str) -> bool:
    """Whether a backend is to run the cell: all that are slower than the one on the list."""
    return EVERY_BACKEND.index(backend) <= EVERY_BACKEND.index(listed.backend)


@every_cell
def test_the_engine_picks_the_fastest_that_can(listed: Listed) -> None:
    plan = plan_of(listed.case(B, T, torch.float32), LENGTHS)
    assert plan.backend == listed.backend, plan.reasons
    assert all(listed.reason in reason for reason in plan.reasons.values())


@every_cell
@compiled_backends
@pytest.mark.parametrize("lengths", [None, LENGTHS], ids=["T", "mixed"])
def test_equals_the_reference(listed: Listed, backend: str, lengths: list[int] | None) -> None:
    case = listed.case(B, T)
    if takes(listed, backend):
        check_on(backend, case, lengths)
        return
    with raises_refusal(backend, listed.reason):
        on(backend, dynamic)(case.cell, case.inputs, lengths, case.state, case.dtype)


@every_cell
@pytest.mark.parametrize("batch", [1, 67])
def test_every_batch(listed: Listed, batch: int) -> None:
    check_on("auto", listed.case(batch, 3), lengths_for(batch, 3))


@compiled_backends
def test_a_group_norm_of_single_features_takes_any_number_of_rows(backend: str) -> None:
    cell, x = GroupNorm(4, 4).double(), torch.randn(3, 5, 3, dtype=torch.float64)
    with tt.backend("reference"):
        expected, _ = tt.dynamic_rnn(cell, x, dtype=x.dtype)
    with tt.backend(backend):
        outputs, _ = tt.dynamic_rnn(cell, x, dtype=x.dtype)
        single, _ = tt.dynamic_rnn(cell, x[:1], dtype=x.dtype)
    torch.testing.assert_close(outputs, expected)
    torch.testing.assert_close(single, expected[:1])
