"""TensorFlow's tests of decoders and helpers, restated."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import throughtime as tt
from throughtime import decode

pytestmark = pytest.mark.covers("tf-tests")

B, T, X, U, V = 5, 8, 7, 10, 10
LENGTHS = [3, 4, 3, 1, 0]


class Step:
    """One step of a `BasicDecoder` from its start."""

    def __init__(self, helper: decode.Helper, layer: torch.nn.Module | None = None, cell: Any = None) -> None:
        cell = tt.LSTMCell(U) if cell is None else cell
        self.decoder = decode.BasicDecoder(cell, helper, cell.zero_state(helper.batch_size, torch.float32), layer)
        self.first_finished, self.first_inputs, self.first_state = self.decoder.initialize()
        self.outputs, self.state, self.next_inputs, self.finished = self.decoder.step(
            torch.tensor(0), self.first_inputs, self.first_state
        )


@pytest.mark.parametrize("layer", [None, 6], ids=["no layer", "layer"])
def test_step_with_known_inputs(layer: int | None) -> None:
    """TrainingHelper: the next inputs are the next ones known, samples are the largest outputs, rows end by length."""
    inputs = torch.randn(B, T, X)
    step = Step(decode.TrainingHelper(inputs, LENGTHS), None if layer is None else torch.nn.Linear(U, layer))
    assert step.decoder.output_size == decode.BasicDecoderOutput(layer or U, torch.Size([]))
    assert step.decoder.output_dtype == decode.BasicDecoderOutput(torch.float32, torch.int64)
    assert step.decoder.batch_size == B
    assert step.first_finished.tolist() == [False, False, False, False, True]
    assert step.finished.tolist() == [False, False, False, True, True]
    assert step.outputs.rnn_output.shape == (B, layer or U)
    assert torch.equal(step.outputs.sample_id, step.outputs.rnn_output.argmax(1))
    assert torch.equal(step.next_inputs[:3], inputs[:3, 1])
    assert not step.next_inputs[3:].any()
    assert isinstance(step.state, tt.LSTMStateTuple)


def test_step_with_the_most_likely_token() -> None:
    """GreedyEmbeddingHelper: the embedding of the largest output comes next; the end token ends a row."""
    table, start = torch.randn(V, X), torch.randint(V, (B,))
    end = 3
    step = Step(decode.GreedyEmbeddingHelper(table, start, end))
    assert not step.first_finished.any()
    assert torch.equal(step.first_inputs, table[start])
    tokens = step.outputs.rnn_output.argmax(1)
    assert torch.equal(step.outputs.sample_id, tokens)
    assert torch.equal(step.finished, tokens == end)
    assert torch.equal(step.next_inputs, table[tokens])


def test_step_with_a_random_token() -> None:
    """SampleEmbeddingHelper: the embedding of a token drawn by its probability comes next."""
    table, start, end = torch.randn(V, X), torch.randint(V, (B,)), 3
    step = Step(decode.SampleEmbeddingHelper(table, start, end, seed=1))
    tokens = step.outputs.sample_id
    assert ((tokens >= 0) & (tokens < V)).all()
    assert torch.equal(step.finished, tokens == end)
    assert torch.equal(step.next_inputs, table[tokens])
    logits = torch.log(torch.tensor([0.1, 0.2, 0.7])).expand(4000, 3)
    drawn = decode.SampleEmbeddingHelper(torch.eye(3), [0], 0, seed=1).sample(0, logits, None)
    shares = torch.bincount(drawn, minlength=3) / 4000
    torch.testing.assert_close(shares, torch.tensor([0.1, 0.2, 0.7]), atol=0.03, rtol=0)


def test_step_with_scheduled_embeddings() -> None:
    """ScheduledEmbeddingTrainingHelper: -1 where the known input was taken, elsewhere the token's embedding."""
    inputs, table = torch.randn(B, T, X), torch.randn(V, X)
    helper = decode.ScheduledEmbeddingTrainingHelper(inputs, [3, 4, 3, 4, 0], table, 0.5, seed=1, scheduling_seed=2)
    step = Step(helper)
    tokens = step.outputs.sample_id
    taken = tokens >= 0
    assert set(taken.tolist()) == {True, False}
    assert (tokens[~taken] == -1).all()
    assert step.finished.tolist() == [False, False, False, False, True]
    running = ~step.finished
    assert torch.equal(step.next_inputs[running & taken], table[tokens[running & taken]])
    assert torch.equal(step.next_inputs[running & ~taken], inputs[running & ~taken, 1])


