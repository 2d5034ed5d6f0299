"""`torch.export` of models that unroll: plain operations of torch, for any batch and any lengths."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import throughtime as tt
from compare import check_close
from descriptors import random_inputs, settled
from user_cells import LayerNormLSTM

pytestmark = [
    pytest.mark.covers("compiler"),
    # torch itself uses what it has deprecated.
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning"),
]

F64 = torch.float64
T = 5
CELLS: dict[str, Callable[[], Any]] = {
    "LSTM": lambda: tt.LSTMCell(4, True, num_proj=3),
    "stack": lambda: tt.MultiRNNCell([tt.GRUCell(3), tt.OutputProjectionWrapper(tt.LSTMCell(4), 2)]),
    "user's": lambda: LayerNormLSTM(4, modules=True),
}


class Model(nn.Module):
    def __init__(self, cell: Any, unroll: Callable[..., Any]) -> None:
        super().__init__()
        self.cell, self.unroll = cell, unroll

    def forward(self, inputs: Tensor, lengths: Tensor | None = None) -> Any:
        return self.unroll(self.cell, inputs, lengths)


UNROLLS: dict[str, Callable[..., Any]] = {
    "forward": lambda cell, x, n: tt.dynamic_rnn(cell, x, n, dtype=F64),
    "all states": lambda cell, x, n: tt.dynamic_rnn(cell, x, n, dtype=F64, all_states=True),
    "both ways": lambda cell, x, n: tt.bidirectional_dynamic_rnn(cell, cell, x, n, dtype=F64),
    "both ways, time-major": lambda cell, x, n: tt.bidirectional_dynamic_rnn(
        cell, cell, x.transpose(0, 1), n, dtype=F64, time_major=True
    ),
}


def model_of(make: Callable[[], Any], unroll: str = "forward") -> Model:
    return Model(settled(make(), random_inputs(3, 1, 1, F64), F64), UNROLLS[unroll])


def exported(model: Model, *arguments: Any) -> Any:
    """A program for any batch, written to a file and read again."""
    batch = torch.export.Dim("batch", min=1, max=99)
    program = torch.export.export(model, arguments, dynamic_shapes=({0: batch}, {0: batch})[: len(arguments)])
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    return torch.export.load(file)


def results(model: nn.Module, *arguments: Any) -> list[Tensor]:
    """Everything that comes out, and the gradients of the weights."""
    leaves = torch.utils._pytree.tree_leaves(model(*arguments))
    gradients = torch.autograd.grad(sum(leaf.square().sum() for leaf in leaves), list(model.parameters()))
    return [*leaves, *gradients]


EXPORTED = [("stack", "forward"), ("user's", "all states"), ("LSTM", "both ways"), ("LSTM", "both ways, time-major")]


@pytest.mark.parametrize(("cell", "unroll"), EXPORTED)
def test_any_batch_and_any_lengths(cell: str, unroll: str) -> None:
    model = model_of(CELLS[cell], unroll)
    program = exported(model, random_inputs(3, 3, T, F64), torch.tensor([5, 2, 1]))
    assert not any("throughtime" in str(node.target) for node in program.graph.nodes)
    for lengths in ([5, 2, 0, 9, -1], [2]):
        inputs = random_inputs(3, len(lengths), T, F64)
        arguments = inputs, torch.tensor(lengths)
        check_close(f"{lengths}", results(model, *arguments), results(program.module(), *arguments))


def test_without_lengths() -> None:
    model = model_of(CELLS["LSTM"], "both ways")
    program = exported(model, random_inputs(3, 3, T, F64))
    inputs = random_inputs(3, 6, T, F64)
    check_close("dense", results(model, inputs), results(program.module(), inputs))


@pytest.mark.parametrize("lengths", [None, [5, 2, 1]], ids=["dense", "ragged"])
def test_a_module_that_takes_the_dtype_of_its_inputs(lengths: list[int] | None) -> None:
    model = tt.RNN(tt.GRUCell(4, input_size=3))
    given = () if lengths is None else (torch.tensor(lengths),)
    batch = torch.export.Dim("batch")
    shapes = ({0: batch},) * (1 + len(given))
    program = torch.export.export(model, (torch.randn(3, T, 3), *given), dynamic_shapes=shapes)
    arguments = torch.randn(4, T, 3), *(torch.tensor([1, 0, 5, 3]) for _ in given)
    check_close("any batch", results(model, *arguments), results(program.module(), *arguments))


def test_padding_reaches_nothing() -> None:
    model = model_of(CELLS["LSTM"], "both ways")
    inputs, lengths = random_inputs(3, 3, T, F64), torch.tensor([5, 2, 0])
    program = exported(model, inputs, lengths).module()
    wanted = results(model, inputs, lengths)
    inputs[1, 2:], inputs[2] = float("nan"), float("inf")
    check_close("results", wanted, results(program, inputs, lengths))


class Coupled(tt.RNNCell):
    """Its rows meet, and those that have ended would be among them."""

    state_size = output_size = 3

    def forward(self, inputs: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        state = torch.tanh(inputs - inputs.mean(0) + state)
        return state, state


def test_what_cannot_be_exported_says_why() -> None:
    inputs, lengths = random_inputs(3, 3, T, F64), torch.tensor([5, 2, 0])
    coupled = Model(Coupled(), UNROLLS["forward"])
    with pytest.raises(ValueError, match="cannot take `sequence_length` here: got the rows of a batch are not indep"):
        torch.export.export(coupled, (inputs, lengths))
    dense = torch.export.export(coupled, (inputs,)).module()
    check_close("dense", coupled(inputs), dense(inputs))
    model, time = model_of(CELLS["LSTM"]), torch.export.Dim("time", min=1, max=99)
    with pytest.raises(ValueError, match="cannot write out this unroll: got an open number of steps"):
        torch.export.export(model, (inputs,), dynamic_shapes=({1: time},))
    with pytest.raises(Exception, match="Export with `strict=False`"):
        torch.export.export(model, (inputs, lengths), strict=True)


def test_dropout_of_any_number_of_rows() -> None:
    model = tt.RNN(tt.DropoutWrapper(tt.GRUCell(6, input_size=4), output_keep_prob=0.5))
    rows = torch.export.Dim("rows", min=1, max=64)
    program = torch.export.export(model, (torch.randn(4, 7, 4),), dynamic_shapes=({0: rows},))
    outputs, _ = program.module()(torch.randn(9, 7, 4))
    assert outputs.shape == (9, 7, 6)
    assert 0 < int((outputs == 0).sum()) < outputs.numel()
