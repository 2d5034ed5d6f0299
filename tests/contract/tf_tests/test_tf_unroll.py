"""What `rnn_cell_test.py`'s RNNTest, LSTMTest and GRUTest ask of the unrolls, restated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from _tf_cells import PlusOneCell, StateSaver
from torch import Tensor
from torch.utils._pytree import tree_leaves

import throughtime as tt

pytestmark = pytest.mark.covers("tf-tests")

exactly = {"rtol": 0.0, "atol": 0.0}


def steps(count: int, *shape: int, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    """A random list of inputs, one per step."""
    return [torch.randn(*shape, dtype=dtype) for _ in range(count)]


def test_static_lengths_must_be_a_vector() -> None:
    """static_rnn refuses one number for all rows."""
    with pytest.raises(ValueError, match="vector"):
        tt.static_rnn(PlusOneCell(), steps(3, 2, 5), sequence_length=4, dtype=torch.float32)


def test_static_calls_the_cell_once_a_step() -> None:
    """One output per input, each the input plus one; the state has counted the steps."""
    inputs = steps(8, 2, 5)
    outputs, state = tt.static_rnn(PlusOneCell(), inputs, dtype=torch.float32)
    assert isinstance(outputs, list)
    torch.testing.assert_close(outputs, [step + 1 for step in inputs])
    torch.testing.assert_close(state, torch.full((2, 5), 8.0))


def test_dropping_all_inputs_leaves_the_cells_own_answer() -> None:
    """With next to no input kept, the wrapped cell sees zeros; the bare cell still sees its inputs."""
    inputs = steps(8, 2, 5)
    wrapped = tt.DropoutWrapper(PlusOneCell(), input_keep_prob=1e-12, seed=0)
    plain, _ = tt.static_rnn(PlusOneCell(), inputs, dtype=torch.float32)
    dropped, state = tt.static_rnn(wrapped, inputs, dtype=torch.float32)
    torch.testing.assert_close(plain, [step + 1 for step in inputs])
    torch.testing.assert_close(dropped, [torch.ones(2, 5)] * 8)
    torch.testing.assert_close(state, torch.full((2, 5), 8.0))


def test_static_stops_each_row_at_its_length() -> None:
    """Past a row's length its outputs are zeros and its state stands still."""
    inputs = steps(8, 2, 5)
    outputs, state = tt.static_rnn(PlusOneCell(), inputs, sequence_length=[2, 3], dtype=torch.float32)
    for t, (output, step) in enumerate(zip(outputs, inputs, strict=True)):
        running = torch.tensor([[t < 2], [t < 3]])
        torch.testing.assert_close(output, (step + 1) * running, **exactly)
    torch.testing.assert_close(state, torch.tensor([[2.0], [3.0]]).expand(2, 5))


def unroll(kind: str, cell: Any, inputs: list[Tensor], **options: Any) -> Any:
    """One of the unrolls on a list of steps; returns (list of outputs, state)."""
    if kind == "static":
        return tt.static_rnn(cell, inputs, **options)
    if kind == "dynamic":
        outputs, state = tt.dynamic_rnn(cell, torch.stack(inputs), time_major=True, **options)
        return list(outputs), state
    start = cell.zero_state(len(inputs[0]), inputs[0].dtype)
    saver = StateSaver({"c": start.c, "h": start.h})
    return tt.static_state_saving_rnn(cell, inputs, saver, ("c", "h"), scope=options["scope"])


@pytest.mark.parametrize("kind", ["static", "dynamic", "state_saving"])
@pytest.mark.parametrize(("scope", "prefix"), [(None, "rnn"), ("encoder", "encoder"), ("outer/rnn", "outer/rnn")])
def test_variables_are_named_under_the_scope(kind: str, scope: str | None, prefix: str) -> None:
    """Unrolled under a scope, the weights answer to TensorFlow's names: the scope, or `rnn`, then the cell's."""
    cell = tt.LSTMCell(3, use_peepholes=True, num_proj=2)
    unroll(kind, cell, steps(4, 2, 5), dtype=torch.float32, scope=scope)
    leaves = ["kernel", "bias", "w_f_diag", "w_i_diag", "w_o_diag", "projection/kernel"]
    named = tt.interop.tf_variables(cell)
    assert list(named) == [f"{prefix}/lstm_cell/{leaf}" for leaf in leaves]
    assert {id(variable) for variable in named.values()} == {id(parameter) for parameter in cell.parameters()}


