"""Cells with matrices in a row: results are the reference's, and nothing wide is kept that need not be."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import throughtime as tt
from backends import check_on, compiled_backends, plan_of
from descriptors import Case, Descriptor

pytestmark = pytest.mark.covers("compiler")

UNITS, PLACES = 20, 30
LENGTHS = [6, 0, 1, 5]


class Outer(tt.RNNCell):
    """A matrix that outer products of inputs are added to, and that is asked at every step."""

    def __init__(self) -> None:
        super().__init__()
        self.output_size, self.state_size = UNITS, torch.Size([UNITS, UNITS])
        self.linear = nn.Linear(3, 3 * UNITS)

    def forward(self, inputs: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        query, key, value = torch.tanh(self.linear(inputs)).chunk(3, 1)
        memory = 0.9 * memory + value.unsqueeze(2) * key.unsqueeze(1)
        return (memory @ query.unsqueeze(2)).squeeze(2), memory


class Reader(tt.RNNCell):
    """A memory that no step changes; with `inside`, a layer of the cell is applied to it at every step."""

    def __init__(self, *, inside: bool) -> None:
        super().__init__()
        self.output_size, self.state_size = UNITS, (UNITS, torch.Size([PLACES, UNITS]))
        self.cell = nn.Linear(3 + UNITS, UNITS)
        self.scale = nn.Parameter(torch.rand(UNITS)) if inside else None

    def forward(self, inputs: Tensor, state: Any) -> tuple[Tensor, Any]:
        h, memory = state
        keys = memory if self.scale is None else torch.tanh(memory * self.scale)
        shares = torch.softmax((keys @ h.unsqueeze(2)).squeeze(2), 1)
        h = torch.tanh(self.cell(torch.cat([inputs, (shares.unsqueeze(1) @ memory).squeeze(1)], 1)))
        return h, (h, memory)


CELLS = {
    "outer products": Outer,
    "memory": lambda: Reader(inside=False),
    "memory with a layer": lambda: Reader(inside=True),
}
every_cell = pytest.mark.parametrize("name", CELLS)


def case_of(name: str) -> Case:
    torch.manual_seed(0)
    return Descriptor(name, lambda _: CELLS[name]()).case(len(LENGTHS), max(LENGTHS))


@compiled_backends
@every_cell
def test_against_the_reference(name: str, backend: str) -> None:
    for lengths in (None, LENGTHS):
        check_on(backend, case_of(name), lengths)
        check_on(backend, case_of(name), lengths, checkpoint_every=2)
        check_on(backend, case_of(name), lengths, parallel_iterations=4, all_states=True)


def widths_kept(name: str) -> set[int]:
    """The widths of the rows that the forward loop stores."""
    case = case_of(name)
    program = plan_of(case).program
    assert program is not None
    return {value.row_size for value in program.loop.stored}


def test_an_unchanged_state_is_kept_once() -> None:
    assert max(widths_kept("memory")) <= PLACES


def test_what_is_wide_and_soon_narrow_again_stays_in_the_loop() -> None:
    """Without gradients not one matrix of a step is kept, nor made ahead for all steps."""
    case = case_of("outer products")
    with torch.no_grad():
        program = plan_of(case).program
    assert program is not None
    assert {value.row_size for value in program.loop.stored} == {UNITS}
    assert all(value.row_size < UNITS * UNITS for node in program.before.nodes for value in node.results)
    assert "bmm" in {node.name for node in program.loop.nodes}


@pytest.mark.parametrize("name", ["outer products", "memory"])
def test_kernels_take_them(name: str) -> None:
    plan = plan_of(case_of(name))
    assert plan.backend == "numba"
    assert " x " in plan.source
