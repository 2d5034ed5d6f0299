"""States and gradients through time, against a loop by hand; and the pictures of them."""

from __future__ import annotations

import io
import re

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
        # A detour, so that what is asked of h is not asked of c as well; these losses look at no outputs.
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
    # The last state is an output, too.
    assert (inside.gradients > 0).all()


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


def total(_, state) -> torch.Tensor:
    return sum(part.sum() for part in tt._pytree.flatten(state))


def test_it_starts_where_the_cell_starts() -> None:
    class Learnt(tt.GRUCell):
        def get_initial_state(self, inputs=None, batch_size=None, dtype=None):
            return torch.full((batch_size, 3), 0.7, dtype=dtype)

    cell, inputs = Learnt(3, input_size=2), torch.randn(2, 4, 2)
    outputs, _ = tt.dynamic_rnn(cell, inputs, dtype=torch.float32)
    torch.testing.assert_close(tt.train.through_time(cell, inputs).states, outputs.detach())


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(
    ("given", "means"), [([9, 2], [5, 2]), ([2.0, 1.9], [2, 1]), ([-3, 4], [0, 4]), (np.array([5, 1]), [5, 1])], ids=str
)
def test_lengths_mean_what_they_mean_in_every_unroll(given, means: list[int], reverse: bool) -> None:
    cell, inputs = tt.GRUCell(3, input_size=4), torch.randn(2, 5, 4)
    found = tt.train.through_time(cell, inputs, given, total, reverse=reverse)
    wanted = tt.train.through_time(cell, inputs, means, total, reverse=reverse)
    torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("reverse", [False, True])
def test_inputs_are_those_of_an_unroll(reverse: bool) -> None:
    """Nests, arrays and ids."""
    times, x, ids = (
        torch.rand(2, 5, 1, dtype=torch.float64).cumsum(1),
        torch.randn(2, 5, 4),
        torch.tensor([[1, 2, 0, 3, 1]] * 2),
    )
    for cell, inputs in (
        (tt.cells.PhasedLSTMCell(3), (times, x)),
        (tt.EmbeddingWrapper(tt.GRUCell(3), 5, 3), ids.unsqueeze(2)),
        (tt.GRUCell(3), x.numpy()),
    ):
        inside = tt.train.through_time(cell, inputs, [5, 2], total, reverse=reverse)
        torch_inputs = tt._pytree.map_leaves(torch.as_tensor, inputs)
        turned = tt._pytree.map_leaves(lambda leaf: leaf.flip(1), torch_inputs) if reverse else torch_inputs
        outputs, _ = tt.dynamic_rnn(cell, turned, dtype=torch.float32)
        # The first sequence is as long as the batch.
        wanted = outputs[0].flip(0) if reverse else outputs[0]
        torch.testing.assert_close(inside.states[0], wanted.detach())
        assert (inside.gradients[0] > 0).all()


class Counting(tt.RNNCell):
    """One number a row, and how many steps it took."""

    def __init__(self) -> None:
        super().__init__()
        self.state_size, self.output_size = (torch.Size([]), 1), 4

    def zero_state(self, batch_size, dtype, device=None):
        return torch.zeros(batch_size, dtype=dtype), torch.zeros(batch_size, 1, dtype=torch.int64)

    def forward(self, inputs, state):
        return inputs, (0.5 * state[0] + inputs.sum(-1), state[1] + 1)


def test_parts_of_a_state_without_a_gradient_are_left_out() -> None:
    inputs = torch.ones(1, 3, 4)
    inside = tt.train.through_time(Counting(), inputs, None, lambda _, state: state[0].sum())
    assert inside.states.tolist() == [[4.0, 6.0, 7.0]]
    assert inside.gradients.tolist() == [[0.25, 0.5, 1.0]]


def test_a_gradient_that_is_nearly_gone_is_not_gone() -> None:
    cell = tt.BasicRNNCell(1, activation=lambda x: 1e-4 * x, input_size=1)
    torch.nn.init.ones_(cell.kernel)
    inside = tt.train.through_time(cell, torch.ones(1, 8, 1), None, total)
    torch.testing.assert_close(inside.gradients[0, 0].item(), 1e-28, rtol=1e-3, atol=0)


@pytest.mark.parametrize("shape", [(0, 3, 4), (2, 0, 4), (2, 3, 4)], ids=str)
def test_without_a_step_there_is_no_gradient(shape: tuple[int, ...]) -> None:
    inside = tt.train.through_time(tt.GRUCell(3), torch.randn(shape), [0] * shape[0], total, reverse=True)
    assert inside.states.shape == (*shape[:2], 3)
    assert inside.gradients.shape == shape[:2]
    assert not inside.gradients.any()


