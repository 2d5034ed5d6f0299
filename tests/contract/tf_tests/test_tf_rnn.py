"""What `tensorflow/python/kernel_tests/rnn_test.py` asks of `dynamic_rnn`, restated."""

from __future__ import annotations

import copy
import gc
import pickle
from typing import Any

import pytest
import torch
from _tf_cells import (
    CORE_CELLS,
    ScalarStateCell,
    TensorArrayStateCell,
    TorchCell,
    UnbalancedOutputCell,
)
from torch import nn

import throughtime as tt

pytestmark = pytest.mark.covers("tf-tests")

FLOATS = (torch.float32, torch.float64)


@pytest.mark.parametrize("lengths", [4, [[4, 4], [4, 4]]], ids=["scalar", "matrix"])
def test_lengths_must_be_a_vector(lengths: Any) -> None:
    """dynamic_rnn refuses lengths that are not one number per row."""
    with pytest.raises(ValueError, match="vector"):
        tt.dynamic_rnn(tt.GRUCell(3), torch.zeros(2, 4, 5), sequence_length=lengths, dtype=torch.float32)


@pytest.mark.parametrize("kind", CORE_CELLS)
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.bool])
def test_core_cells_take_floating_inputs_only(kind: Any, dtype: torch.dtype) -> None:
    """Integer inputs are refused by every core cell, with the reason."""
    with pytest.raises(ValueError, match="floating"):
        tt.dynamic_rnn(kind(3), torch.zeros(2, 4, 5, dtype=dtype), dtype=torch.float32)


@pytest.mark.parametrize("given", [False, True], ids=["zero_state", "initial_state"])
@pytest.mark.parametrize("batch", [0, 1, 7])
def test_batch_size_comes_from_the_inputs(batch: int, given: bool) -> None:
    """Outputs and state have the inputs' batch size, with and without an initial state."""
    cell = tt.LSTMCell(3)
    start = cell.zero_state(batch, torch.float32) if given else None
    outputs, state = tt.dynamic_rnn(cell, torch.zeros(batch, 4, 5), initial_state=start, dtype=torch.float32)
    assert outputs.shape == (batch, 4, 3)
    assert state.c.shape == state.h.shape == (batch, 3)


def test_scalar_state_is_not_masked() -> None:
    """A rank-0 state belongs to no row: it counts every executed step, here the longest row's four."""
    inputs = torch.arange(18.0).reshape(3, 6, 1)
    outputs, state = tt.dynamic_rnn(ScalarStateCell(), inputs, sequence_length=[4, 1, 2], dtype=torch.float32)
    assert state.dtype == torch.int32
    assert state.item() == 4
    keep = torch.arange(6) < torch.tensor([[4], [1], [2]])
    torch.testing.assert_close(outputs, inputs * keep.unsqueeze(-1))


def test_outputs_need_not_be_shaped_like_the_state() -> None:
    """A tuple of two outputs beside one scalar state comes back as a tuple, masked leaf by leaf."""
    inputs = torch.arange(1.0, 9.0).reshape(2, 4, 1)
    outputs, state = tt.dynamic_rnn(UnbalancedOutputCell(), inputs, sequence_length=[4, 2], dtype=torch.float32)
    assert isinstance(outputs, tuple)
    masked = inputs.clone()
    masked[1, 2:] = 0
    torch.testing.assert_close(outputs[0], masked)
    torch.testing.assert_close(outputs[1], torch.cat([masked, -masked], dim=-1))
    assert state.item() == 4


def test_repeated_runs_leave_no_objects_behind() -> None:
    """A TensorArray state makes no reference cycle that keeps tensors or other objects alive."""
    inputs = torch.ones(2, 4, 1)

    def run() -> None:
        tt.dynamic_rnn(TensorArrayStateCell(4), inputs, sequence_length=[4, 2], dtype=torch.float32)

    def alive() -> tuple[int, int]:
        gc.collect()
        objects = gc.get_objects()
        return len(objects), sum(issubclass(type(thing), torch.Tensor) for thing in objects)

    run()
    runs = 20
    objects, tensors = alive()
    for _ in range(runs):
        run()
    objects_after, tensors_after = alive()
    assert tensors_after <= tensors
    assert objects_after - objects < runs


