"""Writes of a cell to its arguments that a search of its code does not find, on the reference loop."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import throughtime as tt
from compare import check_close

pytestmark = pytest.mark.covers("compiler")
T, B = 5, 4


class Hidden:
    """Changes a tensor where no code of Python can be searched, from a given call on."""

    state_size = output_size = 3

    def __init__(self, first: int) -> None:
        self.first, self.calls = first, 0

    def zero_state(self, batch_size: int, dtype: torch.dtype) -> Tensor:
        return torch.zeros(batch_size, 3, dtype=dtype)

    def __call__(self, inputs: Tensor, state: Tensor) -> Any:
        # Not `+=`: the search takes that for a write.
        self.calls = self.calls + 1
        if self.calls < self.first:
            return state + inputs, state + inputs
        getattr(state, "add" + "_")(inputs)
        return state, state


def test_a_write_that_cannot_be_seen_is_noticed_at_the_first_call() -> None:
    x, state = torch.randn(B, T, 3), torch.zeros(B, 3)
    with tt.backend("reference"):
        cell = Hidden(1)
        for _ in range(2):
            outputs, last = tt.dynamic_rnn(cell, x, initial_state=state)
            check_close("sums", (x.cumsum(1), x.sum(1)), (outputs, last))
            assert not state.any()


def run_twice(cell: Any, x: Tensor) -> None:
    tt.dynamic_rnn(cell, x, dtype=torch.float32)
    tt.dynamic_rnn(cell, x, dtype=torch.float32)


@pytest.mark.parametrize("first", [2, T, T + 1])
def test_a_write_that_comes_later_is_an_error(first: int) -> None:
    message = "Hidden has changed its inputs or its state in place.*state = state.clone"
    with tt.backend("reference"), pytest.raises(RuntimeError, match=message):
        run_twice(Hidden(first), torch.randn(B, T, 3))


class HiddenInTwo(Hidden):
    """The same for a state of two tensors."""

    state_size = (3, 3)

    def zero_state(self, batch_size: int, dtype: torch.dtype) -> Any:
        return torch.zeros(batch_size, 3, dtype=dtype), torch.zeros(batch_size, 3, dtype=dtype)

    def __call__(self, inputs: Tensor, state: Any) -> Any:
        output, second = super().__call__(inputs, state[1])
        return output, (state[0] * 0.5, second)


@pytest.mark.parametrize("first", [2, T + 1])
def test_one_of_two_states_written_to(first: int) -> None:
    x = torch.randn(B, T, 3)
    with tt.backend("reference"):
        with pytest.raises(RuntimeError, match="HiddenInTwo has changed its inputs or its state"):
            run_twice(HiddenInTwo(first), x)
        outputs, (_, last) = tt.dynamic_rnn(HiddenInTwo(1), x, dtype=torch.float32)
    check_close("sums", (x.cumsum(1), x.sum(1)), (outputs, last))


def test_tensors_of_inference_mode_outside_of_it() -> None:
    """Torch does not count their versions."""
    with torch.inference_mode():
        x = torch.randn(B, T, 3)
    cell = Hidden(100)
    with tt.backend("reference"), torch.no_grad():
        for _ in range(2):
            check_close("sums", x.cumsum(1), tt.dynamic_rnn(cell, x, dtype=torch.float32)[0])


def test_a_step_that_is_replaced_is_searched_again() -> None:
    def writes(x: Tensor, h: Tensor) -> Any:
        h += x
        return h, h

    cell: Any = tt.GRUCell(3, input_size=3)
    x, state = torch.randn(B, T, 3), torch.zeros(B, 3)
    with tt.backend("reference"), torch.no_grad():
        tt.dynamic_rnn(cell, x, initial_state=state)
        cell.forward = writes
        outputs, _ = tt.dynamic_rnn(cell, x, initial_state=state)
    check_close("sums", x.cumsum(1), outputs)
    assert not state.any()