@pytest.mark.parametrize(
    ("loss", "error", "message"),
    [
        (lambda _, state: state, ValueError, "`loss` must return one number: got shape (2, 3)"),
        (lambda *_: None, TypeError, "`loss` must return one number: got NoneType"),
        (lambda *_: 1.0, TypeError, "`loss` must return one number: got float"),
        (lambda *_: torch.tensor(1.0), ValueError, "`loss` has no gradient: got a constant"),
    ],
)
def test_a_loss_is_one_number_with_a_gradient(loss, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=re.escape(message)):
        tt.train.through_time(tt.GRUCell(3), torch.randn(2, 5, 4), None, loss)


def test_what_cannot_be_looked_at_is_said() -> None:
    packed = torch.nn.utils.rnn.pack_padded_sequence(torch.randn(2, 5, 4), [5, 2], batch_first=True)
    with pytest.raises(TypeError, match="through_time takes padded inputs: got PackedSequence"):
        tt.train.through_time(tt.GRUCell(3), packed)
    ids = torch.full((2, 5, 1), 9)
    with pytest.raises(ValueError, match="an id is outside of the table"):
        tt.train.through_time(tt.EmbeddingWrapper(tt.GRUCell(3), 5, 3), ids, None, total)
    counts = torch.zeros(2, dtype=torch.int64), torch.zeros(2, 1, dtype=torch.int64)
    with pytest.raises(ValueError, match="the state of the cell has no gradient"):
        tt.train.through_time(Counting(), torch.randn(2, 5, 4), initial_state=counts)


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


def saved(figure) -> bytes:
    file = io.BytesIO()
    figure.savefig(file, format="png")
    return file.getvalue()


def test_names_are_no_formulas() -> None:
    plots, odd = tt.train.plots, ["$a_$", r"$\foo$"]
    history = tt.train.History()
    history.epochs.append(tt.train.Epoch(1, 1, {"$$": 1.0}, {}, 1e-3, 0.1, best=True))
    for figure in (
        plots.confusion(np.eye(2), odd),
        plots.attention(np.eye(2), odd, odd),
        plots.forecast([1.0], [2.0], [3.0], name=odd[1]),
        plots.through_time(np.eye(2), labels=odd),
        plots.learning(history),
    ):
        assert saved(figure)
    labels = [label.get_text() for label in plots.confusion(np.eye(2), odd).axes[0].get_xticklabels()]
    assert labels == odd


