"""States and gradients through time, against a loop by hand; and the pictures of them."""

from __future__ import annotations

import io

import numpy as np
import pytest
import torch

import throughtime as tt

pytestmark = pytest.mark.covers("report")


def by_hand(cell, inputs: torch.Tensor, loss) -> tuple[torch.Tensor, torch.Tensor]:
    """One sequence [T, I]: every state kept with its gradient."""
    state, kept = cell.zero_state(1, inputs.dtype), []
    outputs = []
    for step in inputs:
        output, state = cell(step[None], state)
        parts = list(state) if isinstance(state, tuple) else [state]
        # A detour that the gradient of the state alone takes: outputs go their own way.
        parts = [part + torch.zeros_like(part).requires_grad_() for part in parts]
        for part in parts:
            part.retain_grad()
        kept.append(parts)
        outputs.append(output)
        state = tt.LSTMStateTuple(*parts) if isinstance(state, tuple) else parts[0]
    loss(torch.stack(outputs, 1), state).backward()
    # The cell state of the last step leads nowhere.
    gradients = [[torch.zeros_like(part) if part.grad is None else part.grad for part in parts] for parts in kept]
    norms = [torch.cat([gradient.flatten() for gradient in parts]).norm() for parts in gradients]
    return torch.cat([parts[-1] for parts in kept]).detach(), torch.stack(norms)


@pytest.mark.parametrize("make", [tt.LSTMCell, tt.GRUCell, tt.BasicRNNCell], ids=lambda make: make.__name__)
@pytest.mark.parametrize("reverse", [False, True])
def test_every_row_is_what_a_loop_by_hand_gives(make, reverse: bool) -> None:
    cell, inputs, lengths = make(5, input_size=3), torch.randn(3, 6, 3), [6, 2, 4]
    weights = torch.randn(5)

    def last(state):
        return state.h if isinstance(state, tuple) else state

    def loss(_, state):
        return (last(state) @ weights).tanh().sum()

    inside = tt.train.through_time(cell, inputs, lengths, loss, reverse=reverse)
    for row, length in enumerate(lengths):
        sequence = inputs[row, :length].flip(0) if reverse else inputs[row, :length]
        states, norms = by_hand(cell, sequence, loss)
        if reverse:
            states, norms = states.flip(0), norms.flip(0)
        torch.testing.assert_close(inside.states[row, :length], states)
        torch.testing.assert_close(inside.gradients[row, :length], norms)
        assert not inside.gradients[row, length:].any()


def test_losses_at_every_step_and_two_layers() -> None:
    cell = tt.MultiRNNCell([tt.GRUCell(4, input_size=3), tt.GRUCell(2, input_size=4)])
    inside = tt.train.through_time(cell, torch.randn(2, 5, 3), None, lambda outputs, _: outputs.square().sum())
    assert inside.states.shape == (2, 5, 2)
    # The last state leads to no output any more.
    assert not inside.gradients[:, -1].any()
    assert (inside.gradients[:, :-1] > 0).all()


def test_without_a_loss_there_are_states_alone() -> None:
    cell, inputs = tt.GRUCell(4), torch.randn(2, 5, 3)
    inside = tt.train.through_time(cell, inputs, [5, 1])
    assert inside.gradients is None
    outputs = tt.dynamic_rnn(cell, inputs, [5, 1], dtype=torch.float32)[0].detach()
    torch.testing.assert_close(inside.states[0], outputs[0])
    # Past its end a sequence keeps its state.
    torch.testing.assert_close(inside.states[1], outputs[1, :1].expand(5, 4))


def test_nothing_is_left_on_the_cell() -> None:
    cell = tt.GRUCell(4, input_size=3)
    tt.train.through_time(cell, torch.randn(2, 5, 3), None, lambda _, state: state.sum())
    assert all(parameter.grad is None for parameter in cell.parameters())


def test_a_loss_must_be_a_function() -> None:
    with pytest.raises(TypeError, match="`loss` must be callable: got 3"):
        tt.train.through_time(tt.GRUCell(4), torch.randn(2, 5, 3), None, 3)


def figures():
    history = tt.train.History()
    for number in (1, 2):
        history.steps.append(tt.train.Step(number, 1, {"loss": 1.0}, 0.5, 1e-3, 8, 60, 80, 0.01, 10**8))
        history.epochs.append(tt.train.Epoch(number, number, {"loss": 1.0}, {"loss": 2.0}, 1e-3, 0.1, best=True))
    plots = tt.train.plots
    yield "learning", plots.learning(history)
    yield "cost", plots.cost(history)
    yield "confusion", plots.confusion(np.eye(3, dtype=int), ["a", "b", "c"])
    yield "forecast", plots.forecast(torch.arange(5.0), torch.arange(2.0), torch.arange(2.0))
    yield "through_time", plots.through_time(torch.randn(6, 4), torch.rand(6), labels=list("abcdef"))
    yield "attention", plots.attention(torch.rand(2, 3), list("abc"), ["A", "B"])
    yield "lengths", plots.lengths(torch.tensor([3, 9, 4]), padding=0.1)


def test_every_picture_is_drawn() -> None:
    drawn = dict(figures())
    assert sorted(drawn) == sorted(tt.train.plots.__all__)
    for figure in drawn.values():
        file = io.BytesIO()
        figure.savefig(file, format="png")
        assert file.getvalue().startswith(b"\x89PNG")
