"""`raw_rnn`: the loop in the user's hands, with rows that finish one by one and are computed no further."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

import throughtime as tt
from compare import compare

pytestmark = pytest.mark.covers("loops")

F32, F64 = torch.float32, torch.float64
T, B, H = 4, 3, 5
LENGTHS = torch.tensor([4, 1, 2])


def over(
    inputs: Tensor, state: Any, lengths: Any = LENGTHS, emit: Callable[[Any], Any] = lambda output: output
) -> Callable[..., Any]:
    """The `loop_fn` that walks over `inputs` [T, B, I], from `state`, for the given lengths."""

    def loop_fn(time: Tensor, output: Any, cell_state: Any, _loop_state: Any) -> Any:
        first = output is None
        step = inputs[min(int(time), len(inputs) - 1)]
        return time >= lengths, step, state if first else cell_state, None if first else emit(output), None

    return loop_fn


def walk(cell: Any, inputs: Tensor, state: Any = None, lengths: Any = LENGTHS, **options: Any) -> tuple[Tensor, Any]:
    """The stacked emissions and the final state."""
    state = cell.zero_state(inputs.shape[1], inputs.dtype) if state is None else state
    emitted, final, _ = tt.raw_rnn(cell, over(inputs, state, lengths), **options)
    return emitted.stack(), final


@pytest.fixture
def inputs() -> Tensor:
    return torch.randn(T, B, 2)


CELLS = {
    "rnn": lambda: tt.BasicRNNCell(H, input_size=2, dtype=F64),
    "gru": lambda: tt.GRUCell(H, input_size=2, dtype=F64),
    "lstm": lambda: tt.LSTMCell(H, use_peepholes=True, num_proj=3, input_size=2, dtype=F64),
    "stack": lambda: tt.MultiRNNCell([tt.LSTMCell(H, input_size=2, dtype=F64), tt.GRUCell(3, input_size=H, dtype=F64)]),
}


@pytest.mark.parametrize("lengths", [[4, 1, 2], [4, 4, 4], [0, 4, 3]], ids=str)
@pytest.mark.parametrize("make", CELLS.values(), ids=CELLS)
def test_it_is_dynamic_rnn_with_all_gradients(make: Callable[[], Any], lengths: list[int], inputs: Tensor) -> None:
    cell = make()

    def dynamic(cell: Any, x: Tensor, state: Any) -> Any:
        return tt.dynamic_rnn(cell, x, lengths, state, time_major=True)

    def raw(cell: Any, x: Tensor, state: Any) -> Any:
        return walk(cell, x, state, torch.tensor(lengths))

    compare(dynamic, raw, cell, inputs.double(), cell.zero_state(B, F64))


class TestTheLoopFunction:
    def test_what_it_is_called_with(self, inputs: Tensor) -> None:
        calls = []
        right = over(inputs, torch.zeros(B, H))

        def loop_fn(time: Tensor, output: Any, state: Any, loop_state: Any) -> Any:
            calls.append((time, output, state, loop_state))
            return right(time, output, state, loop_state)

        tt.raw_rnn(tt.GRUCell(H), loop_fn)
        assert [int(time) for time, *_ in calls] == [0, 1, 2, 3, 4]
        assert calls[0][1:] == (None, None, None)
        assert all(isinstance(time, Tensor) and time.ndim == 0 and not time.is_floating_point() for time, *_ in calls)
        assert all(output.shape == state.shape == (B, H) for _, output, state, _ in calls[1:])

    def test_finished_rows_show_zeros_and_the_state_they_had(self, inputs: Tensor) -> None:
        seen = []
        right = over(inputs, torch.zeros(B, H))

        def loop_fn(time: Tensor, output: Any, state: Any, loop_state: Any) -> Any:
            seen.append((output, state))
            return right(time, output, state, loop_state)

        _, final, _ = tt.raw_rnn(tt.GRUCell(H), loop_fn)
        # Row 1 ends after one step: what it had then is shown from then on.
        assert all(not output[1].any() for output, _ in seen[2:])
        assert all(torch.equal(state[1], seen[1][1][1]) for _, state in seen[2:])
        assert torch.equal(final[1], seen[1][1][1])

    def test_the_output_can_be_the_next_input(self) -> None:
        """A decoder: each step is fed what the step before has put out."""
        cell = tt.GRUCell(H, input_size=H)
        start = torch.randn(B, H)

        def loop_fn(time: Tensor, output: Any, state: Any, _loop_state: Any) -> Any:
            first = output is None
            return time >= 3, start if first else output, torch.zeros(B, H) if first else state, output, None

        emitted, final, _ = tt.raw_rnn(cell, loop_fn)
        output, state = start, torch.zeros(B, H)
        for expected in emitted.stack():
            output, state = cell(output, state)
            assert torch.equal(output, expected)
        assert torch.equal(state, final)

    def test_it_may_change_the_state(self) -> None:
        """The state can be taken to what the cell never gave, here back to zeros."""
        cell = tt.BasicRNNCell(H)
        zeros, step = torch.zeros(B, H), torch.ones(B, 2)
        emitted, _, _ = tt.raw_rnn(cell, lambda time, output, *_: (time >= 3, step, zeros, output, None))
        assert torch.equal(*emitted.stack()[:2])

    def test_it_decides_when_to_stop(self) -> None:
        """A row stops when its own output says so."""
        grows = _Adds(1)
        limit = torch.tensor([[1.0], [3.0], [2.0]])

        def loop_fn(time: Tensor, output: Any, state: Any, _loop_state: Any) -> Any:
            assert time < 9, "the loop does not end"
            first = output is None
            finished = torch.zeros(B, dtype=torch.bool) if first else (output >= limit).squeeze(1)
            return finished, torch.zeros(B, 1), torch.zeros(B, 1) if first else state, output, None

        emitted, final, _ = tt.raw_rnn(grows, loop_fn)
        assert emitted.stack()[..., 0].tolist() == [[1, 1, 1], [0, 2, 2], [0, 3, 0]]
        assert final.squeeze(1).tolist() == [1, 3, 2]

    def test_a_row_that_has_finished_stays_finished(self) -> None:
        """`finished` may forget: the loop remembers."""
        flags = [[False, False], [True, False], [False, False], [False, True]]
        zeros = torch.zeros(2, 1)

        def loop_fn(time: Tensor, output: Any, state: Any, _loop_state: Any) -> Any:
            return torch.tensor(flags[time]), zeros, zeros if output is None else state, output, None

        emitted, _, _ = tt.raw_rnn(_Adds(1), loop_fn)
        assert emitted.stack()[..., 0].tolist() == [[1, 1], [0, 2], [0, 3]]

    @pytest.mark.parametrize(
        "finished", [bool, lambda flag: flag, lambda flag: flag.numpy()], ids=["bool", "tensor", "array"]
    )
    def test_one_flag_may_stand_for_all_rows(self, finished: Callable[[Tensor], Any], inputs: Tensor) -> None:
        cell = tt.GRUCell(H)
        zeros = torch.zeros(B, H)

        def loop_fn(time: Tensor, output: Any, state: Any, _loop_state: Any) -> Any:
            return finished(time >= 2), inputs[0], zeros if output is None else state, output, None

        emitted, _, _ = tt.raw_rnn(cell, loop_fn)
        assert emitted.size() == 2


class _Adds(tt.RNNCell):
    """Counts its steps in its state, and notes how many rows each of them had."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.state_size = self.output_size = size
        self.rows: list[int] = []

    def forward(self, inputs: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        self.rows.append(len(inputs))
        return state + 1, state + 1


class TestWork:
    @pytest.mark.parametrize(
        ("lengths", "rows"),
        [([4, 1, 2], [3, 2, 1, 1]), ([2, 2, 2], [3, 3]), ([0, 3, 0], [1, 1, 1]), ([0, 0, 0], [])],
        ids=str,
    )
    def test_only_rows_that_run_are_computed(self, lengths: list[int], rows: list[int], inputs: Tensor) -> None:
        cell = _Adds(H)
        emitted, final = walk(cell, inputs, lengths=torch.tensor(lengths))
        assert cell.rows == rows
        assert final[:, 0].tolist() == lengths
        assert emitted.shape == (max(lengths), B, H)

    def test_emissions_are_as_many_as_steps(self, inputs: Tensor) -> None:
        emitted, _ = walk(tt.GRUCell(H), inputs, lengths=torch.tensor([2, 1, 0]))
        assert emitted.shape == (2, B, H)
        assert not emitted[1, 1].any()
        assert not emitted[:, 2].any()

    @pytest.mark.parametrize("rows", [0, 3])
    def test_a_loop_of_no_steps(self, rows: int) -> None:
        cell = tt.GRUCell(H)
        emitted, final = walk(cell, torch.zeros(T, rows, 2), lengths=torch.zeros(rows, dtype=torch.int64))
        assert emitted.shape == (0, rows, H)
        assert torch.equal(final, torch.zeros(rows, H))
        # As after every unroll, the parameters exist.
        assert cell.built

    @pytest.mark.parametrize("poison", [float("nan"), float("inf")])
    def test_what_is_bad_in_the_padding_reaches_nothing(self, poison: float, inputs: Tensor) -> None:
        cell = tt.GRUCell(H, input_size=2)
        past = torch.arange(T)[:, None] >= LENGTHS
        poisoned = inputs.masked_fill(past[..., None], poison).requires_grad_()
        clean = inputs.clone().requires_grad_()
        results = [walk(cell, x) for x in (poisoned, clean)]
        torch.testing.assert_close(*results, rtol=0, atol=0)
        gradients = [
            torch.autograd.grad(emitted.sum() + final.sum(), [x, *cell.parameters()])
            for (emitted, final), x in zip(results, (poisoned, clean), strict=True)
        ]
        torch.testing.assert_close(*gradients, rtol=0, atol=0)
        assert not gradients[0][0][past].any()


class TestEmissions:
    def test_they_are_the_outputs_if_nothing_is_announced(self) -> None:
        cell = _Pair()
        emitted, _, _ = tt.raw_rnn(cell, over(torch.ones(T, B, 1), torch.zeros(B, 1)))
        assert type(emitted) is tuple
        assert [part.stack().shape for part in emitted] == [(T, B, 1), (T, B, 2)]

    def test_they_may_be_something_else(self, inputs: Tensor) -> None:
        cell = tt.GRUCell(H)
        announced = {"largest": torch.zeros((), dtype=torch.int64), "all": [torch.zeros(2, H)]}

        def loop_fn(time: Tensor, output: Any, state: Any, _loop_state: Any) -> Any:
            if output is None:
                return time >= LENGTHS, inputs[0], torch.zeros(B, H), announced, None
            emit = {"largest": output.argmax(1), "all": [torch.stack([output, state], 1)]}
            return time >= LENGTHS, inputs[min(int(time), T - 1)], state, emit, None

        emitted, _, _ = tt.raw_rnn(cell, loop_fn)
        outputs, _ = walk(cell, inputs)
        assert torch.equal(emitted["all"][0].stack(), torch.stack([outputs, outputs], 2))
        running = torch.arange(T)[:, None] < LENGTHS
        assert torch.equal(emitted["largest"].stack(), outputs.argmax(2) * running)

    def test_announced_or_not_no_step_has_their_shape(self) -> None:
        announced = torch.zeros(7, dtype=torch.float16)
        emitted, _, _ = tt.raw_rnn(
            tt.GRUCell(H), lambda *_: (True, torch.ones(B, 2), torch.zeros(B, H), announced, None)
        )
        assert (emitted.stack().shape, emitted.dtype) == ((0, B, 7), torch.float16)

    def test_they_can_be_read_again(self, inputs: Tensor) -> None:
        emitted, _, _ = tt.raw_rnn(tt.GRUCell(H), over(inputs, torch.zeros(B, H)))
        assert torch.equal(emitted.stack(), emitted.stack())


class _Pair(tt.RNNCell):
    """A cell with two outputs."""

    state_size, output_size = 1, (1, 2)

    def forward(self, inputs: Tensor, state: Tensor) -> tuple[Any, Any]:
        return (state, torch.cat([state, inputs], 1)), state


class TestTheLoopState:
    def run(self, first: Any, then: Callable[[Any, int], Any], inputs: Tensor) -> Any:
        right = over(inputs, torch.zeros(B, H))

        def loop_fn(time: Tensor, output: Any, state: Any, loop_state: Any) -> Any:
            *given, _ = right(time, output, state, None)
            return *given, first if output is None else then(loop_state, int(time))

        return tt.raw_rnn(tt.GRUCell(H), loop_fn)[2]

    def test_it_is_handed_on(self, inputs: Tensor) -> None:
        assert self.run((0, "any object"), lambda state, time: (state[0] + time, state[1]), inputs) == (
            10,
            "any object",
        )

    def test_none_keeps_the_last_one(self, inputs: Tensor) -> None:
        assert self.run(7, lambda *_: None, inputs) == 7

    def test_none_from_the_start_stays_none(self, inputs: Tensor) -> None:
        assert self.run(None, lambda *_: None, inputs) is None

    def test_it_may_hold_arrays(self, inputs: Tensor) -> None:
        array = tt.TensorArray(F32, size=T)
        filled = self.run(array, lambda state, time: state.write(time - 1, torch.tensor(float(time))), inputs)
        assert filled.stack().tolist() == [1, 2, 3, 4]


class TestStates:
    def test_a_plain_tuple_stands_for_a_named_one(self, inputs: Tensor) -> None:
        _, final = walk(tt.LSTMCell(H), inputs, (torch.zeros(B, H), torch.zeros(B, H)))
        assert type(final) is tt.LSTMStateTuple

    def test_a_scalar_belongs_to_no_row(self, inputs: Tensor) -> None:
        cell = _Counts()
        _, final = walk(cell, inputs, (torch.zeros(B, 1), torch.tensor(0)))
        assert int(final[1]) == T

    def test_an_array_in_the_state(self, inputs: Tensor) -> None:
        """An array has no rows to leave out: all rows run, and those that have finished do so on zeros."""
        cell = _Remembers()
        poisoned = inputs.masked_fill((torch.arange(T)[:, None] >= LENGTHS)[..., None], float("nan"))
        emitted, (memory, _) = walk(cell, poisoned, (tt.TensorArray(F32, size=T), torch.tensor(0)))
        running = (torch.arange(T)[:, None] < LENGTHS)[..., None]
        expected = torch.where(running, inputs, 0.0)
        assert torch.equal(emitted, expected)
        assert torch.equal(memory.stack(), expected)


class _Counts(tt.RNNCell):
    """A state of one vector for each row, and one number for all."""

    state_size, output_size = (1, torch.Size([])), 1

    def forward(self, inputs: Tensor, state: Any) -> tuple[Any, Any]:
        return state[0], (state[0] + 1, state[1] + 1)


class _Remembers(tt.RNNCell):
    """Keeps its inputs in a TensorArray."""

    state_size, output_size = ((), torch.Size([])), 2

    def forward(self, inputs: Tensor, state: Any) -> tuple[Any, Any]:
        memory, time = state
        return inputs, (memory.write(time, inputs), time + 1)


@pytest.mark.parametrize(
    "lengths", [torch.tensor([3, 1]), torch.tensor([0, 2])], ids=lambda lengths: str(lengths.tolist())
)
def test_gradients_of_both_orders(lengths: Tensor) -> None:
    cell = tt.BasicRNNCell(2, input_size=1, dtype=F64)

    def function(inputs: Tensor, state: Tensor, kernel: Tensor) -> tuple[Tensor, ...]:
        bound = _Bound(cell, kernel)
        return walk(bound, inputs, state, lengths)

    inputs = torch.randn(3, 2, 1, dtype=F64, requires_grad=True)
    state = torch.randn(2, 2, dtype=F64, requires_grad=True)
    kernel = cell.kernel.detach().clone().requires_grad_()
    assert gradcheck(function, (inputs, state, kernel))
    assert gradgradcheck(function, (inputs, state, kernel))


class _Bound:
    """A cell with another kernel: duck typing is enough to be a cell."""

    def __init__(self, cell: tt.BasicRNNCell, kernel: Tensor) -> None:
        self.state_size, self.output_size, self.zero_state = cell.state_size, cell.output_size, cell.zero_state
        self.call = lambda *args: torch.func.functional_call(cell, {"kernel": kernel}, args)

    def __call__(self, inputs: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        return self.call(inputs, state)


@pytest.mark.parametrize(
    "options",
    [{"swap_memory": True}, {"parallel_iterations": 1}, {"parallel_iterations": None}, {"scope": "decoder"}],
    ids=str,
)
def test_options_that_change_no_result(options: dict[str, Any], inputs: Tensor) -> None:
    cell = tt.GRUCell(H, input_size=2)
    results = [walk(cell, inputs), walk(cell, inputs, **options)]
    torch.testing.assert_close(*results, rtol=0, atol=0)
    torch.testing.assert_close(
        *(torch.autograd.grad(emitted.sum(), list(cell.parameters())) for emitted, _ in results), rtol=0, atol=0
    )


@pytest.mark.parametrize(("scope", "name"), [(None, "rnn"), ("decoder", "decoder")])
def test_the_scope_names_the_variables(scope: str | None, name: str, inputs: Tensor) -> None:
    cell = tt.BasicRNNCell(H)
    walk(cell, inputs, scope=scope)
    assert set(tt.interop.tf_variables(cell)) == {f"{name}/basic_rnn_cell/kernel", f"{name}/basic_rnn_cell/bias"}


def test_no_graph_is_recorded_without_gradients(inputs: Tensor) -> None:
    with torch.no_grad():
        emitted, final = walk(tt.GRUCell(H), inputs)
    assert not emitted.requires_grad
    assert not final.requires_grad


def looped(emit: Any, first: Any, following: Callable[[Any], Any]) -> Any:
    cell, x, lengths = tt.GRUCell(5), torch.ones(2, 3), torch.tensor([4, 2])

    def loop_fn(time: Any, output: Any, state: Any, loop_state: Any) -> Any:
        if output is None:
            return time >= lengths, x, cell.zero_state(2, torch.float32), emit, first
        return time >= lengths, x, state, output, following(loop_state)

    return tt.raw_rnn(cell, loop_fn)


def test_who_begins_without_a_loop_state_ends_without_one() -> None:
    assert looped(None, None, lambda state: torch.tensor(1) if state is None else state + 1)[2] is None


@pytest.mark.parametrize(
    ("emit", "first", "following", "error", "message"),
    [
        (
            torch.zeros(7),
            None,
            lambda state: state,
            ValueError,
            r"inconsistent shapes.*got \(2, 5\)",
        ),
        (None, torch.tensor(7), lambda state: (state, state), (TypeError, ValueError), "the loop state that `loop_fn`"),
        (None, torch.tensor(7), lambda state: state + 0.5, TypeError, "changes its dtype"),
        (None, torch.zeros(2), lambda state: torch.cat([state, state]), ValueError, "has another shape after"),
    ],
    ids=["emitted", "structure", "dtype", "shape"],
)
def test_what_is_announced_is_kept(emit: Any, first: Any, following: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        looped(emit, first, following)
