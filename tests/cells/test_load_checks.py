"""Weights that are loaded before a cell is built are of the shapes that it will have."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

import throughtime as tt
from compare import check_close
from descriptors import DESCRIPTORS, MORE_DESCRIPTORS, Descriptor

pytestmark = pytest.mark.covers("conformance")

LAZY = [
    descriptor
    for descriptor in [*DESCRIPTORS, *MORE_DESCRIPTORS]
    if type(cell := descriptor.make(4)) in [*vars(tt).values(), *vars(tt.cells).values()]
    and any(map(is_lazy, cell.parameters()))
]
every_lazy_cell = pytest.mark.parametrize("descriptor", LAZY, ids=lambda descriptor: descriptor.name)


def run(cell: Any, inputs: Any) -> Any:
    """One unroll, with the same dropout masks every time."""
    torch.manual_seed(0)
    return tt.dynamic_rnn(cell, inputs, [3, 1], dtype=torch.float32)


@every_lazy_cell
def test_weights_of_other_shapes_are_not_loaded(descriptor: Descriptor) -> None:
    cell, loaded = descriptor.make(4), descriptor.make(4)
    case = descriptor.case(2, 3, torch.float32)
    run(cell, case.inputs)
    loaded.load_state_dict(cell.state_dict())
    check_close("results", run(cell, case.inputs), run(loaded, case.inputs))
    for name, weight in cell.state_dict().items():
        wrong = torch.ones(*weight.shape[:-1], weight.shape[-1] + 1)
        # Of what exists already torch says it: an NTM's own, and a cell that is there twice, by its second name.
        words = r"the loaded `.+` does not fit .+: got shape .+, expected [\[(]|size mismatch for"
        with pytest.raises((ValueError, RuntimeError), match=words):
            descriptor.make(4).load_state_dict({**cell.state_dict(), name: wrong})


def refused(cell: Any, weights: dict[str, Tensor]) -> str:
    """Why weights are not loaded into a cell that is not built."""
    with pytest.raises(ValueError, match="the loaded") as raised:
        cell.load_state_dict(weights)
    # Nothing is: the right ones may come yet.
    assert all(map(is_lazy, cell.parameters()))
    return str(raised.value)


def test_loaded_weights_that_do_not_fit_are_named() -> None:
    fix = ". Load the weights of a cell that was made with the same arguments as this one."
    lstm, gru = tt.LSTMCell(4, input_size=3).state_dict(), tt.GRUCell(4, input_size=3).state_dict()
    words = "the loaded `kernel` does not fit LSTMCell: got shape (7, 16), expected [I + 5, 20]"
    assert refused(tt.LSTMCell(5), lstm) == words + fix
    words = "the loaded `bias` does not fit LSTMCell: got shape (1,), expected [16]"
    assert refused(tt.LSTMCell(4), {**lstm, "bias": torch.ones(1)}) == words + fix
    words = "the loaded `kernel` does not fit LSTMCell: got shape (7,), expected [I + 4, 16]"
    assert refused(tt.LSTMCell(4), {**lstm, "kernel": torch.ones(7)}) == words + fix
    words = "the loaded `kernel` does not fit LSTMCell: got shape (3, 16), expected [I + 4, 16]"
    assert refused(tt.LSTMCell(4), {**lstm, "kernel": torch.ones(3, 16)}) == words + fix
    words = "the loaded `candidate.kernel` does not fit GRUCell: got shape (9, 4), expected (7, 4)"
    wider = {**gru, "candidate.kernel": torch.ones(9, 4)}
    assert refused(tt.GRUCell(4), wider) == f"{words} beside `gates.kernel` (7, 8){fix}"
    words = "the loaded `kernel` does not fit LSTMCell `cell_1`: got shape (7, 16), expected [I + 2, 8]"
    stack = {f"cell_{layer}.{name}": weight for layer in range(2) for name, weight in lstm.items()}
    with pytest.raises(ValueError, match=re.escape(words)):
        tt.MultiRNNCell([tt.LSTMCell(4), tt.LSTMCell(2)]).load_state_dict(stack)
    groups = tt.cells.GLSTMCell(6, number_of_groups=3, input_size=6).state_dict()
    words = "the loaded `group1.kernel` does not fit GLSTMCell: got shape (1, 8), expected [I / 3 + 2, 8]"
    narrow = {**groups, "group1.kernel": torch.ones(1, 8)}
    assert refused(tt.cells.GLSTMCell(6, number_of_groups=3), narrow) == words + fix


def test_weights_of_which_some_were_loaded() -> None:
    cell, x, zeros = tt.GRUCell(4), torch.ones(2, 3), torch.zeros(2, 4)
    cell.load_state_dict({"candidate.kernel": torch.ones(9, 4)}, strict=False)
    with pytest.raises(ValueError, match=re.escape("got shape (9, 4), expected (7, 4) for inputs [B, 3]")):
        cell(x, zeros)
    assert cell(torch.ones(2, 5), zeros)[0].shape == (2, 4)


def test_weights_that_were_put_there() -> None:
    for run_one in (lambda cell: run(cell, torch.ones(2, 3, 3)), lambda cell: cell(torch.ones(2, 3), cell.zero)):
        cell = tt.LSTMCell(4)
        cell.zero = cell.zero_state(2, torch.float32)
        cell.kernel, cell.bias = nn.Parameter(torch.ones(7, 16)), nn.Parameter(torch.ones(1))
        with pytest.raises(ValueError, match=re.escape("the loaded `bias` does not fit LSTMCell: got shape (1,)")):
            run_one(cell)
        cell.bias = nn.Parameter(torch.ones(16))
        assert run_one(cell)[0].shape[-1] == 4


def test_parameters_of_a_users_own_shapes() -> None:
    """Sides that do not grow evenly with the inputs say nothing about them until the first step."""

    class Squared(tt.BasicRNNCell):
        def parameter_shapes(self, input_size: int) -> dict[str, tuple[int, ...]]:
            return {"kernel": (input_size**2 + self.num_units, self.num_units), "bias": (self.num_units,)}

        def check_step(self, inputs: Any, state: Any) -> None:
            pass

        def forward(self, inputs: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
            squares = torch.cat([(inputs.unsqueeze(2) * inputs.unsqueeze(1)).flatten(1), state], 1)
            state = torch.tanh(torch.addmm(self.bias, squares, self.kernel))
            return state, state

    cell, x = Squared(4), torch.ones(2, 3, 3)
    cell.load_state_dict({"kernel": torch.ones(13, 4), "bias": torch.ones(4)})
    assert run(cell, x)[0].shape == (2, 3, 4)
    cell = Squared(4)
    cell.load_state_dict({"kernel": torch.ones(14, 4), "bias": torch.ones(4)})
    with pytest.raises(ValueError, match=re.escape("got shape (14, 4), expected (13, 4) for inputs [B, 3]")):
        run(cell, x)
