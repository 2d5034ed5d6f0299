"""What `rnn_cell_test.py`'s RNNCellTest asks of single cells and wrappers, restated."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
from _tf_cells import fill_kernels, literal
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

import throughtime as tt

pytestmark = pytest.mark.covers("tf-tests")


def two(kind: Any, as_tuple: bool, **options: Any) -> tt.MultiRNNCell:
    """Two layers of width two."""
    return tt.MultiRNNCell([kind(2, **options) for _ in range(2)], state_is_tuple=as_tuple)


# Cells whose numbers TensorFlow itself has given, for kernels of one constant and for ramps.
RECORDED_CELLS = {
    "gru": lambda: tt.GRUCell(2),
    "gru_wide_input": lambda: tt.GRUCell(2),
    "gru_pair_one_vector": lambda: two(tt.GRUCell, False),
    "gru_pair_of_vectors": lambda: two(tt.GRUCell, True),
    "lstm_wide_input": lambda: tt.BasicLSTMCell(2, state_is_tuple=False),
    "lstm_pair_one_vector": lambda: two(tt.BasicLSTMCell, False, state_is_tuple=False),
    "lstm_pair_of_vectors": lambda: two(tt.BasicLSTMCell, True, state_is_tuple=False),
    "lstm_projecting": lambda: tt.LSTMCell(
        4, use_peepholes=True, cell_clip=0.5, num_proj=2, proj_clip=0.3, state_is_tuple=False
    ),
}


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float16, 2e-3), (torch.float32, 1e-6)], ids=["float16", "float32"]
)
@pytest.mark.parametrize("kernel", ["constant", "ramp"])
@pytest.mark.parametrize("name", RECORDED_CELLS)
def test_recorded_step_is_reproduced(name: str, kernel: str, dtype: torch.dtype, tolerance: float) -> None:
    """One step from a given state computes what TensorFlow computes, in the dtype of the input."""
    recorded, cell = literal(name, kernel, dtype), RECORDED_CELLS[name]()
    state: Any = tuple(recorded.state) if name.endswith("of_vectors") else recorded.state[0]
    cell(recorded.inputs, state)
    assert {parameter.dtype for parameter in cell.parameters()} == {dtype}
    output, final = fill_kernels(cell, kernel)(recorded.inputs, state)
    torch.testing.assert_close(output, recorded.output, rtol=0, atol=tolerance)
    torch.testing.assert_close(tree_leaves(final), recorded.final_state, rtol=0, atol=tolerance)


def test_two_layers_of_gru_have_eight_weights() -> None:
    """Each layer of a stack has four parameters of its own."""
    cell = two(tt.GRUCell, False)
    cell(torch.ones(1, 2), torch.zeros(1, 4))
    assert [name.partition(".")[0] for name in cell.state_dict()] == ["cell_0"] * 4 + ["cell_1"] * 4


def test_basic_rnn_has_a_kernel_and_a_bias() -> None:
    """A basic cell's two variables have TensorFlow's names and shapes, and its output the state's."""
    cell = tt.BasicRNNCell(2)
    output, state = cell(torch.ones(1, 2), torch.full((1, 2), 0.1))
    named = {name: tuple(value.shape) for name, value in tt.interop.tf_variables(cell, "root").items()}
    assert named == {"root/basic_rnn_cell/kernel": (4, 2), "root/basic_rnn_cell/bias": (2,)}
    assert output.shape == (1, 2)
    torch.testing.assert_close(output, state)


