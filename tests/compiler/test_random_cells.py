"""Random cells: what is compiled equals the reference, and rows that meet are always found out."""

from __future__ import annotations

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import throughtime as tt
from backends import check_on, compiled_backends, plan_of
from compare import compare
from oracle import oracle
from random_cells import Recipe, recipes
from throughtime.compiler.passes.native_gemms import narrowest
from throughtime.native.gemm.policy import gemm_policy
from unrolls import dynamic, on

pytestmark = [pytest.mark.covers("compiler"), pytest.mark.covers("properties")]

lengths = st.none() | st.lists(st.integers(0, 4), min_size=3, max_size=3)


@compiled_backends
@settings(max_examples=60)
@given(recipes(), lengths, st.integers(1, 2))
def test_any_cell(backend: str, recipe: Recipe, lengths: list[int] | None, layers: int) -> None:
    case = recipe.case(3, 4, layers=layers)
    check_on(backend, case, lengths)


@settings(max_examples=60)
@given(recipes(), lengths, st.integers(1, 2))
def test_any_cell_with_all_products_by_machine_code(recipe: Recipe, lengths: list[int] | None, layers: int) -> None:
    """However small they are, and in calls that are known too."""
    case = recipe.case(3, 4, layers=layers)
    with gemm_policy.change(torch_up_to=0), narrowest.use(1):
        for _ in range(3):
            check_on("auto", case, lengths)


@settings(max_examples=30)
@given(recipes(), st.lists(st.integers(0, 5), min_size=3, max_size=3), st.integers(1, 5), st.integers(1, 5))
def test_any_cell_in_blocks(recipe: Recipe, lengths: list[int], every: int, parallel: int) -> None:
    case = recipe.case(3, 5)
    check_on("auto", case, lengths, checkpoint_every=every)
    check_on("auto", case, lengths, parallel_iterations=parallel, all_states=True)


@settings(max_examples=150)
@given(recipes(coupled=True))
def test_rows_that_meet_are_found_out(recipe: Recipe) -> None:
    case = recipe.case(3, 2)
    # Now and then what follows takes the coupling away again: those cells prove nothing.
    assume(not rows_are_independent(case))
    with torch.no_grad():
        plan = plan_of(case)
    assert plan.backend == "reference"
    assert all("row" in reason for reason in plan.reasons.values()), plan.reasons


def rows_are_independent(case: object) -> bool:
    """Whether the rows of a batch give what each gives alone."""
    with torch.no_grad():
        alone = oracle(case.cell, case.inputs, None, case.state, case.dtype)
        together = on("reference", dynamic)(case.cell, case.inputs, None, case.state, case.dtype)
    pairs = zip(*map(torch.utils._pytree.tree_leaves, (alone, together)), strict=True)
    return all(torch.allclose(*pair, rtol=1e-9, atol=1e-9) for pair in pairs)


@settings(max_examples=60)
@given(recipes())
def test_what_is_compiled_has_independent_rows(recipe: Recipe) -> None:
    """And all of these are compiled: the detection does not cry wolf."""
    case = recipe.case(3, 3)
    assert plan_of(case).backend != "reference"
    assert rows_are_independent(case)
    with tt.backend("auto"):
        compare(
            lambda cell, inputs, state: oracle(cell, inputs, [3, 1, 2], state, case.dtype),
            lambda cell, inputs, state: dynamic(cell, inputs, [3, 1, 2], state, case.dtype),
            case.cell,
            case.inputs,
            case.state,
        )
