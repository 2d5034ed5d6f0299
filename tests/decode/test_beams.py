"""Beam search against exhaustive search, and what belongs to each beam."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from _parts import Table
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import throughtime as tt
from throughtime import decode
from throughtime.decode.decoders._beam_step import coverage_penalty, first_of_the_best

pytestmark = pytest.mark.covers("decoding")

END, START = 0, 1


def search(logits: Tensor, width: int, steps: int, rows: int = 1, **options: Any) -> tuple[Any, Any, Tensor]:
    cell = Table(logits)
    state = decode.tile_batch(cell.zero_state(rows, logits.dtype), width)
    decoder = decode.BeamSearchDecoder(
        cell, torch.eye(len(logits), dtype=logits.dtype), [START] * rows, END, state, width, **options
    )
    return decode.dynamic_decode(decoder, maximum_iterations=steps)


def every_sequence(logits: Tensor, steps: int, weight: float) -> list[tuple[float, tuple[int, ...]]]:
    """All sequences that end within `steps`, or go on for all of them, best first."""
    log_probs = torch.log_softmax(logits.double(), 1).tolist()
    found = []
    for length in range(1, steps + 1):
        for tokens in itertools.product(range(1, len(logits)), repeat=length - 1):
            ends = range(len(logits)) if length == steps else [END]
            for last in ends:
                sequence = (*tokens, last)
                total = sum(log_probs[one][two] for one, two in itertools.pairwise((START, *sequence)))
                said = length - (last == END)
                found.append((total / ((5 + said) / 6) ** weight, sequence))
    return sorted(found, key=lambda item: -item[0])


@settings(max_examples=60)
@given(st.data())
def test_a_wide_beam_finds_what_exhaustive_search_finds(data: st.DataObject) -> None:
    tokens, steps = data.draw(st.integers(2, 4)), data.draw(st.integers(1, 4))
    numbers = st.integers(-300, 300)
    flat = data.draw(st.lists(numbers, min_size=tokens**2, max_size=tokens**2, unique=True))
    logits = torch.tensor(flat, dtype=torch.float64).view(tokens, tokens) / 100
    width = tokens**steps
    outputs, state, lengths = search(logits, width, steps)
    expected = every_sequence(logits, steps, 0.0)
    for beam, (score, sequence) in enumerate(expected[: min(len(expected), width)]):
        assert state.log_probs[0, beam].item() == pytest.approx(score, abs=1e-9)
        length = int(lengths[0, beam])
        close = [other for value, other in expected if math.isclose(value, score, abs_tol=1e-9)]
        assert tuple(outputs.predicted_ids[0, :length, beam].tolist()) in close
        assert length == len(sequence) or len(close) > 1
        assert set(outputs.predicted_ids[0, length:, beam].tolist()) <= {END}


@settings(max_examples=30)
@given(st.data())
def test_scores_are_what_the_length_penalty_says(data: st.DataObject) -> None:
    tokens, steps = data.draw(st.integers(2, 4)), data.draw(st.integers(1, 4))
    weight = data.draw(st.sampled_from([0.0, 0.4, 1.0]))
    torch.manual_seed(data.draw(st.integers(0, 1000)))
    logits = torch.randn(tokens, tokens, dtype=torch.float64)
    outputs, state, lengths = search(logits, 3, steps, length_penalty_weight=weight)
    known = {sequence: score for score, sequence in every_sequence(logits, steps, weight)}
    scores = outputs.beam_search_decoder_output.scores[0, -1]
    for beam in range(3):
        if state.log_probs[0, beam].isfinite() and outputs.predicted_ids.shape[1] == steps:
            sequence = tuple(outputs.predicted_ids[0, : int(lengths[0, beam]), beam].tolist())
            # A beam that ended before the last step has been scored again with its whole length.
            whole = len(sequence) < steps
            said = len(sequence) if whole else len(sequence) - (sequence[-1] == END)
            plain = known[sequence] * ((5 + len(sequence) - (sequence[-1] == END)) / 6) ** weight
            assert scores[beam].item() == pytest.approx(plain / ((5 + said) / 6) ** weight, abs=1e-9)


def test_a_beam_of_one_is_greedy() -> None:
    torch.manual_seed(1)
    cell, table, layer = tt.LSTMCell(8), torch.randn(6, 4), torch.nn.Linear(8, 6)
    start, state = torch.randint(1, 6, (12,)), cell.zero_state(12, torch.float32)
    helper = decode.GreedyEmbeddingHelper(table, start, END)
    greedy, final, lengths = decode.dynamic_decode(
        decode.BasicDecoder(cell, helper, state, layer), maximum_iterations=9
    )
    decoder = decode.BeamSearchDecoder(cell, table, start, END, state, 1, layer)
    beam, final_of_beam, beam_lengths = decode.dynamic_decode(decoder, maximum_iterations=9)
    assert torch.equal(beam.predicted_ids.squeeze(2), greedy.sample_id)
    assert torch.equal(beam_lengths.squeeze(1), lengths)
    torch.testing.assert_close(final_of_beam.cell_state.h.squeeze(1), final.h)


@pytest.mark.parametrize("impute", [False, True])
def test_lengths_and_states_belong_to_the_beams_at_the_end(impute: bool) -> None:
    """The state counts steps: that of a beam which has ended stopped at its end, whichever beam it was then."""
    torch.manual_seed(0)
    decoder = decode.BeamSearchDecoder(
        Table(torch.randn(5, 5)), torch.eye(5), [START] * 6, END, torch.zeros(24, 1), beam_width=4
    )
    outputs, state, lengths = decode.dynamic_decode(decoder, impute_finished=impute, maximum_iterations=8)
    assert torch.equal(state.cell_state.squeeze(2).long(), lengths)
    assert len(lengths.unique()) > 2
    for row, beam in itertools.product(range(6), range(4)):
        sequence, length = outputs.predicted_ids[row, :, beam].tolist(), int(lengths[row, beam])
        assert END not in sequence[: length - 1]
        assert set(sequence[length:]) <= {END}
        assert state.finished[row, beam] == (sequence[length - 1] == END)


def test_rows_are_searched_independently() -> None:
    torch.manual_seed(2)
    cell, table, layer = tt.GRUCell(8, input_size=4), torch.randn(7, 4), torch.nn.Linear(8, 7)
    first, start = torch.randn(5, 8), torch.randint(1, 7, (5,))

    def run(rows: slice) -> Any:
        state = decode.tile_batch(first[rows], 3)
        decoder = decode.BeamSearchDecoder(cell, table, start[rows], END, state, 3, layer, length_penalty_weight=0.5)
        return decode.dynamic_decode(decoder, maximum_iterations=10)

    together, _, lengths = run(slice(None))
    for row in range(5):
        alone, _, length = run(slice(row, row + 1))
        steps = alone.predicted_ids.shape[1]
        assert torch.equal(alone.predicted_ids[0], together.predicted_ids[row, :steps])
        assert torch.equal(length[0], lengths[row])


def test_alignment_history_follows_the_final_beams() -> None:
    """The history of a final beam is where a decoder forced to say that sequence would have looked."""
    torch.manual_seed(3)
    rows, width, places = 3, 4, 5
    memory, ends = torch.randn(rows, places, 4), torch.tensor([5, 3, 2])
    mechanism = decode.BahdanauAttention(8, memory_size=4)
    cell = decode.AttentionWrapper(tt.LSTMCell(8), mechanism, 8, alignment_history=True, input_size=4)
    table, layer = torch.randn(6, 4), torch.nn.Linear(8, 6)
    mechanism.setup_memory(decode.tile_batch(memory, width), decode.tile_batch(ends, width))
    state = cell.zero_state(rows * width, torch.float32)
    decoder = decode.BeamSearchDecoder(cell, table, [START] * rows, END, state, width, layer)
    outputs, final, lengths = decode.dynamic_decode(decoder, maximum_iterations=7)
    history = final.cell_state.alignment_history.unflatten(1, (rows, width))
    parents = outputs.beam_search_decoder_output.parent_ids
    assert (parents != torch.arange(width)).any()
    for row, beam in itertools.product(range(rows), range(width)):
        length = int(lengths[row, beam])
        said = [START, *outputs.predicted_ids[row, : length - 1, beam].tolist()]
        mechanism.setup_memory(memory[row : row + 1], ends[row : row + 1])
        helper = decode.TrainingHelper(table[said].unsqueeze(0), [length])
        forced = decode.BasicDecoder(cell, helper, cell.zero_state(1, torch.float32), layer)
        _, forced_state, _ = decode.dynamic_decode(forced)
        torch.testing.assert_close(history[:length, row, beam], forced_state.alignment_history.stack()[:, 0])


def test_arrays_stay_as_they_are_if_asked() -> None:
    mechanism = decode.LuongAttention(4, torch.randn(6, 3, 2))
    cell = decode.AttentionWrapper(tt.GRUCell(4), mechanism, 4, alignment_history=True)
    state = cell.zero_state(6, torch.float32)
    decoder = decode.BeamSearchDecoder(cell, torch.randn(4, 4), [1, 1], END, state, 3, reorder_tensor_arrays=False)
    _, final, _ = decode.dynamic_decode(decoder, maximum_iterations=3)
    assert isinstance(final.cell_state.alignment_history, tt.TensorArray)


def test_coverage_counts_what_was_looked_at() -> None:
    """Logarithms of what each place got, at most 1 each; a place that got nothing at all lies past the memory's end."""
    attended = torch.tensor([[[0.5, 2.0, 0.0], [1.0, 1.0, 1.0], [0.25, 0.5, 0.0]]])
    torch.testing.assert_close(coverage_penalty(attended), torch.tensor([[math.log(0.5), 0.0, math.log(0.125)]]))