@pytest.mark.parametrize(("given", "got"), [(None, torch.float32), (torch.float64, torch.float64)])
def test_lstm_takes_its_dtype_from_the_constructor(given: torch.dtype | None, got: torch.dtype) -> None:
    """Built by hand, the parameters are float32 unless the constructor says otherwise."""
    cell = tt.LSTMCell(3, dtype=given)
    cell.build((None, 5))
    assert cell.kernel.dtype == cell.bias.dtype == got


@pytest.mark.parametrize(
    ("options", "width"),
    [({}, 3), ({"use_peepholes": True, "num_proj": 4}, 4)],
    ids=["plain", "peepholes and projection"],
)
def test_lstm_with_one_vector_of_state(options: dict[str, Any], width: int) -> None:
    """With the state in one vector [c, h], the last output is that vector's tail."""
    cell = tt.LSTMCell(3, state_is_tuple=False, **options)
    outputs, state = tt.static_rnn(cell, steps(8, 2, 5), dtype=torch.float32)
    assert [tuple(output.shape) for output in outputs] == [(2, width)] * 8
    assert cell.state_size == 3 + width
    torch.testing.assert_close(state[:, 3:], outputs[-1], **exactly)


def test_cell_clip_of_zero_silences_the_cell() -> None:
    """Clipping the memory to zero is clipping, not 'no clipping': every output is exactly zero."""
    cell = tt.LSTMCell(3, use_peepholes=True, cell_clip=0.0, state_is_tuple=False)
    outputs, _ = tt.static_rnn(cell, steps(8, 2, 5), dtype=torch.float32)
    torch.testing.assert_close(outputs, [torch.zeros(2, 3)] * 8, **exactly)


def test_double_precision_from_the_initial_state() -> None:
    """float64 inputs and a float64 initial state need no dtype argument, and stay float64."""
    cell = tt.LSTMCell(3, use_peepholes=True, num_proj=4)
    outputs, state = tt.static_rnn(
        cell, steps(8, 2, 5, dtype=torch.float64), initial_state=cell.zero_state(2, torch.float64)
    )
    assert {leaf.dtype for leaf in tree_leaves((outputs, state, list(cell.parameters())))} == {torch.float64}


def test_double_precision_with_dropout_and_lengths() -> None:
    """float64, dropout and per-row lengths together: zeros past the length, something before it."""
    cell = tt.DropoutWrapper(tt.LSTMCell(3, use_peepholes=True, num_proj=4), 0.5, 0.8, seed=0)
    inputs = steps(8, 4, 5, dtype=torch.float64)
    outputs, _ = tt.static_rnn(cell, inputs, sequence_length=[8, 3, 1, 0], dtype=torch.float64)
    stacked = torch.stack(outputs)
    assert stacked.dtype == torch.float64
    for row, length in enumerate([8, 3, 1, 0]):
        assert not stacked[length:, row].any()
        assert stacked[:length, row].any() or not length


@pytest.mark.parametrize("shards", [2, 3])
def test_shards_do_not_change_the_result(shards: int) -> None:
    """TensorFlow could split a kernel over machines; the arguments are accepted and the values are the same."""
    options: dict[str, Any] = {"use_peepholes": True, "num_proj": 4, "input_size": 5}
    whole = tt.LSTMCell(6, **options)
    split = tt.LSTMCell(6, num_unit_shards=shards, num_proj_shards=shards, **options)
    split.load_state_dict(whole.state_dict())
    inputs = steps(8, 2, 5)
    expected = tt.static_rnn(whole, inputs, dtype=torch.float32)
    torch.testing.assert_close(tt.static_rnn(split, inputs, dtype=torch.float32), expected, **exactly)


def test_one_cell_shares_its_weights_and_another_does_not() -> None:
    """Sharing is using the same object again; a second object has weights of its own."""
    shared, other, inputs = tt.LSTMCell(3), tt.LSTMCell(3), steps(8, 2, 5)
    first, second, different = (tt.static_rnn(cell, inputs, dtype=torch.float32)[0] for cell in (shared, shared, other))
    torch.testing.assert_close(first, second, **exactly)
    assert (first[-1] != different[-1]).any()


def test_scopes_do_not_split_a_cell() -> None:
    """A cell unrolled under two scopes creates its weights once and gives the same result twice."""
    cell, inputs = tt.LSTMCell(3), steps(8, 2, 5)
    first, _ = tt.static_rnn(cell, inputs, dtype=torch.float32, scope="one")
    before = [id(parameter) for parameter in cell.parameters()]
    second, _ = tt.static_rnn(cell, inputs, dtype=torch.float32, scope="two")
    assert [id(parameter) for parameter in cell.parameters()] == before
    torch.testing.assert_close(first, second, **exactly)


