"""What people see when they print a cell: how it was made."""

from __future__ import annotations

import inspect

import pytest
import torch

import throughtime as tt
from descriptors import BY_NAME

pytestmark = pytest.mark.covers("conformance")


@pytest.mark.parametrize(
    ("cell", "shown"),
    [
        (tt.BasicRNNCell(5), "BasicRNNCell(5)"),
        (tt.LSTMCell(5), "LSTMCell(5)"),
        (tt.LSTMCell(5, True, 0.5, num_proj=3), "LSTMCell(\n  5, use_peepholes=True, cell_clip=0.5, num_proj=3\n"),
        (
            tt.DropoutWrapper(tt.BasicRNNCell(5), 0.5),
            "DropoutWrapper(\n  input_keep_prob=0.5\n  (cell): BasicRNNCell(5)\n",
        ),
        (tt.EmbeddingWrapper(tt.BasicRNNCell(5), 9, 2), "EmbeddingWrapper(\n  9, 2\n"),
        (tt.RNN(tt.BasicRNNCell(5), returns="state"), "RNN(\n  returns='state'\n"),
        (tt.LSTMCell(64, input_size=8), "LSTMCell(64, input_size=8)"),
        (tt.LSTMCell(5, forget_bias=0.0, input_size=8), "LSTMCell(5, forget_bias=0.0, input_size=8)"),
        (tt.GRUCell(5, input_size=8), "GRUCell(\n  5, input_size=8\n"),
        (tt.MultiRNNCell([tt.LSTMCell(5), tt.LSTMCell(6)], input_size=8), "MultiRNNCell(\n  (cell_0): LSTMCell(5, inp"),
        (tt.InputProjectionWrapper(tt.BasicRNNCell(5), 3, input_size=8), "InputProjectionWrapper(\n  num_proj=3, inp"),
        (
            tt.DropoutWrapper(tt.BasicRNNCell(5), 0.5, 1.0, 1.0, True, 8, torch.float32),
            "DropoutWrapper(\n  input_keep_prob=0.5, variational_recurrent=True, input_size=8\n",
        ),
    ],
)
def test_repr_says_how_it_was_made(cell: tt.RNNCell, shown: str) -> None:
    assert repr(cell).startswith(shown)


# Cells over slices of the features: their parameters are for inputs of any width.
ANY_WIDTH = (tt.cells.GridLSTMCell, tt.cells.BidirectionalGridLSTMCell)
TAKE_INPUT_SIZE = {
    kind: one
    for one in BY_NAME.values()
    if issubclass(kind := type(one.make(4)), tt.RNNCell)
    and kind.__module__.startswith("throughtime")
    and kind not in ANY_WIDTH
    and "input_size" in inspect.signature(kind).parameters
}


@pytest.mark.parametrize("kind", TAKE_INPUT_SIZE, ids=lambda kind: kind.__name__)
def test_every_cell_that_takes_an_input_size_shows_it(kind: type) -> None:
    """Itself, or the cells inside of it: what it was made for, or has seen first."""
    descriptor = TAKE_INPUT_SIZE[kind]
    cell = descriptor.case(1, 1).cell
    inside = any(isinstance(part, tt.RNNCell) for part in cell.children())
    known = "input_size=" if inside or kind is tt.cells.PhasedLSTMCell else f"input_size={descriptor.input_size}"
    assert known in repr(cell)


def test_the_size_of_the_first_inputs_is_shown() -> None:
    cell = tt.LSTMCell(5)
    tt.dynamic_rnn(cell, torch.ones(2, 3, 7), dtype=torch.float32)
    assert repr(cell) == "LSTMCell(5, input_size=7)"


def test_a_cell_with_odd_shapes_can_be_shown() -> None:
    class Odd(tt.GRUCell):
        def parameter_shapes(self, input_size: int) -> dict[str, tuple[int, ...]]:
            if input_size < 3:
                raise ValueError("too narrow")
            return super().parameter_shapes(input_size)

    assert repr(Odd(5, input_size=4)).startswith("Odd(\n  5\n")
