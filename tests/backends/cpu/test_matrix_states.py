"""Cells with matrices in a row: results are the reference's, and nothing wide is kept that need not be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import throughtime as tt
from backends import check_on, compiled_backends, plan_of
from descriptors import Case, Descriptor
from matrix_cells import LAYERS, WORDS, Layers
from user_cells import Step, weight

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


TURN, MIX = torch.linspace(-1, 1, 16).view(4, 4), torch.linspace(-1, 1, 4 * 6 * 6).view(4, 6, 6)
PRODUCTS: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "a matrix on the left": lambda m, a, _: a @ m,
    "on both sides": lambda m, a, w: a @ m @ w[0].t(),
    "slots times a matrix": lambda m, _, w: torch.einsum("bij,jk->bik", m, w[0]),
    "a matrix times slots": lambda m, a, _: torch.einsum("ki,bij->bkj", a, m),
    "turned": lambda m, a, w: torch.einsum("kj,bij->bki", w[1], m).transpose(1, 2) + torch.einsum("bij,ik->bkj", m, a),
    "a matrix for each group": lambda m, _, w: torch.einsum("bgi,gio->bgo", m, w),
    "groups that come last": lambda m, _, w: torch.einsum("goi,bgi->bog", w, m).transpose(1, 2),
}


@compiled_backends
@pytest.mark.parametrize("name", PRODUCTS)
def test_products_with_parameters(name: str, backend: str) -> None:
    def step(x: Tensor, m: Tensor, a: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        new = torch.tanh(m / 2 + x[:, :1, None] + PRODUCTS[name](m, a, w))
        return new[:, :, 0], new

    def cell() -> Step:
        return Step(step, torch.Size([4, 6]), 4, nn.Parameter(TURN.clone()), nn.Parameter(MIX.clone()))

    case = Descriptor(name, lambda _: cell()).case(4, 5)
    assert plan_of(case).backend == "cpu", plan_of(case).reasons
    for lengths in (None, [5, 0, 1, 4]):
        check_on(backend, case, lengths)


@compiled_backends
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_attention_to_what_lies_apart_in_memory(dtype: torch.dtype, backend: str) -> None:
    """torch has a kernel for it that reads features side by side, and trusts its caller."""

    def step(x: Tensor, m: Tensor) -> tuple[Tensor, Tensor]:
        found = functional.scaled_dot_product_attention(x.unsqueeze(1), m.unsqueeze(1), x.unsqueeze(1)).squeeze(1)
        return found, m * torch.sigmoid(found)

    results = []
    for name in ("reference", backend):
        torch.manual_seed(0)
        x, m = (torch.randn(*shape, dtype=dtype, requires_grad=True) for shape in ((5, 3, 6, 4), (5, 6, 4)))
        with tt.backend(name):
            outputs, final = tt.dynamic_rnn(
                Step(step, torch.Size([4, 6]), torch.Size([4, 6])), x.transpose(2, 3), None, m.transpose(1, 2)
            )
        (outputs.square().sum() + final.sum()).backward()
        results.append((outputs.detach(), final.detach(), x.grad, m.grad))
    for expected, found in zip(*results, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", LAYERS)
def test_layers_of_torch_in_kernels(name: str) -> None:
    case = Descriptor(name, lambda _: Layers(LAYERS[name]())).case(4, 5)
    assert plan_of(case).backend == "cpu", plan_of(case).reasons
    for lengths in (None, [5, 0, 1, 4]):
        check_on("auto", case, lengths)
        check_on("auto", case, lengths, checkpoint_every=2)
        check_on("auto", case, lengths, parallel_iterations=3)


@compiled_backends
@pytest.mark.parametrize("word", WORDS)
def test_words_of_kernels(word: str, backend: str) -> None:
    def step(x: Tensor, m: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        new = WORDS[word](torch.tanh(m / 2 + (x @ w).view(-1, 4, 6)))
        return new[:, :, 0], new

    case = Descriptor(word, lambda _: Step(step, torch.Size([4, 6]), 4, weight(3, 24))).case(4, 5)
    for lengths in (None, [5, 0, 1, 4]):
        check_on(backend, case, lengths)


@pytest.mark.parametrize("name", ["outer products", "memory"])
def test_kernels_take_them(name: str) -> None:
    plan = plan_of(case_of(name))
    assert plan.backend == "cpu"
    assert " x " in plan.source