# What a compiled unroll computes for all steps at once may end in another last bit for another number of steps.
@pytest.mark.parametrize(("backend", "closeness"), [("reference", exactly), ("aten", {}), ("cpu", {})])
def test_any_number_of_steps(backend: str, closeness: dict[str, float]) -> None:
    """One cell runs sequences of any length; a longer run begins with the shorter one."""
    cell, inputs = tt.LSTMCell(3), torch.randn(1, 9, 5)
    with tt.backend(backend):
        longest, _ = tt.dynamic_rnn(cell, inputs, dtype=torch.float32)
        for count in range(10):
            outputs, _ = tt.dynamic_rnn(cell, inputs[:, :count], dtype=torch.float32)
            torch.testing.assert_close(outputs, longest[:, :count], **closeness)


def stack_of_four() -> tt.MultiRNNCell:
    """Four LSTM layers, each of another width."""
    return tt.MultiRNNCell([tt.LSTMCell(width, use_peepholes=True, num_proj=width + 1) for width in (3, 5, 2, 4)])


@pytest.mark.parametrize(
    "make",
    [lambda: tt.LSTMCell(3, use_peepholes=True, num_proj=4), stack_of_four],
    ids=["one layer", "four layers"],
)
def test_static_and_dynamic_return_equal_state_tuples(make: Callable[[], Any]) -> None:
    """Outputs, and every c and h of the nested state, are the same to the bit with ragged lengths."""
    cell, inputs = make(), steps(8, 4, 5)
    lengths = torch.tensor([8, 5, 0, 1])
    static = unroll("static", cell, inputs, sequence_length=lengths, dtype=torch.float32)
    dynamic = unroll("dynamic", cell, inputs, sequence_length=lengths, dtype=torch.float32)
    torch.testing.assert_close(dynamic, static, **exactly)
    states = [dynamic[1]] if isinstance(cell, tt.LSTMCell) else dynamic[1]
    assert all(type(state) is tt.LSTMStateTuple for state in states)
    assert all(state.c is state[0] and state.h is state[1] for state in states)


@pytest.mark.parametrize("lengths", [None, [8, 0, 3, 7, 1]], ids=["full", "ragged"])
def test_static_and_dynamic_have_equal_gradients(lengths: list[int] | None) -> None:
    """Values, state and the gradients of inputs and weights agree, for all outputs and for each one alone."""
    cell = tt.LSTMCell(3, use_peepholes=True, num_proj=4, input_size=5)
    inputs = torch.randn(8, 5, 5, requires_grad=True)

    def evaluate(kind: str) -> tuple[Any, list[Any]]:
        result = unroll(kind, cell, list(inputs.unbind()), sequence_length=lengths, dtype=torch.float32)
        losses = [torch.stack(result[0]).sum(), *(output.square().sum() for output in result[0])]
        wanted = [inputs, *cell.parameters()]
        return result, [torch.autograd.grad(loss, wanted, retain_graph=True, materialize_grads=True) for loss in losses]

    torch.testing.assert_close(evaluate("dynamic"), evaluate("static"))


def test_gru_through_time_with_lengths() -> None:
    """A time-major GRU with random lengths: each row equals that row run alone to its length."""
    cell, inputs = tt.GRUCell(3), torch.randn(8, 5, 4)
    lengths = torch.randint(0, 9, (5,))
    outputs, state = tt.dynamic_rnn(cell, inputs, sequence_length=lengths, time_major=True, dtype=torch.float32)
    assert outputs.shape == (8, 5, 3)
    for row, length in enumerate(lengths.tolist()):
        alone, last = tt.dynamic_rnn(cell, inputs[:length, row : row + 1], time_major=True, dtype=torch.float32)
        torch.testing.assert_close(outputs[:length, row], alone[:, 0])
        torch.testing.assert_close(state[row], last[0])
        assert not outputs[length:, row].any()


@pytest.mark.parametrize("scope", [None, "decoder"])
def test_gru_variables_under_the_scope(scope: str | None) -> None:
    """A GRU's two kernels and biases carry TensorFlow's names under the unroll's scope."""
    cell = tt.GRUCell(3)
    tt.dynamic_rnn(cell, torch.randn(2, 4, 5), dtype=torch.float32, scope=scope)
    parts = ["gates/kernel", "gates/bias", "candidate/kernel", "candidate/bias"]
    assert list(tt.interop.tf_variables(cell)) == [f"{scope or 'rnn'}/gru_cell/{part}" for part in parts]
