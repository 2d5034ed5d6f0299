"""The forms in which sequences, lengths and states come: what comes in comes out, and padding is never computed."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pack_sequence
from torch.utils import _pytree as pytree

import throughtime as tt
from compare import check_close
from descriptors import BY_NAME, DuckCell, NestCell, Pair, poisoned, random_inputs, settled
from unrolls import UNROLLS, Unroll, dynamic, jagged, packed

pytestmark = pytest.mark.covers("conformance")

F64 = torch.float64
B, T = 4, 5
LENGTHS = [3, 1, 5, 2]
WITH_EMPTY = [3, 0, 5, 2]


def unrolls(*, user_loops: bool = True, empty_sequences: bool = False) -> pytest.MarkDecorator:
    """All unrolls, or those that walk through time themselves, or those that take empty sequences."""
    chosen = [
        unroll
        for unroll in UNROLLS
        if (user_loops or unroll.name != "while_loop") and (unroll.empty_sequences or not empty_sequences)
    ]
    return pytest.mark.parametrize("unroll", chosen, ids=lambda unroll: unroll.name)


@pytest.fixture
def inputs() -> Tensor:
    return torch.randn(B, T, 3)


def gru(**options: Any) -> tt.GRUCell:
    """A cell for the inputs above."""
    return settled(tt.GRUCell(4, **options), torch.ones(1, 1, 3), torch.float32)


class TestPacked:
    @pytest.mark.parametrize(
        ("lengths", "enforce_sorted"),
        [(LENGTHS, False), (sorted(LENGTHS, reverse=True), False), (sorted(LENGTHS, reverse=True), True)],
        ids=["unsorted", "sorted", "sorted by promise"],
    )
    @pytest.mark.parametrize("time_major", [False, True])
    def test_comes_out_as_it_came_in(
        self, inputs: Tensor, lengths: list[int], enforce_sorted: bool, time_major: bool
    ) -> None:
        pack = lambda leaf: pack_padded_sequence(leaf, torch.tensor(lengths), True, enforce_sorted)  # noqa: E731
        sequences, cell = pack(inputs), gru()
        outputs, state = tt.dynamic_rnn(cell, sequences, dtype=torch.float32, time_major=time_major)
        padded, final = tt.dynamic_rnn(cell, inputs, lengths, dtype=torch.float32)
        assert isinstance(outputs, PackedSequence)
        assert all(mine is given for mine, given in zip(outputs[1:], sequences[1:], strict=True))
        torch.testing.assert_close(outputs.data, pack(padded).data)
        torch.testing.assert_close(state, final)

    def test_feeds_torchs_own_layers(self, inputs: Tensor) -> None:
        outputs, _ = tt.dynamic_rnn(gru(), pack_sequence(list(inputs), enforce_sorted=False), dtype=torch.float32)
        assert nn.GRU(4, 2)(outputs)[0].data.shape == (B * T, 2)

    def test_gradients_reach_the_rows(self) -> None:
        rows = [torch.randn(length, 3, requires_grad=True) for length in LENGTHS]
        outputs, _ = tt.dynamic_rnn(gru(), pack_sequence(rows, enforce_sorted=False), dtype=torch.float32)
        outputs.data.sum().backward()
        assert all(row.grad.all() for row in rows)

    def test_all_states(self, inputs: Tensor) -> None:
        cell = settled(tt.LSTMCell(4), inputs[:1, :1], torch.float32)
        pack = lambda leaf: pack_padded_sequence(leaf, torch.tensor(LENGTHS), True, False)  # noqa: E731
        *_, states = tt.dynamic_rnn(cell, pack(inputs), dtype=torch.float32, all_states=True)
        *_, padded = tt.dynamic_rnn(cell, inputs, LENGTHS, dtype=torch.float32, all_states=True)
        assert isinstance(states, tt.LSTMStateTuple)
        torch.testing.assert_close([leaf.data for leaf in states], [pack(leaf).data for leaf in padded])


def nested(rows: list[Tensor], **options: Any) -> Tensor:
    """Sequences one after another, without padding."""
    return torch.nested.nested_tensor(rows, layout=torch.jagged, **options)


class TestJagged:
    def test_comes_out_as_it_came_in(self, inputs: Tensor) -> None:
        rows = [row[:length] for row, length in zip(inputs, WITH_EMPTY, strict=True)]
        sequences, cell = nested(rows), gru()
        outputs, state = tt.dynamic_rnn(cell, sequences, dtype=torch.float32)
        padded, final = tt.dynamic_rnn(cell, inputs, WITH_EMPTY, dtype=torch.float32)
        assert outputs.layout is torch.jagged
        # Only sequences of the same ragged size can be joined: a residual connection must be possible.
        assert torch.cat([outputs, sequences], -1).shape[2] == 7
        for got, want, length in zip(outputs.unbind(), padded, WITH_EMPTY, strict=True):
            torch.testing.assert_close(got, want[:length])
        torch.testing.assert_close(state, final)

    def test_gradients_reach_a_jagged_leaf(self) -> None:
        sequences = nested([torch.randn(length, 3) for length in WITH_EMPTY], requires_grad=True)
        outputs, _ = tt.dynamic_rnn(gru(), sequences, dtype=torch.float32)
        outputs.values().sum().backward()
        assert sequences.grad.values().all()

    @pytest.mark.parametrize("count", [0, 3])
    def test_nothing_but_empty_sequences(self, count: int) -> None:
        sequences = torch.nested.nested_tensor_from_jagged(torch.zeros(0, 3), torch.zeros(count + 1, dtype=torch.long))
        outputs, state, states = tt.dynamic_rnn(gru(), sequences, dtype=torch.float32, all_states=True)
        assert outputs.values().shape == states.values().shape == (0, 4)
        assert state.shape == (count, 4)

    def test_holes_between_the_sequences_are_left_out(self, inputs: Tensor) -> None:
        starts, cell = torch.tensor([0, 2, 0, 1]), gru()
        sequences = torch.nested.narrow(inputs, 1, starts, torch.tensor(WITH_EMPTY), layout=torch.jagged)
        outputs, state = tt.dynamic_rnn(cell, sequences, dtype=torch.float32)
        rows = [row[start : start + length] for row, start, length in zip(inputs, starts, WITH_EMPTY, strict=True)]
        whole, final = tt.dynamic_rnn(cell, nested(rows), dtype=torch.float32)
        torch.testing.assert_close(list(outputs.unbind()), list(whole.unbind()))
        torch.testing.assert_close(state, final)

    def test_the_ragged_axis_must_be_time(self) -> None:
        sequences = nested([torch.randn(2, 3, 4), torch.randn(5, 3, 4)]).transpose(1, 2)
        with pytest.raises(ValueError, match="NestedTensor"):
            tt.dynamic_rnn(gru(), sequences, dtype=torch.float32)

    def test_all_states(self, inputs: Tensor) -> None:
        rows = [row[:length] for row, length in zip(inputs, WITH_EMPTY, strict=True)]
        cell = gru()
        outputs, _, states = tt.dynamic_rnn(cell, nested(rows), dtype=torch.float32, all_states=True)
        torch.testing.assert_close(outputs.values(), states.values())


@pytest.mark.parametrize("pad", [packed, jagged], ids=["packed", "jagged"])
def test_both_directions_and_layers_keep_the_form(inputs: Tensor, pad: Any) -> None:
    # A cell stands for the unroll: the outputs of both directions side by side, the states as a pair.
    cells = [settled(tt.GRUCell(2), torch.ones(1, 1, width), torch.float32) for width in (3, 3, 4, 4)]

    def stacked(_cell: Any, sequences: Any, lengths: Any, _state: Any, dtype: torch.dtype) -> Any:
        outputs, *states = tt.stack_bidirectional_dynamic_rnn(
            cells[::2], cells[1::2], sequences, dtype=dtype, sequence_length=lengths
        )
        return outputs, states

    padded = stacked(None, inputs, LENGTHS, None, torch.float32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tt, "dynamic_rnn", stacked)
        check_close("results", padded, pad(None, inputs, LENGTHS, None, torch.float32))


NUMPY_KINDS = [
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "float32",
    "float64",
]
TORCH_INTEGERS = [torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.uint16, torch.uint32]
TORCH_FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
LENGTH_KINDS: dict[str, Callable[[list[int]], Any]] = {
    "list": list,
    "tuple": tuple,
    "list of numpy ints": lambda lengths: list(map(np.int32, lengths)),
    "list of tensors": lambda lengths: list(map(torch.tensor, lengths)),
    "read-only array": lambda lengths: np.broadcast_to(lengths, (len(lengths),)),
    "array backwards": lambda lengths: np.array(lengths[::-1])[::-1],
    "strided tensor": lambda lengths: torch.tensor(lengths).repeat_interleave(2)[::2],
    "tensor with a gradient": lambda lengths: torch.tensor(lengths, dtype=torch.float32, requires_grad=True),
    "floats are truncated": lambda lengths: [length + 0.9 for length in lengths],
    **{f"numpy {kind}": lambda lengths, kind=kind: np.array(lengths, kind) for kind in NUMPY_KINDS},
    **{
        str(kind): lambda lengths, kind=kind: torch.tensor(lengths).to(kind)
        for kind in [*TORCH_INTEGERS, *TORCH_FLOATS]
    },
}


class TestLengths:
    @pytest.mark.parametrize("kind", LENGTH_KINDS.values(), ids=LENGTH_KINDS)
    @pytest.mark.parametrize("unroll", ["dynamic", "static", "both"])
    def test_of_any_kind(self, inputs: Tensor, kind: Callable[[list[int]], Any], unroll: str) -> None:
        cell, run = gru(), by_name(unroll)
        want, got = (run(cell, inputs, given, None, torch.float32) for given in (WITH_EMPTY, kind(WITH_EMPTY)))
        check_close("results", want, got)

    @pytest.mark.parametrize("make", [list, np.array, torch.tensor])
    def test_bools_are_zero_or_one(self, inputs: Tensor, make: Any) -> None:
        cell = gru()
        want, got = (
            dynamic(cell, inputs, lengths, None, torch.float32)
            for lengths in ([1, 0, 0, 1], make([True, False, False, True]))
        )
        check_close("results", want, got)

    def test_negative_fractions_are_zero(self, inputs: Tensor) -> None:
        outputs, _ = tt.dynamic_rnn(gru(), inputs, [-0.9, -1.5, 0.9, 0.0], dtype=torch.float32)
        assert not outputs.any()


def by_name(name: str) -> Any:
    """An unroll of the list."""
    return next(unroll.run for unroll in UNROLLS if unroll.name == name)


class TestNumpy:
    @pytest.mark.parametrize(
        "make",
        [np.array, lambda x: np.array(x[:, ::-1])[:, ::-1], lambda x: np.broadcast_to(x, x.shape), np.asfortranarray],
        ids=["plain", "backwards", "read-only", "fortran"],
    )
    @pytest.mark.parametrize("unroll", ["dynamic", "dynamic time-major", "static", "both"])
    def test_arrays_stand_for_tensors(self, inputs: Tensor, make: Any, unroll: str) -> None:
        cell, run = gru(), {"dynamic time-major": time_major, "static": static}.get(unroll, by_name(unroll))
        state = torch.randn(B, 4)
        want = by_name(unroll)(cell, inputs, WITH_EMPTY, state, torch.float32)
        got = run(cell, make(inputs.numpy()), WITH_EMPTY, state.numpy(), torch.float32)
        check_close("results", want, got)

    def test_of_another_dtype_are_not_cast(self, inputs: Tensor) -> None:
        with pytest.raises(TypeError, match="float64"):
            tt.dynamic_rnn(gru(), inputs.numpy().astype("float64"), dtype=torch.float32)


def time_major(cell: Any, array: np.ndarray, lengths: Any, state: Any, dtype: torch.dtype) -> Any:
    outputs, final = tt.dynamic_rnn(cell, array.swapaxes(0, 1), lengths, state, dtype, time_major=True)
    return outputs.transpose(0, 1), final


def static(cell: Any, array: np.ndarray, lengths: Any, state: Any, dtype: torch.dtype) -> Any:
    outputs, final = tt.static_rnn(cell, list(array.swapaxes(0, 1)), state, dtype, lengths)
    return torch.stack(outputs, 1), final


class TestStates:
    @pytest.mark.parametrize("make", [tuple, list, lambda pair: tt.LSTMStateTuple(*pair)])
    @pytest.mark.parametrize("unroll", ["dynamic", "static", "dynamic packed", "both"])
    def test_any_pair_stands_for_an_lstm_state(self, inputs: Tensor, make: Any, unroll: str) -> None:
        cell, pair = tt.LSTMCell(4), [torch.randn(B, 4), torch.randn(B, 4)]
        _, final = by_name(unroll)(cell, inputs, LENGTHS, make(pair), torch.float32)
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
        outputs, (total, time, seen) = by_name(name)(Recorder(), poisoned(inputs, real), lengths, state, F64)
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
    """Remembers how many rows each call had."""

    state_size = output_size = 3

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[int] = []

    def forward(self, inputs: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        self.rows.append(inputs.shape[0])
        return inputs.tanh(), state + inputs


class TestRows:
    @unrolls(user_loops=False)
    def test_past_their_length_are_not_computed(self, unroll: Unroll, inputs: Tensor) -> None:
        lengths = WITH_EMPTY if unroll.empty_sequences else LENGTHS
        cell = RowCounter()
        unroll.run(cell, inputs, lengths, cell.zero_state(B, torch.float32), torch.float32)
        expected = [sum(length > step for length in lengths) for step in range(max(lengths))]
        assert cell.rows == expected * (2 if unroll.name.startswith("both") else 1)

    @unrolls(empty_sequences=True)
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


class TestModule:
    def test_in_a_sequence_of_modules(self, inputs: Tensor) -> None:
        model = nn.Sequential(
            tt.RNN(tt.LSTMCell(4), returns="outputs"),
            nn.Dropout(0.0),
            tt.RNN(tt.GRUCell(2), returns="state"),
            nn.Linear(2, 1),
        )
        assert model(inputs).shape == (B, 1)
        assert sum(parameter.numel() for parameter in model.parameters()) == 7 * 16 + 16 + 6 * 6 + 6 + 3
        assert "0.cell.kernel" in model.state_dict()

    @pytest.mark.parametrize("all_states", [False, True])
    def test_returns(self, inputs: Tensor, all_states: bool) -> None:
        cell = gru()
        want = tt.dynamic_rnn(cell, inputs, LENGTHS, dtype=torch.float32, all_states=all_states)
        give = lambda returns: tt.RNN(cell, returns=returns, all_states=all_states)(inputs, LENGTHS)  # noqa: E731
        check_close("both", want, give("both"))
        check_close("outputs", want[0], give("outputs"))
        check_close("state", want[1], give("state"))

    def test_takes_its_dtype_from_the_inputs(self, inputs: Tensor) -> None:
        for dtype in (torch.float32, torch.float64, torch.bfloat16):
            assert tt.RNN(tt.GRUCell(4))(inputs.to(dtype))[0].dtype is dtype
        ids = torch.zeros(2, 3, 1, dtype=torch.long)
        assert tt.RNN(tt.EmbeddingWrapper(tt.GRUCell(4), 5, 3))(ids)[0].dtype is torch.float32
        with_dtype = tt.RNN(tt.EmbeddingWrapper(tt.GRUCell(4), 5, 3), dtype=F64)
        assert with_dtype(ids)[0].dtype is F64

    def test_shows_what_is_not_the_default(self) -> None:
        usual = repr(tt.RNN(RowCounter()))
        assert usual == "RNN(\n  (cell): RowCounter()\n)"
        options = {
            "time_major": True,
            "dtype": F64,
            "parallel_iterations": 4,
            "swap_memory": True,
            "all_states": True,
            "checkpoint_every": 2,
            "scope": "encoder",
            "returns": "state",
        }
        shown = repr(tt.RNN(RowCounter(), **options))
        assert all(f"{name}={value!r}" in shown for name, value in options.items())


class TestAutocast:
    @unrolls(user_loops=False)
    @pytest.mark.parametrize("name", ["LSTM", "BasicRNN", "nests", "OutputProjection"])
    def test_outputs_and_states_keep_the_dtype_asked_for(self, unroll: Unroll, name: str) -> None:
        case = BY_NAME[name].case(B, T, torch.float32)
        run = lambda: unroll.run(case.cell, case.inputs, LENGTHS, case.state, torch.float32)  # noqa: E731
        with torch.autocast("cpu", torch.bfloat16):
            results = run()
        exact = pytree.tree_leaves(run())
        for got, want in zip(pytree.tree_leaves(results), exact, strict=True):
            assert got.dtype is torch.float32
            check_close("results", want.bfloat16(), got.bfloat16())
        sum(leaf.sum() for leaf in pytree.tree_leaves(results)).backward()
        assert all(parameter.grad.isfinite().all() for parameter in case.cell.parameters())

    def test_is_really_used(self, inputs: Tensor) -> None:
        seen = set()

        class Spy(NestCell):
            def forward(self, inputs: Any, state: Any) -> tuple[Any, Any]:
                seen.add((inputs @ self.kernel[:3]).dtype)
                return super().forward(inputs, state)

        cell = settled(Spy(3, 2, 2), inputs[:1, :1], torch.float32)
        seen.clear()
        with torch.autocast("cpu", torch.bfloat16):
            tt.dynamic_rnn(cell, inputs, dtype=torch.float32)
        assert seen == {torch.bfloat16}


def test_parallel_iterations_and_swapping_change_nothing(inputs: Tensor) -> None:
    cell = gru()
    want = dynamic(cell, inputs, LENGTHS, None, torch.float32)
    for options in ({"parallel_iterations": count} for count in (0, 1, np.int64(7), 1000)):
        check_close("results", want, dynamic(cell, inputs, LENGTHS, None, torch.float32, **options, swap_memory=True))


def test_ids_in_the_padding_are_never_looked_up() -> None:
    cell = tt.EmbeddingWrapper(tt.GRUCell(4), 5, 3)
    ids = torch.tensor([[[1], [4], [-1]], [[2], [99], [-7]]])
    outputs, _ = tt.dynamic_rnn(cell, ids, [2, 1], dtype=torch.float32)
    assert outputs.isfinite().all()
    with pytest.raises(tt.InvalidArgumentError, match="outside of the table"):
        tt.dynamic_rnn(cell, ids, [3, 1], dtype=torch.float32)


def test_a_device_wrapper_changes_nothing_at_home(inputs: Tensor) -> None:
    cell = gru()
    wrapped = tt.DeviceWrapper(cell, "cpu")
    assert wrapped.device == torch.device("cpu")
    assert wrapped.wrapped_cell is wrapped.cell is cell
    assert list(wrapped.state_dict()) == [f"cell.{name}" for name in cell.state_dict()]
    want, got = (dynamic(one, inputs, LENGTHS, None, torch.float32) for one in (cell, wrapped))
    check_close("results", want, got)


@pytest.mark.parametrize("through", ["dynamic", "static", "build"])
def test_one_cell_in_two_layers_of_different_widths(inputs: Tensor, through: str) -> None:
    cell = tt.MultiRNNCell([tt.LSTMCell(4)] * 3)
    run = (lambda: cell.build(3)) if through == "build" else lambda: by_name(through)(cell, inputs, None, None, F64)
    right = r"MultiRNNCell\(\[LSTMCell\(4\) for _ in range\(3\)\]\)"
    with pytest.raises(ValueError, match=right) as error:
        run()
    assert "cells 0 and 1 of the MultiRNNCell are the same LSTMCell object" in str(error.value)
    assert "widths 3 and 4" in str(error.value)


def test_nests_keep_their_types() -> None:
    cell = settled(
        NestCell(Pair(1, [2]), [1, (2,)], {"b": 1, "a": Pair(1, 2)}), random_inputs(Pair(1, [2]), 1, 1, F64), F64
    )
    outputs, state = tt.dynamic_rnn(cell, random_inputs(Pair(1, [2]), 2, 3, F64), [3, 1], dtype=F64)
    assert list(outputs) == ["b", "a"]
    assert type(outputs["a"]) is Pair
    assert (type(state), type(state[1])) == (list, tuple)
