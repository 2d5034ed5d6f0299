"""States of every kind, and the rows they belong to: past its end a row is neither computed nor changed."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

import throughtime as tt
from compare import check_close
from descriptors import BY_NAME, DuckCell, poisoned, random_inputs, settled
from unrolls import EVERY_UNROLL, Unroll, dynamic, each_unroll

pytestmark = pytest.mark.covers("conformance")

F64 = torch.float64
B, T = 4, 5
LENGTHS = [3, 1, 5, 2]
WITH_EMPTY = [3, 0, 5, 2]


@pytest.fixture
def inputs() -> Tensor:
    return torch.randn(B, T, 3)


def gru() -> tt.GRUCell:
    """A cell for the inputs above."""
    return settled(tt.GRUCell(4), torch.ones(1, 1, 3), torch.float32)


class TestStates:
    @pytest.mark.parametrize("make", [tuple, list, lambda pair: tt.LSTMStateTuple(*pair)])
    @pytest.mark.parametrize("unroll", ["dynamic", "static", "dynamic packed", "both"])
    def test_any_pair_stands_for_an_lstm_state(self, inputs: Tensor, make: Any, unroll: str) -> None:
        cell, pair = tt.LSTMCell(4), [torch.randn(B, 4), torch.randn(B, 4)]
        _, final = EVERY_UNROLL[unroll].run(cell, inputs, LENGTHS, make(pair), torch.float32)
        finals = final if unroll == "both" else [final]
        assert all(type(one) is tt.LSTMStateTuple for one in finals)

    def test_dicts_may_come_in_any_order(self) -> None:
        case = BY_NAME["dict state"].case(3, 4)
        other = OrderedDict(reversed(case.state.items()))
        want, got = (dynamic(case.cell, case.inputs, [4, 0, 2], state, F64) for state in (case.state, other))
        check_close("results", want, got)
        assert list(got[1]) == ["z", "a"]

    def test_an_expanded_state_starts_every_row(self, inputs: Tensor) -> None:
        cell, start = gru(), torch.randn(4)
        want, got = (
            dynamic(cell, inputs, WITH_EMPTY, state, torch.float32)
            for state in (start.repeat(B, 1), start.expand(B, 4))
        )
        check_close("results", want, got)

    def test_layers_may_be_ducks(self, inputs: Tensor) -> None:
        duck = settled(DuckCell(2), torch.ones(1, 1, 3), torch.float32)
        cell = tt.MultiRNNCell([tt.GRUCell(3), duck])
        outputs, state = tt.dynamic_rnn(cell, inputs, WITH_EMPTY, dtype=torch.float32)
        below, _ = tt.dynamic_rnn(cell.cells[0], inputs, WITH_EMPTY, dtype=torch.float32)
        above, final = tt.dynamic_rnn(duck, below, WITH_EMPTY, dtype=torch.float32)
        check_close("results", (above, final), (outputs, state[1]))

    def test_labels_have_a_dtype_of_their_own(self, inputs: Tensor) -> None:
        class Labels(tt.RNNCell):
            state_size, output_size = 3, torch.Size([])

            def forward(self, inputs: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
                state = state + inputs
                return state.argmax(1), state

        outputs, state = tt.dynamic_rnn(Labels(), inputs, WITH_EMPTY, torch.zeros(B, 3), torch.int64)
        assert (outputs.dtype, outputs.shape, state.dtype) == (torch.int64, (B, T), torch.float32)
        assert outputs[2].equal(inputs[2].cumsum(0).argmax(1))

    def test_a_scalar_history_is_a_vector(self) -> None:
        case = BY_NAME["integer counters"].case(2, 4)
        lengths = [2, 1]
        *_, final, states = tt.dynamic_rnn(case.cell, case.inputs, lengths, dtype=F64, all_states=True)
        assert final["calls"].tolist() == 2
        assert final["steps"].tolist() == lengths
        assert states["calls"].tolist() == [1, 2, 2, 2]
        assert states["steps"].tolist() == [[1, 2, 2, 2], [1, 1, 1, 1]]

    @pytest.mark.parametrize("time", [0, 3])
    def test_all_states_of_no_steps(self, time: int) -> None:
        case = BY_NAME["integer counters"].case(2, time)
        *_, states = tt.dynamic_rnn(case.cell, case.inputs, [0, 0], case.state, F64, all_states=True)
        assert states["h"].shape == (2, time, 4)
        assert states["h"].equal(case.state["h"].unsqueeze(1).expand(2, time, 4))
        assert states["calls"].equal(case.state["calls"].expand(time))


class Recorder(tt.RNNCell):
    """Keeps what it sees in a TensorArray: a state that is no tensor, beside one that is, beside a scalar."""

    state_size = (3, torch.Size([]), ())
    output_size = 3

    def zero_state(self, batch_size: int, dtype: torch.dtype, device: Any = None) -> Any:
        seen = tt.TensorArray(dtype, size=0, dynamic_size=True, clear_after_read=False)
        return torch.zeros(batch_size, 3, dtype=dtype), torch.tensor(0), seen

    def forward(self, inputs: Tensor, state: Any) -> tuple[Tensor, Any]:
        total, time, seen = state
        # Neither a state nor an output stays what it was, not even for inputs of zero.
        total = total + inputs + 1
        return total.cos(), (total, time + 1, seen.write(time, inputs))


class TestTensorArrayStates:
    @pytest.mark.parametrize("name", ["dynamic", "dynamic time-major", "static", "module", "raw"])
    @pytest.mark.parametrize("lengths", [None, WITH_EMPTY, [2] * B, [0] * B], ids=["none", "mixed", "equal", "zero"])
    def test_pass_through_whole(self, name: str, lengths: list[int] | None) -> None:
        inputs = random_inputs(3, B, T, F64).requires_grad_()
        real = [T] * B if lengths is None else lengths
        alive = (torch.arange(T) < torch.tensor(real)[:, None]).unsqueeze(-1)
        state = Recorder().zero_state(B, F64)
        outputs, (total, time, seen) = EVERY_UNROLL[name].run(Recorder(), poisoned(inputs, real), lengths, state, F64)
        clean = torch.where(alive, inputs, 0)
        torch.testing.assert_close(outputs, torch.where(alive, (inputs + 1).cumsum(1).cos(), 0))
        torch.testing.assert_close(total, torch.where(alive, inputs + 1, 0).sum(1))
        assert time.item() == seen.size() == max(real)
        if not max(real):
            return
        torch.testing.assert_close(seen.stack(), clean[:, : max(real)].transpose(0, 1))
        gradient = torch.autograd.grad(outputs.sum() + total.sum(), inputs)[0]
        assert gradient.isfinite().all()
        assert not gradient[~alive.squeeze(-1)].any()

    def test_in_both_directions(self) -> None:
        inputs = random_inputs(3, B, T, F64)
        (_, outputs), (_, (_, _, seen)) = tt.bidirectional_dynamic_rnn(
            Recorder(), Recorder(), poisoned(inputs, WITH_EMPTY), WITH_EMPTY, dtype=F64
        )
        for row, length in enumerate(WITH_EMPTY):
            back = inputs[row, :length].flip(0)
            torch.testing.assert_close(seen.stack()[:length, row], back)
            torch.testing.assert_close(outputs[row, :length].flip(0), (back + 1).cumsum(0).cos())
            assert not outputs[row, length:].any()


def test_a_finished_row_of_raw_rnn_is_out_of_reach(inputs: Tensor) -> None:
    """Whatever `loop_fn` makes of it, it emits zeros, keeps its state and stays finished."""
    ends, cell = torch.tensor(WITH_EMPTY), gru()

    def loop_fn(time: Tensor, output: Any, state: Any, _loop_state: Any) -> Any:
        step = inputs[:, min(int(time), T - 1)]
        if output is None:
            return time >= ends, step, torch.full((B, 4), 0.5), torch.zeros(4), None
        # Rows are finished only in the step they end: raw_rnn must remember.
        return time == ends, step, state + 1, output + 1, None

    emitted, final, _ = tt.raw_rnn(cell, loop_fn)
    outputs = emitted.stack().transpose(0, 1)
    for row, length in enumerate(WITH_EMPTY):
        state = torch.full((1, 4), 0.5)
        for step in range(length):
            output, state = cell(inputs[row : row + 1, step], state)
            torch.testing.assert_close(outputs[row, step], output[0] + 1)
            state = state + 1
        assert not outputs[row, length:].any()
        torch.testing.assert_close(final[row], state[0])


class RowCounter(tt.RNNCell):
    """Remembers how many rows each call had; since a step changes the cell, only the reference may run it."""

    state_size = output_size = 3

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[int] = []

    def forward(self, inputs: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        self.rows.append(inputs.shape[0])
        return inputs.tanh(), state + inputs


class TestRows:
    # In a while_loop every row is the user's own affair.
    @each_unroll(but="while_loop")
    def test_past_their_length_are_not_computed(self, unroll: Unroll, inputs: Tensor) -> None:
        lengths = WITH_EMPTY if unroll.empty_sequences else LENGTHS
        cell = RowCounter()
        unroll.run(cell, inputs, lengths, cell.zero_state(B, torch.float32), torch.float32)
        expected = [sum(length > step for length in lengths) for step in range(max(lengths))]
        assert cell.rows == expected * (2 if unroll.name.startswith("both") else 1)

    # torch packs no empty sequences.
    @each_unroll(but="packed")
    def test_of_empty_sequences_call_nothing(self, unroll: Unroll, inputs: Tensor) -> None:
        cell = RowCounter()
        state = torch.randn(B, 3)
        outputs, final = unroll.run(cell, inputs, [0] * B, state, torch.float32)
        assert cell.rows == []
        assert not any(leaf.any() for leaf in pytree.tree_leaves(outputs))
        assert all(leaf.equal(state) for leaf in pytree.tree_leaves(final))

    def test_are_computed_once_more_to_recompute(self, inputs: Tensor) -> None:
        cell = RowCounter()
        outputs, _ = tt.dynamic_rnn(cell, inputs.requires_grad_(), WITH_EMPTY, dtype=torch.float32, checkpoint_every=2)
        once = [3, 3, 2, 1, 1]
        assert cell.rows == once
        outputs.sum().backward()
        assert sorted(cell.rows) == sorted(once * 2)


def test_names_of_saved_states_go_by_key() -> None:
    """A dict of names in another order still names the same states."""

    class Counters(tt.RNNCell):
        state_size: ClassVar = {"one": 1, "two": 1}
        output_size = 1

        def forward(self, inputs: Tensor, state: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
            return inputs, {"two": state["two"] + 2, "one": state["one"] + 1}

    class Saver(dict[str, Tensor]):
        state = dict.__getitem__
        save_state = dict.__setitem__

    saver = Saver(first=torch.zeros(1, 1), second=torch.full((1, 1), 100.0))
    names = {"two": "second", "one": "first"}
    tt.static_state_saving_rnn(Counters(), [torch.ones(1, 1)], saver, names)
    assert (saver["first"].item(), saver["second"].item()) == (1, 102)


def test_get_initial_state_wins_over_zero_state() -> None:
    """As in TensorFlow, for cells that have both."""

    class Both:
        state_size = output_size = 1

        def get_initial_state(self, inputs: Any, batch_size: int, dtype: torch.dtype) -> Tensor:
            return torch.full((batch_size, 1), 7.0, dtype=dtype)

        def zero_state(self, batch_size: int, dtype: torch.dtype) -> Tensor:
            return torch.zeros(batch_size, 1, dtype=dtype)

        def __call__(self, inputs: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
            return inputs, state

    x, f32 = torch.ones(2, 3, 1), torch.float32
    states = [
        tt.dynamic_rnn(Both(), x, dtype=f32)[1],
        tt.static_rnn(Both(), x.unbind(1), dtype=f32)[1],
        *tt.bidirectional_dynamic_rnn(Both(), Both(), x, dtype=f32)[1],
        tt.dynamic_rnn(tt.MultiRNNCell([Both()]), x, dtype=f32)[1][0],
        tt.dynamic_rnn(tt.ResidualWrapper(Both()), x, dtype=f32)[1],
    ]
    assert all((state == 7).all() for state in states)


@pytest.mark.parametrize("time_major", [False, True])
def test_dense_inputs_are_not_copied(time_major: bool) -> None:
    """With every row alive at every step, a step sees a view of the inputs."""
    seen = []

    class Looks(tt.RNNCell):
        state_size = output_size = 3

        def forward(self, inputs: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
            seen.append(inputs.untyped_storage().data_ptr())
            return inputs, state

    cell, x = Looks(), torch.ones(2, 2, 3)
    with tt.backend("reference"):
        # The very first step of a cell has copies, by which it is found out whether it writes to them.
        tt.dynamic_rnn(cell, x, dtype=torch.float32, time_major=time_major)
        seen.clear()
        for lengths in (None, [2, 2]):
            tt.dynamic_rnn(cell, x, lengths, dtype=torch.float32, time_major=time_major)
    assert seen == [x.untyped_storage().data_ptr()] * 4
