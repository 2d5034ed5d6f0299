"""What TensorFlow asks of two-directional unrolls in `rnn_cell_test.py` and contrib's `rnn_test.py`, restated.

The inputs are the same at every step, and all cells of a layer hold the same weights. A backward pass over such
a sequence is the forward pass read from its end, so the two directions must be mirror images within each row's length.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from _tf_cells import reverse_rows
from torch import Tensor

import throughtime as tt

pytestmark = pytest.mark.covers("tf-tests")

T, B, I, H, P = 8, 3, 4, 3, 2  # noqa: E741
LENGTHS = [2, 3, 8]


def twins(count: int = 2, input_size: int = I, state_is_tuple: bool = True) -> list[tt.LSTMCell]:
    """Projecting LSTM cells with equal weights."""
    cells = [
        tt.LSTMCell(H, use_peepholes=True, num_proj=P, input_size=input_size, state_is_tuple=state_is_tuple)
        for _ in range(count)
    ]
    for cell in cells[1:]:
        cell.load_state_dict(cells[0].state_dict())
    return cells


def still(time_major: bool = True) -> Tensor:
    """Random rows that do not change through time."""
    frame = torch.randn(B, I)
    return frame.expand(T, B, I) if time_major else frame.unsqueeze(1).expand(B, T, I)


def assert_mirrored(forward: Tensor, backward: Tensor, lengths: list[int] | None) -> None:
    """Time-major outputs of the two directions are mirror images inside each length and zero past it."""
    for row, length in enumerate(lengths or [T] * B):
        torch.testing.assert_close(forward[:length, row], backward[:length, row].flip(0))
        assert forward[:length, row].any()
        assert not forward[length:, row].any()
        assert not backward[length:, row].any()


@pytest.mark.parametrize("lengths", [LENGTHS, None], ids=["lengths", "no lengths"])
def test_static_directions_mirror_each_other(lengths: list[int] | None) -> None:
    """static_bidirectional_rnn: halves of each output mirror each other and the two final states are equal."""
    cell_fw, cell_bw = twins()
    outputs, state_fw, state_bw = tt.static_bidirectional_rnn(
        cell_fw, cell_bw, list(still()), dtype=torch.float32, sequence_length=lengths
    )
    assert [tuple(output.shape) for output in outputs] == [(B, 2 * P)] * T
    assert_mirrored(*torch.stack(outputs).split(P, dim=2), lengths)
    torch.testing.assert_close(state_fw, state_bw)


@pytest.mark.parametrize("lengths", [LENGTHS, None], ids=["lengths", "no lengths"])
@pytest.mark.parametrize("time_major", [False, True], ids=["batch-major", "time-major"])
@pytest.mark.parametrize("state_is_tuple", [False, True], ids=["vector", "tuple"])
def test_dynamic_directions_mirror_each_other(
    state_is_tuple: bool, time_major: bool, lengths: list[int] | None
) -> None:
    """bidirectional_dynamic_rnn, in every combination of state layout, time axis and lengths."""
    cell_fw, cell_bw = twins(state_is_tuple=state_is_tuple)
    outputs, (state_fw, state_bw) = tt.bidirectional_dynamic_rnn(
        cell_fw, cell_bw, still(time_major), sequence_length=lengths, dtype=torch.float32, time_major=time_major
    )
    forward, backward = (output if time_major else output.transpose(0, 1) for output in outputs)
    assert forward.shape == backward.shape == (T, B, P)
    assert_mirrored(forward, backward, lengths)
    assert isinstance(state_fw, tt.LSTMStateTuple if state_is_tuple else Tensor)
    torch.testing.assert_close(state_fw, state_bw)


def test_backward_is_the_reversed_run() -> None:
    """On changing inputs, the backward half is a forward run of each row reversed: values and gradients."""
    cell_fw, cell_bw = tt.LSTMCell(H, input_size=I), tt.LSTMCell(H, input_size=I)
    inputs = torch.randn(T, B, I, requires_grad=True)
    options: dict[str, Any] = {"sequence_length": LENGTHS, "dtype": torch.float32, "time_major": True}
    (_, backward), (_, state) = tt.bidirectional_dynamic_rnn(cell_fw, cell_bw, inputs, **options)
    reversed_outputs, expected_state = tt.dynamic_rnn(cell_bw, reverse_rows(inputs, LENGTHS), **options)
    expected = reverse_rows(reversed_outputs, LENGTHS)
    torch.testing.assert_close((backward, state), (expected, expected_state))
    wanted = [inputs, *cell_bw.parameters()]
    torch.testing.assert_close(
        torch.autograd.grad(backward.square().sum(), wanted), torch.autograd.grad(expected.square().sum(), wanted)
    )


@pytest.mark.parametrize("unroll", ["static", "dynamic"])
@pytest.mark.parametrize("scope", [None, "encoder"])
def test_directions_have_scopes_of_their_own(unroll: str, scope: str | None) -> None:
    """The weights of the two directions are found under `fw` and `bw` of the scope, `bidirectional_rnn` by default."""
    cell_fw, cell_bw = tt.LSTMCell(H), tt.LSTMCell(H)
    if unroll == "static":
        tt.static_bidirectional_rnn(cell_fw, cell_bw, list(still()), dtype=torch.float32, scope=scope)
    else:
        tt.bidirectional_dynamic_rnn(cell_fw, cell_bw, still(), dtype=torch.float32, time_major=True, scope=scope)
    prefix = scope or "bidirectional_rnn"
    for direction, cell in (("fw", cell_fw), ("bw", cell_bw)):
        named = tt.interop.tf_variables(cell)
        assert list(named) == [f"{prefix}/{direction}/lstm_cell/{leaf}" for leaf in ("kernel", "bias")]
        assert named[f"{prefix}/{direction}/lstm_cell/kernel"] is cell.kernel


def stack(layers: int = 2) -> tuple[list[tt.LSTMCell], list[tt.LSTMCell]]:
    """Forward and backward cells of a stack, equal within each layer."""
    pairs = [twins(input_size=I if layer == 0 else 2 * P) for layer in range(layers)]
    forward, backward = zip(*pairs, strict=True)
    return list(forward), list(backward)


def run_stack(unroll: str, cells: Any, inputs: Tensor, **options: Any) -> tuple[Tensor, Any, Any]:
    """Either stacked unroll on time-major inputs; outputs come back time-major too."""
    if unroll == "static":
        outputs, fw, bw = tt.stack_bidirectional_rnn(*cells, list(inputs), dtype=torch.float32, **options)
        return torch.stack(outputs), fw, bw
    return tt.stack_bidirectional_dynamic_rnn(*cells, inputs, dtype=torch.float32, time_major=True, **options)


@pytest.mark.parametrize("unroll", ["static", "dynamic"])
@pytest.mark.parametrize("lengths", [LENGTHS, None], ids=["lengths", "no lengths"])
def test_stacked_directions_mirror_each_other(unroll: str, lengths: list[int] | None) -> None:
    """The first layer of a stack is mirrored: per layer states of both directions are equal there."""
    outputs, states_fw, states_bw = run_stack(unroll, stack(1), still(), sequence_length=lengths)
    assert outputs.shape == (T, B, 2 * P)
    assert_mirrored(*outputs.split(P, dim=2), lengths)
    torch.testing.assert_close(states_fw, states_bw)


@pytest.mark.parametrize("unroll", ["static", "dynamic"])
def test_stack_is_layer_upon_layer(unroll: str) -> None:
    """Each layer reads both directions of the one below; states come back as one tuple per direction."""
    cells, inputs = stack(3), torch.randn(T, B, I)
    outputs, states_fw, states_bw = run_stack(unroll, cells, inputs, sequence_length=LENGTHS)
    below, expected_fw, expected_bw = inputs, [], []
    for cell_fw, cell_bw in zip(*cells, strict=True):
        both, (fw, bw) = tt.bidirectional_dynamic_rnn(
            cell_fw, cell_bw, below, sequence_length=LENGTHS, dtype=torch.float32, time_major=True
        )
        below = torch.cat(both, dim=2)
        expected_fw.append(fw)
        expected_bw.append(bw)
    torch.testing.assert_close(outputs, below)
    torch.testing.assert_close((states_fw, states_bw), (tuple(expected_fw), tuple(expected_bw)))


@pytest.mark.parametrize("unroll", ["static", "dynamic"])
def test_stack_starts_from_the_given_states(unroll: str) -> None:
    """Initial states, one per layer and direction, are where the stack starts: two halves make one whole run."""
    cells, inputs = stack(), still()
    start = [cell.get_initial_state(batch_size=B, dtype=torch.float32) for cell in cells[0]]
    nudged = [tt.LSTMStateTuple(state.c + 0.5, state.h - 0.25) for state in start]
    zero, *_ = run_stack(unroll, cells, inputs, initial_states_fw=start, initial_states_bw=start)
    plain, *_ = run_stack(unroll, cells, inputs)
    moved, fw, bw = run_stack(unroll, cells, inputs, initial_states_fw=nudged, initial_states_bw=nudged)
    torch.testing.assert_close(zero, plain, rtol=0, atol=0)
    assert (moved != plain).any(dim=0).all()
    torch.testing.assert_close(fw[0], bw[0])


def test_stack_runs_batch_major_too() -> None:
    """The dynamic stack gives the same values with the time axis second."""
    cells, inputs = stack(), torch.randn(T, B, I)
    expected, *states = run_stack("dynamic", cells, inputs, sequence_length=LENGTHS)
    outputs, *others = tt.stack_bidirectional_dynamic_rnn(
        *cells, inputs.transpose(0, 1), dtype=torch.float32, sequence_length=LENGTHS
    )
    torch.testing.assert_close(outputs.transpose(0, 1), expected, rtol=0, atol=0)
    torch.testing.assert_close(others, states, rtol=0, atol=0)


@pytest.mark.parametrize("unroll", ["static", "dynamic"])
@pytest.mark.parametrize("scope", [None, "encoder"])
def test_stack_numbers_its_layers(unroll: str, scope: str | None) -> None:
    """Layer i is found under `cell_i/bidirectional_rnn` of the scope, `stack_bidirectional_rnn` by default."""
    cells = [tt.LSTMCell(H) for _ in range(2)], [tt.LSTMCell(H) for _ in range(2)]
    run_stack(unroll, cells, still(), scope=scope)
    for direction, layers in zip(("fw", "bw"), cells, strict=True):
        for i, cell in enumerate(layers):
            prefix = f"{scope or 'stack_bidirectional_rnn'}/cell_{i}/bidirectional_rnn/{direction}/lstm_cell"
            assert list(tt.interop.tf_variables(cell)) == [f"{prefix}/{leaf}" for leaf in ("kernel", "bias")]