def test_frozen_weights_stay_frozen() -> None:
    """Weights marked as not trainable get no gradient and no update; gradients still flow through them."""
    cell = tt.BasicRNNCell(2, input_size=2).requires_grad_(False)
    inputs = torch.ones(1, 2, requires_grad=True)
    output, _ = cell(inputs, torch.full((1, 2), 0.1))
    output.sum().backward()
    assert [parameter.grad for parameter in cell.parameters()] == [None, None]
    assert inputs.grad is not None
    assert list(tt.interop.tf_variables(cell, "root")) == ["root/basic_rnn_cell/kernel", "root/basic_rnn_cell/bias"]


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_stacked_lstm_variables(dtype: torch.dtype) -> None:
    """Two LSTM layers have four variables, named by layer, in the dtype of the input."""
    cell = two(tt.BasicLSTMCell, False, state_is_tuple=False)
    cell(torch.ones(1, 2, dtype=dtype), torch.full((1, 8), 0.1, dtype=dtype))
    expected = [f"root/multi_rnn_cell/cell_{i}/basic_lstm_cell/{leaf}" for i in range(2) for leaf in ("kernel", "bias")]
    named = tt.interop.tf_variables(cell, "root")
    assert list(named) == expected
    assert {value.dtype for value in named.values()} == {dtype}


def test_inputs_and_state_must_have_equal_batches() -> None:
    """Three rows of input do not go with two rows of state."""
    with pytest.raises(ValueError, match=r"batch"):
        tt.BasicLSTMCell(2, state_is_tuple=False)(torch.zeros(3, 2), torch.zeros(2, 4))


def test_state_vector_must_have_the_cells_width() -> None:
    """A one-vector state that is not twice the cell's width is refused before any arithmetic."""
    with pytest.raises(ValueError, match=r"state"):
        tt.BasicLSTMCell(2, state_is_tuple=False)(torch.zeros(3, 2), torch.zeros(3, 6))


@pytest.mark.parametrize("plain", [tuple, list])
def test_plain_pairs_become_state_tuples(plain: Any) -> None:
    """A stack given plain pairs as states computes, and returns, LSTMStateTuples."""
    cell = two(tt.BasicLSTMCell, True)
    halves = [torch.full((1, 2), value) for value in (0.1, 0.2)]
    _, state = cell(torch.ones(1, 2), (plain(halves), plain(halves)))
    assert all(type(layer) is tt.LSTMStateTuple for layer in state)
    _, again = cell(torch.ones(1, 2), (tt.LSTMStateTuple(*halves), tt.LSTMStateTuple(*halves)))
    torch.testing.assert_close(state, again, rtol=0, atol=0)


def test_projecting_lstm_tells_rows_apart() -> None:
    """With constant weights a projecting LSTM has the right shapes, and different rows get different answers."""
    units, projected, batch, depth = 8, 6, 3, 4
    cell = tt.LSTMCell(units, num_proj=projected, forget_bias=1.0, state_is_tuple=False, input_size=depth)
    fill_kernels(cell)
    inputs = 0.05 * torch.arange(12.0).reshape(batch, depth)
    output, state = cell(inputs, torch.full((batch, units + projected), 0.1))
    assert output.shape == (batch, projected)
    assert state.shape == (batch, units + projected)
    for leaf in (output, state):
        assert (leaf[0] - leaf[1]).abs().max() > 1e-6
        assert (leaf[1] - leaf[2]).abs().max() > 1e-6


def test_lstm_variables_in_order() -> None:
    """Kernel, bias, projection: created, and listed, in TensorFlow's order under TensorFlow's names."""
    cell = tt.LSTMCell(8, num_proj=6, state_is_tuple=False)
    cell(torch.ones(3, 4), torch.zeros(3, 14))
    shapes = {name: tuple(value.shape) for name, value in tt.interop.tf_variables(cell, "root").items()}
    assert list(shapes.items()) == [
        ("root/lstm_cell/kernel", (10, 32)),
        ("root/lstm_cell/bias", (32,)),
        ("root/lstm_cell/projection/kernel", (8, 6)),
    ]


WRAPPERS = {
    "dropout": tt.DropoutWrapper,
    "residual": tt.ResidualWrapper,
    "device": lambda cell: tt.DeviceWrapper(cell, "cpu"),
    "stack": lambda cell: tt.MultiRNNCell([cell]),
}


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_wrapped_weights_are_saved_and_restored(wrapper: str) -> None:
    """Weights saved through a wrapper are found again by another wrapper around a fresh cell."""
    original = WRAPPERS[wrapper](tt.BasicRNNCell(3, input_size=3))
    restored = WRAPPERS[wrapper](tt.BasicRNNCell(3, input_size=3))
    inner = "cell_0" if wrapper == "stack" else "cell"
    assert set(original.state_dict()) == {f"{inner}.kernel", f"{inner}.bias"}
    inputs, state = torch.randn(2, 3), torch.randn(2, 3)
    state = (state,) if wrapper == "stack" else state
    expected = original(inputs, state)
    fill_kernels(original, 0.25)
    assert (original(inputs, state)[0] != expected[0]).any()
    restored.load_state_dict(original.state_dict())
    torch.testing.assert_close(restored(inputs, state), original(inputs, state), rtol=0, atol=0)


