"""Cells that users write: compiled where they should be, and equal to the reference in values and all gradients."""

from __future__ import annotations

import pytest
import torch

from backends import COMPILED, check_on, compiled_backends, lengths_for, plan_of, raises_refusal
from unrolls import EVERY_BACKEND, dynamic, on
from user_cells import USER_CELLS, Listed

pytestmark = pytest.mark.covers("compiler")

T, B = 5, 6
LENGTHS = [2, 0, T, 1, T - 1, T]

every_cell = pytest.mark.parametrize("listed", USER_CELLS, ids=lambda listed: listed.descriptor.name)
each_backend = compiled_backends


def takes(listed: Listed, backend: str) -> bool:
    """Whether a backend is to run the cell: all that are slower than the one on the list."""
    return EVERY_BACKEND.index(backend) <= EVERY_BACKEND.index(listed.backend)


@every_cell
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_the_engine_picks_the_fastest_that_can(listed: Listed, dtype: torch.dtype) -> None:
    plan = plan_of(listed.case(B, T, dtype), LENGTHS)
    assert plan.backend == listed.backend, plan.reasons
    assert set(plan.reasons) == {backend for backend in COMPILED if not takes(listed, backend)}
    assert all(listed.reason in reason for reason in plan.reasons.values())


@every_cell
@each_backend
@pytest.mark.parametrize("lengths", [None, [0] * B, [1] * B, [T - 1] * B, LENGTHS], ids=["T", "0", "1", "T-1", "mixed"])
def test_every_length(listed: Listed, backend: str, lengths: list[int] | None) -> None:
    case = listed.case(B, T)
    if takes(listed, backend) or not any(lengths or [T]):
        check_on(backend, case, lengths)
        return
    with raises_refusal(backend, listed.reason):
        on(backend, dynamic)(case.cell, case.inputs, lengths, case.state, case.dtype)


@every_cell
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_every_dtype(listed: Listed, dtype: torch.dtype) -> None:
    check_on("auto", listed.case(B, T, dtype), LENGTHS)


@every_cell
@pytest.mark.parametrize("batch", [1, 2, 67])
def test_every_batch(listed: Listed, batch: int) -> None:
    check_on("auto", listed.case(batch, 3), lengths_for(batch, 3))


@every_cell
@pytest.mark.parametrize(
    "options",
    [{"all_states": True}, {"checkpoint_every": 2}, {"parallel_iterations": 2}, {"swap_memory": True}],
    ids=lambda options: next(iter(options)),
)
def test_every_option(listed: Listed, options: dict[str, int]) -> None:
    check_on("auto", listed.case(B, T), LENGTHS, **options)
