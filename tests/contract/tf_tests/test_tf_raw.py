"""What `rnn_cell_test.py`'s RawRNNTest asks of `raw_rnn`, restated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import throughtime as tt

pytestmark = pytest.mark.covers("tf-tests")

T, B, I, H = 6, 4, 5, 3  # noqa: E741


def reader(
    cell: Any, inputs: Tensor, lengths: Tensor, emit: Callable[[Any, Any], Any] | None = None, loop: Any = None
) -> Callable[..., tuple[Any, ...]]:
    """A loop function that reads time-major inputs; `emit` and `loop` say what each step emits and carries along."""
    steps = len(inputs)

    def loop_fn(time: Any, output: Any, state: Any, loop_state: Any) -> tuple[Any, ...]:
        first = output is None
        next_state = cell.zero_state(inputs.shape[1], inputs.dtype) if first else state
        finished = torch.as_tensor(time) >= lengths
        next_input = inputs[min(int(time), steps - 1)] if steps else inputs.new_zeros(inputs.shape[1:])
        return (
            finished,
            next_input,
            next_state,
            output if emit is None else emit(time, output),
            None if loop is None else loop(time, loop_state),
        )

    return loop_fn


@pytest.mark.parametrize("lengths", [[6, 6, 6, 6], [3, 6, 0, 1]], ids=["full", "ragged"])
def test_raw_equals_dynamic(lengths: list[int]) -> None:
    """A raw loop that reads its inputs equals dynamic_rnn: outputs, state and every gradient."""
    cell = tt.LSTMCell(H, use_peepholes=True, input_size=I)
    inputs = torch.randn(T, B, I, requires_grad=True)

    def gradients(outputs: Tensor, state: Any) -> tuple[Tensor, ...]:
        loss = outputs.square().sum() + state.c.sum() + (2 * state.h).sum()
        return torch.autograd.grad(loss, [inputs, *cell.parameters()])

    emitted, state, loop_state = tt.raw_rnn(cell, reader(cell, inputs, torch.tensor(lengths)))
    outputs = emitted.stack()
    assert loop_state is None
    expected = tt.dynamic_rnn(cell, inputs, sequence_length=lengths, time_major=True, dtype=torch.float32)
    torch.testing.assert_close((outputs, state), expected)
    torch.testing.assert_close(gradients(outputs, state), gradients(*expected))


def test_raw_without_any_step() -> None:
    """Nothing to read: no step is taken, the state is the initial one, as in dynamic_rnn over zero steps."""
    cell, inputs = tt.LSTMCell(H, input_size=I), torch.empty(0, B, I)
    emitted, state, _ = tt.raw_rnn(cell, reader(cell, inputs, torch.zeros(B, dtype=torch.int64)))
    outputs = emitted.stack()
    assert outputs.shape == (0, B, H)
    expected = tt.dynamic_rnn(cell, inputs, time_major=True, dtype=torch.float32)
    torch.testing.assert_close((outputs, state), expected, rtol=0, atol=0)


def test_loop_state_is_threaded_through() -> None:
    """A tensor of the loop's own goes from call to call, and its last value comes back."""
    cell, inputs = tt.LSTMCell(H), torch.randn(T, B, I)

    def count(time: Any, loop_state: Tensor | None) -> Tensor:
        return torch.tensor([10]) if loop_state is None else loop_state + int(time)

    _, _, last = tt.raw_rnn(cell, reader(cell, inputs, torch.full((B,), T), loop=count))
    torch.testing.assert_close(last, torch.tensor([10 + sum(range(1, T + 1))]))


def test_loop_state_may_be_a_tensor_array() -> None:
    """A TensorArray rides along: each call reads the entry before and writes the next."""
    cell, inputs = tt.LSTMCell(H), torch.randn(T, B, I)

    def running_sum(time: Any, sums: tt.TensorArray | None) -> tt.TensorArray:
        if sums is None:
            start = tt.TensorArray(torch.int32, size=0, dynamic_size=True, clear_after_read=False)
            return start.write(0, torch.tensor([1], dtype=torch.int32))
        return sums.write(time, sums.read(int(time) - 1) + int(time))

    _, _, sums = tt.raw_rnn(cell, reader(cell, inputs, torch.full((B,), T), loop=running_sum))
    torch.testing.assert_close(sums.stack(), torch.tensor([[1], [2], [4], [7], [11], [16], [22]], dtype=torch.int32))


def test_emissions_need_not_look_like_the_outputs() -> None:
    """What a step emits has its own structure, shapes and integer dtypes; finished rows emit zeros."""
    cell, inputs = tt.LSTMCell(H), torch.randn(T, B, I)
    width = 7

    def emit(time: Any, output: Tensor | None) -> tuple[Tensor, Tensor]:
        rows = () if output is None else (B,)
        shapes = (*rows, 2, 3), (*rows, width)
        return torch.ones(shapes[0], dtype=torch.int32), torch.full(shapes[1], int(time), dtype=torch.int64)

    lengths = torch.tensor([T, 2, 1, 3])
    (ones, times), *_ = tt.raw_rnn(cell, reader(cell, inputs, lengths, emit=emit))
    ones, times = ones.stack(), times.stack()
    assert (ones.dtype, times.dtype) == (torch.int32, torch.int64)
    running = (torch.arange(T).unsqueeze(1) < lengths).int()
    torch.testing.assert_close(ones, running[..., None, None].expand(T, B, 2, 3))
    counted = running.long() * torch.arange(1, T + 1).unsqueeze(1)
    torch.testing.assert_close(times, counted.unsqueeze(-1).expand(T, B, width))


@pytest.mark.parametrize("scope", [None, "decoder"])
def test_raw_variables_are_named_under_the_scope(scope: str | None) -> None:
    """Weights of a raw loop carry the same names as any other unroll's."""
    cell = tt.LSTMCell(H)
    tt.raw_rnn(cell, reader(cell, torch.randn(T, B, I), torch.full((B,), T)), scope=scope)
    named = tt.interop.tf_variables(cell)
    assert list(named) == [f"{scope or 'rnn'}/lstm_cell/{leaf}" for leaf in ("kernel", "bias")]