@pytest.mark.parametrize("lengths", [None, [6, 6, 6], [6, 1, 2]], ids=["no lengths", "full", "ragged"])
def test_tensor_array_state_passes_through(lengths: list[int] | None) -> None:
    """A state of (time, TensorArray) takes every step, unmasked: all rows in place, padding as zeros."""
    inputs = torch.arange(1.0, 19.0).reshape(3, 6, 1)
    _, (time, seen) = tt.dynamic_rnn(TensorArrayStateCell(6), inputs, sequence_length=lengths, dtype=torch.float32)
    assert time.item() == 6
    running = torch.arange(6).unsqueeze(1) < torch.tensor(lengths or [6, 6, 6])
    torch.testing.assert_close(seen.stack(), inputs.transpose(0, 1) * running.unsqueeze(-1))


@pytest.mark.parametrize("kind", CORE_CELLS)
def test_get_initial_state_from_inputs_or_sizes(kind: Any) -> None:
    """Zeros, from the inputs or from a batch size and a dtype, or from both when they agree."""
    cell, inputs = kind(3), torch.ones(4, 5, dtype=torch.float64)
    for arguments in (
        {"inputs": inputs},
        {"inputs": inputs, "batch_size": 4},
        {"inputs": inputs, "dtype": torch.float64},
        {"inputs": inputs, "batch_size": 4, "dtype": torch.float64},
        {"batch_size": 4, "dtype": torch.float64},
    ):
        torch.testing.assert_close(
            cell.get_initial_state(**arguments), cell.zero_state(4, torch.float64), rtol=0, atol=0
        )


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({}, "batch_size"),
        ({"batch_size": 4}, "dtype"),
        ({"dtype": torch.float32}, "batch_size"),
        ({"inputs": torch.ones(4, 5), "batch_size": 5}, "batch"),
        ({"inputs": torch.ones(4, 5), "dtype": torch.float64}, "dtype"),
    ],
    ids=["nothing", "no dtype", "no batch", "batch clash", "dtype clash"],
)
def test_get_initial_state_refuses_gaps_and_contradictions(arguments: dict[str, Any], complaint: str) -> None:
    """A missing size, or one that contradicts the inputs, is an error that names it."""
    with pytest.raises(ValueError, match=complaint):
        tt.LSTMCell(3).get_initial_state(**arguments)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("kind", CORE_CELLS)
def test_cells_build_before_the_first_call(kind: Any, dtype: torch.dtype) -> None:
    """`build` with an input shape makes the parameters, which a later call uses as they are."""
    cell = kind(3, dtype=dtype)
    cell.build((None, 5))
    built = {name: (parameter, parameter.detach().clone()) for name, parameter in cell.named_parameters()}
    assert built
    outputs, _ = tt.dynamic_rnn(cell, torch.ones(2, 4, 5, dtype=dtype), dtype=dtype)
    assert outputs.shape == (2, 4, 3)
    assert outputs.dtype == dtype
    for name, parameter in cell.named_parameters():
        assert parameter is built[name][0]
        torch.testing.assert_close(parameter, built[name][1], rtol=0, atol=0, check_stride=False)


TORCH_CELLS = {
    "rnn": lambda: TorchCell(nn.RNNCell(5, 3)),
    "gru": lambda: TorchCell(nn.GRUCell(5, 3)),
    "lstm": lambda: TorchCell(nn.LSTMCell(5, 3)),
    "stack": lambda: tt.MultiRNNCell([TorchCell(nn.LSTMCell(5, 4)), TorchCell(nn.LSTMCell(4, 3))]),
}


