"""The whole in ten seconds: each part once, at its smallest."""

from __future__ import annotations

import pytest
import torch

import throughtime as tt

pytestmark = pytest.mark.covers("conformance")

LENGTHS = [3, 0, 2]
CELLS = {
    "rnn": lambda: tt.BasicRNNCell(5),
    "gru": lambda: tt.GRUCell(5),
    "lstm": lambda: tt.LSTMCell(5, use_peepholes=True, num_proj=4, cell_clip=1.0),
    "stack": lambda: tt.MultiRNNCell([tt.BasicLSTMCell(5), tt.ResidualWrapper(tt.GRUCell(5))]),
}


@pytest.fixture
def inputs() -> torch.Tensor:
    return torch.randn(3, 4, 2)


@pytest.mark.parametrize("make", CELLS.values(), ids=CELLS)
def test_dynamic_is_static_and_stops_at_the_lengths(make, inputs: torch.Tensor) -> None:
    cell = make()
    outputs, state = tt.dynamic_rnn(cell, inputs, sequence_length=LENGTHS, dtype=torch.float32)
    steps, static_state = tt.static_rnn(cell, list(inputs.unbind(1)), sequence_length=LENGTHS, dtype=torch.float32)
    torch.testing.assert_close(outputs, torch.stack(steps, 1))
    torch.testing.assert_close(state, static_state)
    assert all(not row[length:].any() for row, length in zip(outputs, LENGTHS, strict=True))
    assert outputs[0, :3].all()


@pytest.mark.parametrize(
    "how", [{}, {"swap_memory": True}, {"checkpoint_every": 2}], ids=["plain", "swap", "recompute"]
)
def test_training_learns(how: dict[str, object], inputs: torch.Tensor) -> None:
    model = tt.RNN(tt.LSTMCell(8, input_size=2), returns="outputs", **how)
    target = inputs.cumsum(1).sum(-1, keepdim=True).tanh()
    optimiser = torch.optim.Adam(model.parameters(), lr=0.03)
    losses = []
    for _ in range(20):
        loss = (model(inputs).mean(-1, keepdim=True) - target).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < 0.8 * losses[0]


def test_backward_cell_sees_each_row_reversed(inputs: torch.Tensor) -> None:
    cell = tt.GRUCell(5)
    (_, backward), _ = tt.bidirectional_dynamic_rnn(
        tt.GRUCell(5), cell, inputs, sequence_length=LENGTHS, dtype=torch.float32
    )
    alone, _ = tt.dynamic_rnn(cell, inputs[2:, :2].flip(1), dtype=torch.float32)
    torch.testing.assert_close(backward[2, :2], alone[0].flip(0))


def test_while_loop_and_tensor_array() -> None:
    def body(step, squares):
        return step + 1, squares.write(step, (step * step).float())

    start = torch.tensor(0), tt.TensorArray(torch.float32, size=4)
    _, squares = tt.while_loop(lambda step, _: step < 4, body, start)
    assert squares.stack().tolist() == [0, 1, 4, 9]


def test_names_are_tensorflows(inputs: torch.Tensor) -> None:
    cell = tt.LSTMCell(5)
    tt.dynamic_rnn(cell, inputs, dtype=torch.float32)
    shapes = {name: tuple(parameter.shape) for name, parameter in tt.interop.tf_variables(cell).items()}
    assert shapes == {"rnn/lstm_cell/kernel": (7, 20), "rnn/lstm_cell/bias": (20,)}


def test_errors_say_what_to_do(inputs: torch.Tensor) -> None:
    with pytest.raises(ValueError, match="dtype"):
        tt.dynamic_rnn(tt.GRUCell(5), inputs)