@settings(max_examples=100)
@given(st.lists(st.lists(st.integers(-3, 3), min_size=6, max_size=6), min_size=1, max_size=4), st.integers(1, 6))
def test_of_equals_the_first_wins(rows: list[list[int]], count: int) -> None:
    values, places = first_of_the_best(torch.tensor(rows, dtype=torch.float32), count)
    for row, found, where in zip(rows, values.tolist(), places.tolist(), strict=True):
        expected = sorted(range(6), key=lambda place: (-row[place], place))[:count]
        assert where == expected
        assert found == [row[place] for place in expected]


@settings(max_examples=50)
@given(st.data())
def test_gather_tree_is_a_walk_backwards(data: st.DataObject) -> None:
    steps, rows, width = (data.draw(st.integers(1, 5)) for _ in range(3))
    torch.manual_seed(data.draw(st.integers(0, 10**6)))
    ids, parents = torch.randint(4, (steps, rows, width)), torch.randint(width, (steps, rows, width))
    lengths = torch.randint(0, steps + 1, (rows,))
    found = decode.gather_tree(ids, parents, lengths, END)
    for row, beam in itertools.product(range(rows), range(width)):
        walk, place = [], beam
        for step in reversed(range(int(lengths[row]))):
            walk.append(int(ids[step, row, place]))
            place = int(parents[step, row, place])
        walk.reverse()
        walk = walk[: walk.index(END)] if END in walk else walk
        assert found[:, row, beam].tolist() == walk + [END] * (steps - len(walk))


def test_tile_batch_repeats_rows_and_leaves_the_rest() -> None:
    mechanism = decode.LuongAttention(4, torch.randn(2, 3, 2))
    cell = decode.AttentionWrapper(tt.LSTMCell(4), mechanism, alignment_history=True)
    state = decode.tile_batch(cell.zero_state(2, torch.float32), 3)
    assert state.cell_state.h.shape == (6, 4)
    assert state.time.shape == ()
    assert torch.equal(state.memory.values, mechanism.values.repeat_interleave(3, 0))
    _, state = cell(torch.randn(6, 5), state)
    assert state.alignment_history.stack().shape == (1, 6, 3)