@pytest.mark.parametrize("unroll", ["dynamic", "static"])
@pytest.mark.parametrize("kind", TORCH_CELLS)
def test_foreign_cells_unroll_and_learn(kind: str, unroll: str) -> None:
    """Another library's cells run inside our unrolls, and one gradient step moves all their weights."""
    cell, inputs = TORCH_CELLS[kind](), torch.randn(2, 4, 5)
    if unroll == "dynamic":
        outputs, state = tt.dynamic_rnn(cell, inputs, dtype=torch.float32)
    else:
        steps, state = tt.static_rnn(cell, list(inputs.unbind(1)), dtype=torch.float32)
        outputs = torch.stack(steps, 1)
    assert outputs.shape == (2, 4, 3)
    last = {"rnn": state, "gru": state, "lstm": state[0], "stack": state[-1][0]}[kind]
    torch.testing.assert_close(last, outputs[:, -1])
    before = [parameter.detach().clone() for parameter in cell.parameters()]
    outputs.square().sum().backward()
    torch.optim.SGD(cell.parameters(), lr=0.1).step()
    assert all((old != new).any() for old, new in zip(before, cell.parameters(), strict=True))


@pytest.mark.parametrize("kind", CORE_CELLS)
def test_module_and_function_agree(kind: Any) -> None:
    """The layer around a cell and the function given an equal cell return the same outputs and state."""
    layer = tt.RNN(kind(3, input_size=5))
    twin = kind(3, input_size=5)
    twin.load_state_dict(layer.cell.state_dict())
    inputs = torch.randn(2, 4, 5)
    torch.testing.assert_close(layer(inputs), tt.dynamic_rnn(twin, inputs, dtype=torch.float32), rtol=0, atol=0)


def test_kernel_is_the_two_matrices_stacked() -> None:
    """A cell with separate input and recurrent matrices equals ours with the two stacked in one kernel."""
    theirs, ours = nn.RNNCell(5, 3), tt.BasicRNNCell(3, input_size=5)
    with torch.no_grad():
        ours.kernel.copy_(torch.cat([theirs.weight_ih.T, theirs.weight_hh.T]))
        ours.bias.copy_(theirs.bias_ih + theirs.bias_hh)
    inputs = torch.randn(2, 4, 5)
    expected, _ = tt.dynamic_rnn(TorchCell(theirs), inputs, dtype=torch.float32)
    torch.testing.assert_close(tt.dynamic_rnn(ours, inputs, dtype=torch.float32)[0], expected)


def test_basic_lstm_weights_load_into_lstm() -> None:
    """What a BasicLSTMCell saved, an LSTMCell loads under the same names, and computes the same."""
    basic, full = tt.BasicLSTMCell(3, input_size=5), tt.LSTMCell(3, name="basic_lstm_cell", input_size=5)
    full.load_state_dict(basic.state_dict())
    assert list(tt.interop.tf_variables(full)) == list(tt.interop.tf_variables(basic))
    inputs = torch.randn(2, 4, 5)
    torch.testing.assert_close(
        tt.dynamic_rnn(full, inputs, dtype=torch.float32), tt.dynamic_rnn(basic, inputs, dtype=torch.float32)
    )


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda module: pickle.loads(pickle.dumps(module))])
@pytest.mark.parametrize("built", [False, True], ids=["before building", "built"])
@pytest.mark.parametrize("kind", CORE_CELLS)
def test_cells_inside_a_layer_survive_copying(kind: Any, built: bool, copied: Any) -> None:
    """A layer's cell keeps its settings and weights through deepcopy and pickle, built or not."""
    layer = tt.RNN(kind(3, input_size=5 if built else None))
    twin = copied(layer)
    inputs = torch.randn(2, 4, 5)
    outputs, state = twin(inputs)
    assert type(twin.cell) is type(layer.cell)
    assert twin.cell.output_size == 3
    if not built:
        layer(inputs)
        layer.load_state_dict(twin.state_dict())
    torch.testing.assert_close((outputs, state), layer(inputs), rtol=0, atol=0)


def test_cells_own_their_weights() -> None:
    """Two cells of one kind, unrolled side by side under one scope, never clash or share by name."""
    first, second = tt.LSTMCell(3), tt.LSTMCell(3)
    inputs = torch.randn(2, 4, 5)
    for cell in (first, second):
        tt.dynamic_rnn(cell, inputs, dtype=torch.float32, scope="rnn")
    assert list(tt.interop.tf_variables(first)) == list(tt.interop.tf_variables(second))
    assert not {id(p) for p in first.parameters()} & {id(p) for p in second.parameters()}
    assert (first.kernel != second.kernel).any()