def test_pictures_of_many_things_can_be_drawn() -> None:
    plots, many = tt.train.plots, [str(place) for place in range(3000)]
    matrix = np.eye(3000)
    matrix[7, 1999] = 5
    figure = plots.confusion(matrix, many)
    assert figure.axes[0].get_title(loc="left") == "which is taken for which: 40 of 3,000 classes"
    assert {"7", "1999"} < {label.get_text() for label in figure.axes[0].get_xticklabels()}
    for drawn in (figure, plots.attention(np.zeros((4, 3000)), many, many[:4])):
        assert max(drawn.get_size_inches()) <= 24
        assert saved(drawn)


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda plots: plots.confusion(np.eye(2), ["a", "b", "c"]), "`matrix` and `names` do not fit: got (2, 2)"),
        (lambda plots: plots.confusion([[0.5]], ["a"]), "`matrix` has values that are no counts: got 0.5"),
        (lambda plots: plots.attention(np.eye(2), list("ab"), ["A"]), "`weights` do not fit the tokens: got (2, 2)"),
        (lambda plots: plots.through_time(np.eye(2), labels=["a"]), "`labels` do not fit the steps"),
        (lambda plots: plots.through_time(np.eye(2), [1.0]), "gradient norms do not fit the states: got (1,)"),
        (lambda plots: plots.forecast([1.0], [2.0], [3.0, 4.0]), "the columns of a forecast do not fit"),
        (lambda plots: plots.lengths([]), "`lengths` are no list of lengths: got (0,)"),
    ],
)
def test_pictures_refuse_what_the_report_refuses(draw, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        draw(tt.train.plots)


def test_pictures_of_what_is_not_finite_are_drawn() -> None:
    states = np.array([[1.0, np.inf], [np.nan, 2.0]])
    assert saved(tt.train.plots.through_time(states, [np.inf, 1.0]))
    assert saved(tt.train.plots.through_time(np.full((2, 2), np.nan), [np.nan, np.nan]))


def test_pictures_take_any_tensor() -> None:
    learnt = torch.rand(3, 2, dtype=torch.bfloat16, requires_grad=True)
    assert saved(tt.train.plots.through_time(learnt, learnt[:, 0]))
    assert saved(tt.train.plots.attention(learnt, ["a", "b"], list("abc")))
    assert saved(tt.train.plots.forecast(learnt[:, 0], learnt[:, 1], learnt[:, 1]))


def test_long_names_stand_aslant_and_memory_has_its_unit() -> None:
    turned = [
        {label.get_rotation() for label in tt.train.plots.confusion(np.eye(2), names).axes[0].get_xticklabels()}
        for names in (["a", "b"], ["bearing", "overheat"])
    ]
    assert turned == [{0.0}, {45.0}]
    history = tt.train.History()
    history.steps.append(tt.train.Step(1, 1, {"loss": 1.0}, 0.5, 1e-3, 8, 60, 80, 0.01, 3 * 2**20))
    axes = tt.train.plots.cost(history).axes[2]
    assert (axes.get_ylabel(), axes.get_lines()[0].get_ydata().tolist()) == ("MiB", [3.0])


def steps_of(seconds: list[float]) -> tt.train.History:
    history = tt.train.History()
    for number, taken in enumerate(seconds, 1):
        history.steps.append(tt.train.Step(number, 1, {"loss": 1.0}, 0.5, 1e-3, 8, 60, 80, taken, 10**8))
    return history


@pytest.mark.parametrize(
    ("seconds", "title", "drawn"),
    [
        ([0.4, 0.005, 0.006, 0.004], ", without the first: 400 ms", [2, 3, 4]),
        ([0.23, 0.01, 0.22, *[0.01] * 20], ", without 2 of up to 230 ms", [2, *range(4, 24)]),
        ([0.01, 0.02, 0.015], "", [1, 2, 3]),
        ([0.4], "", [1]),
        ([0.4, 0.01], "", [1, 2]),
        ([], "", []),
    ],
)
def test_steps_that_compile_do_not_press_the_others_flat(seconds: list[float], title: str, drawn: list[int]) -> None:
    axes = tt.train.plots.cost(steps_of(seconds)).axes[0]
    assert axes.get_title(loc="left") == f"time of a step{title}"
    assert axes.get_lines()[0].get_xdata().tolist() == drawn


def test_what_came_can_be_seen() -> None:
    _, came, said, *_ = tt.train.plots.forecast(np.arange(80.0), np.arange(9.0), np.arange(9.0)).axes[0].get_lines()
    assert came.get_linewidth() == said.get_linewidth()
    assert (came.get_alpha() or 1, came.get_linestyle()) == (1, "--")


def test_there_are_no_halves_on_an_axis() -> None:
    plots, history = tt.train.plots, steps_of([0.01, 0.01, 0.01])
    for number in (1, 2):
        history.epochs.append(tt.train.Epoch(number, number, {"loss": 1.0}, {}, 1e-3, 0.1, best=True))
    figures = [plots.learning(history), plots.cost(history), plots.forecast([1.0], [2.0], [3.0]), plots.lengths([7])]
    for figure in (*figures, plots.lengths([3, 4, 4]), plots.through_time(np.eye(3), [1.0, 1.0, 1.0])):
        assert saved(figure)
        assert all(float(tick).is_integer() for axes in figure.axes for tick in axes.get_xticks())
    axes = plots.lengths([7]).axes[0]
    (bar,) = axes.patches
    assert axes.get_title(loc="left") == "1 sequence, 7 steps"
    assert bar.get_x() < 7 < bar.get_x() + bar.get_width()


def test_a_gradient_of_zero_is_a_ring_and_steps_are_named_once() -> None:
    figure = tt.train.plots.through_time(np.eye(3), [0.5, 0.2, 0.0], labels=["over", "the", "hills"])
    lower = figure.axes[-1]
    assert lower.get_title(loc="left").endswith("; a ring: 0")
    assert lower.get_lines()[1].get_xdata().tolist() == [3]
    assert saved(figure)
    assert [label.get_text() for label in lower.get_xticklabels()] == ["over", "the", "hills"]
    assert {label.get_rotation() for label in lower.get_xticklabels()} == {45.0}
    assert not any(label.get_visible() for label in figure.axes[0].get_xticklabels())
