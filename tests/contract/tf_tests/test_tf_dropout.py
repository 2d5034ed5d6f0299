"""What `rnn_cell_test.py`'s DropoutWrapperTest asks of dropout around a cell, restated."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from _tf_cells import EchoCell, PlusOneCell, fill_kernels, literal
from torch import Tensor, nn

import throughtime as tt

pytestmark = pytest.mark.covers("tf-tests")

NOTHING = 1e-10


def run_recorded(kernel: str, **options: Any) -> tuple[Tensor, list[Tensor]]:
    """The recorded inputs and state through an LSTM cell with simple kernels and dropout around it."""
    recorded = literal("lstm_through_time", kernel)
    cell = tt.DropoutWrapper(fill_kernels(tt.LSTMCell(3, input_size=3), kernel), **options)
    start = tt.LSTMStateTuple(*recorded.state)
    outputs, state = tt.dynamic_rnn(cell, recorded.inputs, initial_state=start, time_major=True)
    return outputs, list(state)


def assert_recorded(name: str, kernel: str, outputs: Tensor, state: list[Tensor]) -> None:
    """The outputs and the final state are those that were recorded."""
    recorded = literal(name, kernel)
    torch.testing.assert_close(outputs, recorded.output, rtol=0, atol=1e-6)
    torch.testing.assert_close(state, recorded.final_state, rtol=0, atol=1e-6)


any_kernel = pytest.mark.parametrize("kernel", ["constant", "ramp"])


@pytest.mark.parametrize("cell", [PlusOneCell(), tt.LSTMCell(4, num_proj=3)], ids=["plain object", "LSTM"])
def test_sizes_are_the_wrapped_cells(cell: Any) -> None:
    """The wrapper shows the cell inside, and has its sizes."""
    wrapper = tt.DropoutWrapper(cell)
    assert wrapper.wrapped_cell is cell
    assert wrapper.state_size == cell.state_size
    assert wrapper.output_size == cell.output_size


def test_zero_state_is_the_wrapped_cells() -> None:
    """The initial state is whatever the cell inside says it is."""

    class StartsAtSeven(PlusOneCell):
        def zero_state(self, batch_size: int, dtype: torch.dtype) -> Tensor:
            return super().zero_state(batch_size, dtype) + 7

    state = tt.DropoutWrapper(StartsAtSeven()).zero_state(2, torch.float64)
    torch.testing.assert_close(state, torch.full((2, 5), 7.0, dtype=torch.float64))


KEEP_ALL = {
    "float": lambda: 1.0,
    "int": lambda: 1,
    "tensor": lambda: torch.ones([]),
    "parameter": lambda: nn.Parameter(torch.ones([]), requires_grad=False),
}


@any_kernel
@pytest.mark.parametrize("kind", KEEP_ALL)
def test_keeping_everything_changes_nothing(kind: str, kernel: str) -> None:
    """Keeping all, as a number or a tensor, gives the bare cell's recorded outputs and state."""
    keep = KEEP_ALL[kind]()
    options = dict.fromkeys(("input_keep_prob", "output_keep_prob", "state_keep_prob"), keep)
    assert_recorded("lstm_through_time", kernel, *run_recorded(kernel, **options))


@any_kernel
def test_keeping_no_output_leaves_the_state(kernel: str) -> None:
    """All outputs are zero; the state goes on as if nothing had happened."""
    outputs, state = run_recorded(kernel, output_keep_prob=NOTHING)
    assert not outputs.any()
    assert_recorded("lstm_without_outputs", kernel, outputs, state)
    torch.testing.assert_close(state, literal("lstm_through_time", kernel).final_state, rtol=0, atol=1e-6)


@any_kernel
def test_keeping_no_state_leaves_the_memory(kernel: str) -> None:
    """An LSTM's h is dropped on its way out of each step, its memory c never is."""
    outputs, state = run_recorded(kernel, state_keep_prob=NOTHING)
    assert state[0].all()
    assert not state[1].any()
    assert_recorded("lstm_without_state", kernel, outputs, state)


