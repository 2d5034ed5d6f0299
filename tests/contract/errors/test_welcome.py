"""What looks wrong and is not: arrays, lengths and options that must be taken."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from _error_rows import B, H, I, Returning, T, X, run

import throughtime as tt

pytestmark = pytest.mark.covers("errors")

WHOLE = torch.ones(B, T, I)
ACCEPTED = {
    "numpy": WHOLE.numpy(),
    "an array that cannot be written": np.broadcast_to(np.float32(1), (B, T, I)),
    "an array with negative strides": WHOLE.numpy()[:, ::-1],
    "an array of another byte order": WHOLE.numpy().astype(">f4"),
    "a parameter": torch.nn.Parameter(WHOLE),
    "an expanded tensor": torch.ones(()).expand(B, T, I),
}


@pytest.mark.parametrize("inputs", ACCEPTED.values(), ids=ACCEPTED)
@pytest.mark.parametrize("time_major", [False, True], ids=["batch-major", "time-major"])
def test_inputs_that_are_welcome(inputs: Any, time_major: bool) -> None:
    cell = tt.GRUCell(H, input_size=I)
    expected = run(cell, WHOLE, time_major=time_major)
    torch.testing.assert_close(run(cell, inputs, time_major=time_major), expected, rtol=0, atol=0)


WELCOME_LENGTHS = {
    "a tuple": (3, 1),
    "a range": range(3, 0, -2),
    "int8": torch.tensor([3, 1], dtype=torch.int8),
    "floats, truncated": [3.9, 1.2],
    "above T": [10**12, 1],
    "far above T": torch.tensor([1e30, 1.0]),
    "beyond int64": np.array([2**63 + 5, 1], np.uint64),
    "a list of scalars": [torch.tensor(3), torch.tensor(1)],
    "an array backwards": np.array([1, 3])[::-1],
    "an array of another byte order": np.array([3, 1], ">i4"),
    "an array that cannot be written": np.broadcast_to(np.array([3, 1]), (2,)),
    "with a gradient": torch.tensor([3.0, 1.0], requires_grad=True),
}


@pytest.mark.parametrize("lengths", WELCOME_LENGTHS.values(), ids=WELCOME_LENGTHS)
def test_lengths_that_are_welcome(lengths: Any) -> None:
    cell = tt.GRUCell(H, input_size=I)
    torch.testing.assert_close(run(cell, X, lengths), run(cell, X, [3, 1]), rtol=0, atol=0)


def test_bools_are_lengths_of_zero_and_one() -> None:
    cell = tt.GRUCell(H, input_size=I)
    torch.testing.assert_close(run(cell, X, [True, False]), run(cell, X, [1, 0]), rtol=0, atol=0)


@pytest.mark.parametrize(
    "lengths", [[-5, 2], [-(10**12), 2.0], torch.tensor([-1e30, 2.0])], ids=["-5", "-1e12", "-1e30"]
)
def test_lengths_below_zero_count_as_zero(lengths: Any) -> None:
    cell = tt.GRUCell(H, input_size=I)
    torch.testing.assert_close(run(cell, X, lengths), run(cell, X, [0, 2]), rtol=0, atol=0)


OPTIONS_WELCOME = [{"parallel_iterations": value} for value in (None, 0, 1, 10**9, np.int64(4))] + [
    {"checkpoint_every": np.int64(2)},
    {"checkpoint_every": 100},
    {"scope": ""},
    {"swap_memory": np.bool_(True)},
]


@pytest.mark.parametrize("options", OPTIONS_WELCOME, ids=str)
def test_options_that_are_welcome(options: dict[str, Any]) -> None:
    cell = tt.GRUCell(H, input_size=I)
    torch.testing.assert_close(run(cell, X, **options), run(cell, X), rtol=0, atol=0)


@pytest.mark.parametrize("kind", [tuple, list], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("part", [torch.zeros(B, H), np.zeros((B, H), np.float32)], ids=["tensors", "arrays"])
def test_a_plain_sequence_stands_for_an_lstm_state(kind: type, part: Any) -> None:
    _, state = tt.dynamic_rnn(tt.LSTMCell(H), X, initial_state=kind([part, part]))
    assert type(state) is tt.LSTMStateTuple


@pytest.mark.parametrize("size", [H, np.int64(H), torch.Size([H])], ids=["int", "numpy", "torch.Size"])
def test_sizes_that_are_welcome(size: Any) -> None:
    outputs, state = run(Returning(lambda _, s: (s, s + 1), size, size), X, [3, 1])
    assert outputs.shape == (B, T, H)
    assert state[:, 0].tolist() == [3, 1]


@pytest.mark.parametrize("order", [("a", "b"), ("b", "a")], ids="".join)
def test_dicts_are_matched_by_key(order: tuple[str, str]) -> None:
    start = {"a": torch.zeros(B, 2), "b": torch.ones(B, 3)}
    cell = Returning(lambda _, s: (s["a"], {key: s[key] for key in order}), {"a": 2, "b": 3}, 2)
    _, state = run(cell, X, [3, 1], initial_state={key: start[key] for key in order})
    torch.testing.assert_close(state, start)


def test_meta_tensors_tell_shapes() -> None:
    outputs, state = run(tt.LSTMCell(H, input_size=I).to("meta"), X.to("meta"), [3, 1])
    assert outputs.shape == (B, T, H)
    assert state.c.device.type == "meta"
