"""Teacher forcing at once is teacher forcing step by step."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from _parts import Table
from torch import Tensor, nn

import throughtime as tt
from compare import compare
from throughtime import decode
from throughtime.decode import _dynamic_decode, _teacher_forced

pytestmark = pytest.mark.covers("decoding")

B, T, X, U, V = 5, 6, 3, 4, 7
LENGTHS = [6, 0, 3, 1, 4]


class StepByStep(decode.BasicDecoder):
    """A class of its own is run step by step: what its steps do is unknown."""


class Cell(nn.Module):
    """What is compared: a cell with a layer on it, and how to decode with both."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.layer = nn.Linear(4 if kind == "attention" else U, V, dtype=torch.float64)
        self.cell = {
            "lstm": lambda: tt.LSTMCell(U, input_size=X, dtype=torch.float64),
            "stack": lambda: tt.MultiRNNCell([tt.GRUCell(U, dtype=torch.float64) for _ in range(2)], input_size=X),
            "attention": lambda: decode.AttentionWrapper(
                tt.GRUCell(U, dtype=torch.float64),
                decode.BahdanauAttention(U, memory_size=2, dtype=torch.float64),
                4,
                input_size=X,
                dtype=torch.float64,
            ),
        }[kind]()


def decoded(decoder: Any, *, time_major: bool, limit: int | None) -> Any:
    """`run(cell, inputs, state)`, with random memory from a seed where there is attention."""

    def run(model: Cell, inputs: Tensor, state: Tensor) -> Any:
        cell = model.cell
        if isinstance(cell, decode.AttentionWrapper):
            memory = torch.randn(B, 5, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
            cell.attention_mechanisms[0].setup_memory(memory * state[:, :1, None], [5, 2, 3, 4, 1])
        first = cell.zero_state(B, torch.float64)
        helper = decode.TrainingHelper(inputs, LENGTHS, time_major=time_major)
        outputs, final, lengths = decode.dynamic_decode(
            decoder(cell, helper, first, model.layer), time_major, maximum_iterations=limit
        )
        return outputs.rnn_output, outputs.sample_id, lengths, tuple(torch.utils._pytree.tree_leaves(final))

    return run


@pytest.mark.parametrize("limit", [None, 2])
@pytest.mark.parametrize("time_major", [False, True], ids=["batch-major", "time-major"])
@pytest.mark.parametrize("kind", ["lstm", "stack", "attention"])
def test_at_once_is_step_by_step(kind: str, time_major: bool, limit: int | None) -> None:
    inputs = torch.randn(T, B, X, dtype=torch.float64) if time_major else torch.randn(B, T, X, dtype=torch.float64)
    options = {"time_major": time_major, "limit": limit}
    state = torch.randn(B, U, dtype=torch.float64)
    compare(decoded(StepByStep, **options), decoded(decode.BasicDecoder, **options), Cell(kind), inputs, state)


def test_it_is_one_call_of_dynamic_rnn(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    run = _teacher_forced.dynamic_rnn
    monkeypatch.setattr(_teacher_forced, "dynamic_rnn", lambda *args, **kw: calls.append(args) or run(*args, **kw))
    cell, layer = tt.LSTMCell(U), nn.Linear(U, V)
    helper = decode.TrainingHelper(torch.randn(B, T, X), LENGTHS)
    state = cell.zero_state(B, torch.float32)
    decode.dynamic_decode(decode.BasicDecoder(cell, helper, state, layer), parallel_iterations=2)
    ((called, inputs, lengths, _, dtype, parallel, swap),) = calls
    assert isinstance(called, _teacher_forced.LayeredCell)
    assert (inputs.shape, lengths.tolist(), dtype, parallel, swap) == ((T, B, X), LENGTHS, torch.float32, 2, False)
    plan = tt.explain(called, inputs, lengths, state, time_major=True)
    assert plan.backend == "cpu"
    # The layer has left the loop: it is computed for all steps at once.
    assert "layer" in str(plan).split("after the loop")[1].split("forward,")[0]


@pytest.mark.parametrize("said", [None, _dynamic_decode.PARALLEL_ITERATIONS])
def test_the_default_of_tensorflow_leaves_the_choice_to_the_engine(
    said: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    run = _teacher_forced.dynamic_rnn
    monkeypatch.setattr(_teacher_forced, "dynamic_rnn", lambda *args, **kw: calls.append(args[5]) or run(*args, **kw))
    cell, helper = tt.GRUCell(U), decode.TrainingHelper(torch.randn(B, T, X), LENGTHS)
    decoder = decode.BasicDecoder(cell, helper, cell.zero_state(B, torch.float32))
    decode.dynamic_decode(decoder, parallel_iterations=said)
    assert calls == [None]


@pytest.mark.parametrize(
    "reason", ["class of the decoder", "class of the helper", "array in the state", "whole numbers"]
)
def test_what_only_steps_can_tell_is_run_step_by_step(reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any, **__: Any) -> None:
        raise AssertionError("this must not be run at once")

    monkeypatch.setattr(_teacher_forced, "dynamic_rnn", never)
    cell: Any = tt.GRUCell(U)
    kind, helper = decode.BasicDecoder, decode.TrainingHelper(torch.randn(B, T, X), LENGTHS)
    if reason == "class of the decoder":
        kind = StepByStep
    elif reason == "class of the helper":
        helper = type("Own", (decode.TrainingHelper,), {})(torch.randn(B, T, X), LENGTHS)
    elif reason == "array in the state":
        mechanism = decode.LuongAttention(U, torch.randn(B, 3, 2))
        cell = decode.AttentionWrapper(cell, mechanism, alignment_history=True)
    state = cell.zero_state(B, torch.float32)
    if reason == "whole numbers":
        cell, helper = Table(torch.eye(X)), decode.TrainingHelper(torch.ones(B, T, X).long(), LENGTHS)
        cell.logits = cell.logits.long()
        state = torch.zeros(B, 1, dtype=torch.int64)
    _, _, lengths = _dynamic_decode.dynamic_decode(kind(cell, helper, state))
    assert lengths.tolist() == LENGTHS
