"""What every other test relies on: poisoned memory, fixed seeds, warnings that are errors."""

from __future__ import annotations

import random
import warnings

import numpy as np
import pytest
import torch
from conftest import AREAS
from hypothesis import given
from hypothesis import strategies as st

pytestmark = pytest.mark.covers("architecture")


@pytest.mark.parametrize(
    "allocate",
    [
        lambda: torch.empty(1000),
        lambda: torch.empty_like(torch.zeros(1000)),
        lambda: torch.zeros(1).new_empty(1000),
        lambda: torch.empty_strided((1000,), (1,)),
        lambda: torch.zeros(0).resize_(1000),
        lambda: torch.nn.Linear(10, 100, device="meta").to_empty(device="cpu").weight,
    ],
    ids=["empty", "empty_like", "new_empty", "empty_strided", "resize_", "to_empty"],
)
def test_fresh_memory_is_nan(allocate: object) -> None:
    assert allocate().isnan().all()


@pytest.mark.parametrize("_again", range(2))
def test_seeds_are_fixed(_again: int) -> None:
    # Both runs must see the numbers of a fresh seed, whatever ran before.
    drawn = random.random(), np.random.rand(), torch.rand(()).item()
    assert drawn == (
        random.Random(0).random(),
        np.random.RandomState(0).rand(),
        torch.rand((), generator=torch.Generator().manual_seed(0)).item(),
    )


def test_hypothesis_seeds_torch_before_every_example() -> None:
    seen = []

    @given(st.integers())
    def draw(_number: int) -> None:
        seen.append(torch.rand(()).item())

    draw()
    assert len(seen) > 1
    assert len(set(seen)) == 1


def test_warnings_are_errors() -> None:
    with pytest.raises(UserWarning, match="look here"):
        warnings.warn("look here", stacklevel=1)


def test_one_thread_a_process() -> None:
    assert torch.get_num_threads() == 1


def test_every_test_says_what_it_covers(request: pytest.FixtureRequest) -> None:
    areas = {item.nodeid: [mark.args[0] for mark in item.iter_markers("covers")] for item in request.session.items}
    assert [test for test, covered in areas.items() if not covered] == []
    assert {area for covered in areas.values() for area in covered} <= set(AREAS)