@pytest.mark.parametrize("probability", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("auxiliary", [False, True], ids=["", "auxiliary inputs"])
@pytest.mark.parametrize("function", [False, True], ids=["", "next_inputs_fn"])
def test_step_with_scheduled_outputs(function: bool, auxiliary: bool, probability: float) -> None:
    """ScheduledOutputTrainingHelper: an output, or a function of it, in the place of the known input."""
    inputs, more = torch.randn(B, T, U), torch.randn(B, T, 4)
    helper = decode.ScheduledOutputTrainingHelper(
        inputs,
        [3, 4, 3, 1, 0],
        probability,
        seed=3,
        next_inputs_fn=(lambda outputs: 2 * outputs) if function else None,
        auxiliary_inputs=more if auxiliary else None,
    )
    step = Step(helper)
    taken, running = step.outputs.sample_id, ~step.finished
    assert taken.dtype == torch.bool
    assert probability == 0.5 or (taken == bool(probability)).all()
    made = step.outputs.rnn_output * (2 if function else 1)
    expected = torch.where(taken.unsqueeze(1), made, inputs[:, 1])
    if auxiliary:
        expected = torch.cat([expected, more[:, 1]], 1)
        assert torch.equal(step.first_inputs[:4], torch.cat([inputs[:4, 0], more[:4, 0]], 1))
    assert torch.equal(step.next_inputs[running], expected[running])
    assert not step.next_inputs[~running].any()


def test_step_with_samples_of_the_users_own() -> None:
    """InferenceHelper with one category a row."""
    table, end = torch.randn(V, X), 3
    helper = decode.InferenceHelper(
        lambda outputs: outputs.argmax(1),
        sample_shape=[],
        sample_dtype=torch.int64,
        start_inputs=torch.zeros(B, X),
        end_fn=lambda tokens: tokens == end,
        next_inputs_fn=lambda tokens: table[tokens],
    )
    step = Step(helper)
    assert step.decoder.output_size.sample_id == torch.Size([])
    assert torch.equal(step.next_inputs, table[step.outputs.sample_id])
    assert torch.equal(step.finished, step.outputs.sample_id == end)


def test_step_with_several_labels() -> None:
    """InferenceHelper with a truth value for each label: the samples themselves, as numbers, come next."""
    end = 3
    helper = decode.InferenceHelper(
        lambda outputs: outputs > 0,
        sample_shape=[U],
        sample_dtype=torch.bool,
        start_inputs=torch.zeros(B, U),
        end_fn=lambda labels: labels[:, end],
        next_inputs_fn=lambda labels: labels.float(),
    )
    step = Step(helper)
    assert step.decoder.output_size.sample_id == torch.Size([U])
    assert step.decoder.output_dtype.sample_id == torch.bool
    assert step.outputs.sample_id.shape == (B, U)
    assert torch.equal(step.next_inputs, (step.outputs.rnn_output > 0).float())
    assert torch.equal(step.finished, step.outputs.sample_id[:, end])


@pytest.mark.parametrize("time_major", [False, True], ids=["batch-major", "time-major"])
@pytest.mark.parametrize("limit", [None, 0, 1])
def test_decoding_known_inputs(time_major: bool, limit: int | None) -> None:
    """Shapes and lengths of `dynamic_decode`, in both layouts, with and without a limit."""
    cell, inputs = tt.LSTMCell(U), torch.randn(B, T, X)
    helper = decode.TrainingHelper(inputs.transpose(0, 1) if time_major else inputs, LENGTHS, time_major=time_major)
    decoder = decode.BasicDecoder(cell, helper, cell.zero_state(B, torch.float32))
    outputs, state, lengths = decode.dynamic_decode(decoder, output_time_major=time_major, maximum_iterations=limit)
    steps = 4 if limit is None else limit
    assert outputs.rnn_output.shape == ((steps, B, U) if time_major else (B, steps, U))
    assert outputs.sample_id.shape == ((steps, B) if time_major else (B, steps))
    assert lengths.tolist() == [min(length, steps) for length in LENGTHS]
    assert isinstance(state, tt.LSTMStateTuple)


@pytest.mark.parametrize("use_lengths", [True, False], ids=["lengths", "all full"])
def test_decoding_known_inputs_is_dynamic_rnn(use_lengths: bool) -> None:
    """`dynamic_decode` with a TrainingHelper gives what `dynamic_rnn` gives, state included."""
    cell, inputs = tt.LSTMCell(U), torch.randn(B, T, X)
    lengths = LENGTHS if use_lengths else [T] * B
    state = cell.zero_state(B, torch.float32)
    decoder = decode.BasicDecoder(cell, decode.TrainingHelper(inputs, lengths), state)
    decoded, final, _ = decode.dynamic_decode(decoder, impute_finished=use_lengths)
    outputs, final_of_rnn = tt.dynamic_rnn(cell, inputs, lengths, state)
    steps = max(lengths)
    torch.testing.assert_close(decoded.rnn_output, outputs[:, :steps])
    torch.testing.assert_close(final, final_of_rnn)
    assert not outputs[:, steps:].any()