@pytest.mark.parametrize("slicing", [False, True], ids=["sum", "custom"])
def test_residual_adds_the_input(slicing: bool) -> None:
    """The output is the cell's plus the input, or what a function of both says; the state is the cell's own."""

    def sliced(inputs: Tensor, outputs: Tensor) -> Tensor:
        return inputs[:, :3] + 2 * outputs

    depth = 5 if slicing else 3
    cell = tt.GRUCell(3, input_size=depth)
    inputs, state = torch.randn(2, depth), torch.randn(2, 3)
    bare, bare_state = cell(inputs, state)
    wrapped = tt.ResidualWrapper(cell, residual_fn=sliced if slicing else None)
    output, new_state = wrapped(inputs, state)
    assert wrapped.wrapped_cell is cell
    torch.testing.assert_close(output, sliced(inputs, bare) if slicing else bare + inputs)
    torch.testing.assert_close(new_state, bare_state, rtol=0, atol=0)


@pytest.mark.parametrize("state", [torch.zeros(1, 4), 3, None], ids=["tensor", "number", "None"])
def test_stack_wants_a_tuple_of_states(state: Any) -> None:
    """A stack with tuple states says what it expected when it gets something else."""
    with pytest.raises(ValueError, match=r"(?s)state.*tuple"):
        two(tt.GRUCell, True)(torch.ones(1, 2), state)


def halve(inputs: Tensor, outputs: Tensor) -> Tensor:
    """A residual function with a name, so that it can be pickled."""
    return (inputs + outputs) / 2


def keep_all(state: Any) -> bool:
    """A state filter with a name: no part of the state is ever dropped."""
    return False


SETTINGS: dict[str, Any] = {
    "device": (lambda cell: tt.DeviceWrapper(cell, "cpu")),
    "residual": tt.ResidualWrapper,
    "residual_fn": (lambda cell: tt.ResidualWrapper(cell, residual_fn=halve)),
    "dropout": (lambda cell: tt.DropoutWrapper(cell, 0.7, 0.9, 0.8, seed=3)),
    "dropout_filter": (
        lambda cell: tt.DropoutWrapper(cell, state_keep_prob=1e-9, seed=3, dropout_state_filter_visitor=keep_all)
    ),
}


def reload(module: nn.Module) -> nn.Module:
    """Through pickle and back."""
    return pickle.loads(pickle.dumps(module))


@pytest.mark.parametrize("copied", [copy.deepcopy, reload])
@pytest.mark.parametrize("used", [False, True], ids=["fresh", "used"])
@pytest.mark.parametrize("settings", SETTINGS)
def test_wrappers_survive_copying(settings: str, used: bool, copied: Any) -> None:
    """A copy has the settings, functions and weights of the original, goes on where it stood, and shares no memory."""
    wrapper, inputs = SETTINGS[settings](tt.GRUCell(3, input_size=3)), torch.randn(2, 6, 3)
    if used:
        tt.dynamic_rnn(wrapper, inputs, dtype=torch.float32)
    twin = copied(wrapper)
    expected = tt.dynamic_rnn(wrapper, inputs, dtype=torch.float32)
    torch.testing.assert_close(tt.dynamic_rnn(twin, inputs, dtype=torch.float32), expected, rtol=0, atol=0)
    assert type(twin) is type(wrapper)
    assert type(twin.cell) is tt.GRUCell
    assert not {p.data_ptr() for p in twin.parameters()} & {p.data_ptr() for p in wrapper.parameters()}