@any_kernel
def test_keeping_no_input_leaves_the_recurrence(kernel: str) -> None:
    """Without inputs the cell runs on its own state, to other numbers than with them."""
    outputs, state = run_recorded(kernel, input_keep_prob=NOTHING)
    assert_recorded("lstm_without_inputs", kernel, outputs, state)
    assert (outputs - literal("lstm_through_time", kernel).output).abs().min() > 1e-3


def run_random(seed: int | None, cell: Any = None, **options: Any) -> tuple[Tensor, Any, Any]:
    """Half of everything dropped over 6 steps, 4 rows and 16 features; outputs, last state, all states."""
    cell = fill_kernels(tt.LSTMCell(16, input_size=16), 0.1) if cell is None else cell
    keep = {"input_keep_prob": 0.5, "output_keep_prob": 0.5, "state_keep_prob": 0.5} | options
    wrapped = tt.DropoutWrapper(cell, **keep, seed=seed, dtype=torch.float32, input_size=16)
    return tt.dynamic_rnn(wrapped, torch.ones(6, 4, 16), time_major=True, dtype=torch.float32, all_states=True)


@pytest.mark.parametrize("variational", [False, True], ids=["every step", "variational"])
def test_seed_decides_the_masks(variational: bool) -> None:
    """Equal seeds drop the same values, whatever else draws random numbers; another seed drops others."""
    first = run_random(7, variational_recurrent=variational)
    torch.rand(3)
    torch.testing.assert_close(run_random(7, variational_recurrent=variational), first, rtol=0, atol=0)
    assert (run_random(8, variational_recurrent=variational)[0] != first[0]).any()


def test_each_step_and_row_draws_its_own_mask() -> None:
    """Without variational dropout no two steps, and no two rows, lose the same values."""
    outputs, _, _ = run_random(7, EchoCell(16), input_keep_prob=1.0)
    masks = {tuple(mask) for mask in (outputs != 0).flatten(0, 1).tolist()}
    assert len(masks) == 6 * 4


def assert_one_mask(values: Tensor) -> None:
    """Every step and row has zeros in the same, some but not all, places."""
    kept = (values != 0).flatten(0, 1)
    assert (kept == kept[0]).all()
    assert kept[0].any()
    assert not kept[0].all()


def test_variational_output_mask_lasts_the_sequence() -> None:
    """One output mask serves every step of an unroll; state and inputs stay whole."""
    outputs, _, states = run_random(7, input_keep_prob=1.0, state_keep_prob=1.0, variational_recurrent=True)
    assert_one_mask(outputs)
    assert states.h.all()


@pytest.mark.parametrize("seed", [None, 7], ids=["unseeded", "seeded"])
def test_variational_masks_are_shared_by_steps_and_rows(seed: int | None) -> None:
    """Inputs, outputs and state each have one mask for all steps and rows; the LSTM's memory has none."""
    outputs, _, states = run_random(seed, variational_recurrent=True)
    assert_one_mask(outputs)
    assert_one_mask(states.h)
    assert states.c.all()
    seen, _, _ = run_random(seed, EchoCell(16), output_keep_prob=1.0, variational_recurrent=True)
    assert_one_mask(seen)
    torch.testing.assert_close(seen[seen != 0], torch.full_like(seen[seen != 0], 2.0))


def test_variational_masks_are_drawn_anew_for_each_sequence() -> None:
    """Two unrolls of one wrapper use two masks; of two wrappers with one seed, the same two in the same order."""

    def two_sequences() -> list[Tensor]:
        wrapped = tt.DropoutWrapper(
            EchoCell(16), output_keep_prob=0.5, variational_recurrent=True, dtype=torch.float32, seed=7
        )
        return [tt.dynamic_rnn(wrapped, torch.ones(4, 6, 16), dtype=torch.float32)[0] for _ in range(2)]

    first, second = two_sequences()
    assert (first != second).any()
    torch.testing.assert_close(two_sequences(), [first, second], rtol=0, atol=0)
