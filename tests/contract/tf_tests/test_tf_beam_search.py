"""TensorFlow's tests of beam search, restated; `tests/decode/test_decode_goldens.py` compares recorded numbers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import throughtime as tt
from throughtime import decode
from throughtime.decode.decoders._beam_step import best_continuations, end_only

pytestmark = pytest.mark.covers("tf-tests")


def sequences(*beams: list[int]) -> Tensor:
    """[T, 1, W] from one list a beam."""
    return torch.tensor(beams).T.unsqueeze(1)


def test_sequences_are_found_backwards() -> None:
    """`gather_tree` follows parents from the last step; past the length stands the end token."""
    ids = torch.tensor([[[1, 2, 3]], [[4, 5, 6]], [[7, 8, 9]], [[-1, -1, -1]]])
    parents = torch.tensor([[[0, 0, 0]], [[0, 1, 1]], [[2, 1, 2]], [[-1, -1, -1]]])
    found = decode.gather_tree(ids, parents, [3], end_token=10)
    assert found.squeeze(1).tolist() == [[2, 2, 2], [6, 5, 6], [7, 8, 9], [10, 10, 10]]


def test_parents_that_are_no_beams() -> None:
    """A parent outside of the beam is an InvalidArgumentError."""
    ids = torch.tensor([[[1, 2, 3]], [[4, 5, 6]], [[7, 8, 9]]])
    parents = torch.tensor([[[0, 0, 0]], [[0, -1, 1]], [[2, 1, 2]]])
    with pytest.raises(tt.InvalidArgumentError, match=r"a parent id is no beam: got -1 at step 1, expected 0 to 2"):
        decode.gather_tree(ids, parents, [3], end_token=10)


def test_random_trees_keep_their_invariants() -> None:
    """Each sequence ends at the first end token, and only there; the last step keeps its order."""
    steps, rows, width, end = 10, 15, 10, 3
    ids, parents = torch.randint(20, (steps, rows, width)), torch.randint(width, (steps, rows, width))
    lengths = torch.randint(1, steps + 1, (rows,))
    found = decode.gather_tree(ids, parents, lengths, end)
    for row in range(rows):
        for beam in range(width):
            sequence, length = found[:, row, beam].tolist(), int(lengths[row])
            over = sequence.index(end) if end in sequence else steps
            assert set(sequence[over:]) <= {end}
            assert over <= length or length == steps
            if over == length and length < steps:
                assert sequence[length - 1] == ids[length - 1, row, beam]


KEPT = {"numbers": (), "vectors": (4,), "matrices": (2, 3)}


@pytest.mark.parametrize("merged", [False, True], ids=["beams apart", "beams merged"])
@pytest.mark.parametrize("kind", KEPT)
def test_arrays_follow_the_sequences(kind: str, merged: bool) -> None:
    """`gather_tree_from_array` moves what was kept at each step as `gather_tree` moves tokens."""
    steps, rows, width = 3, 2, 3
    parents = torch.tensor([[[0, 0, 0], [0, 0, 0]], [[1, 0, 2], [2, 1, 1]], [[0, 2, 1], [1, 0, 2]]])
    kept = torch.randn(steps, rows, width, *KEPT[kind])
    array = tt.TensorArray(torch.float32, steps).unstack(kept.flatten(1, 2) if merged else kept)
    found = decode.gather_tree_from_array(array, parents, torch.full((rows, width), steps)).view(kept.shape)
    for row in range(rows):
        for beam in range(width):
            place = beam
            for step in reversed(range(steps)):
                assert torch.equal(found[step, row, beam], kept[step, row, place])
                place = int(parents[step, row, place])


def test_arrays_of_beams_that_cross() -> None:
    """Beams that cross at every step, and end at different ones: past its end a beam's values stay in place."""
    parents = torch.tensor([[[0, 0]], [[1, 0]], [[1, 0]], [[1, 0]]])
    kept = torch.tensor([[[1.0, 2.0]], [[3.0, 4.0]], [[5.0, 6.0]], [[7.0, 8.0]]])
    found = decode.gather_tree_from_array(kept, parents, torch.tensor([[4, 2]]))
    assert found[:, 0, 0].tolist() == [2.0, 3.0, 6.0, 7.0]
    assert found[:, 0, 1].tolist() == [1.0, 4.0, 6.0, 8.0]


@pytest.mark.parametrize("shape", [(3, 5), (3, 7, 2), (3,)])
def test_arrays_must_have_a_value_for_each_beam(shape: tuple[int, ...]) -> None:
    """Shapes that cannot be beams are an InvalidArgumentError."""
    parents = torch.zeros(3, 2, 3, dtype=torch.int64)
    with pytest.raises(tt.InvalidArgumentError, match="does not hold one value for each beam"):
        decode.gather_tree_from_array(torch.zeros(shape), parents, torch.full((2, 3), 3))


def test_ended_beams_only_repeat_their_end() -> None:
    """A beam that has ended goes on with the end token, for certain; the others are as they were."""
    log_probs = torch.randn(2, 3, 5)
    finished = torch.tensor([[True, False, False], [False, True, True]])
    masked = end_only(log_probs, finished, 0)
    assert torch.equal(masked[~finished], log_probs[~finished])
    lowest = torch.finfo(torch.float32).min
    assert masked[finished].tolist() == [[0.0] + [lowest] * 4] * 3


def beams(finished: list[list[bool]]) -> dict[str, Any]:
    """Two rows of three beams, five tokens, token 0 the end."""
    return {
        "log_probs": torch.log_softmax(torch.tensor([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]]), 1),
        "finished": torch.tensor(finished),
        "lengths": torch.full((2, 3), 2),
    }


def test_the_best_continuations_stay() -> None:
    """Without an end: the three best of all fifteen continuations, best first."""
    state, logits = beams([[False] * 3] * 2), torch.randn(2, 3, 5).log_softmax(2)
    step = best_continuations(*state.values(), logits, 0, 0.0, None)
    totals = (state["log_probs"].unsqueeze(2) + logits).flatten(1)
    best = totals.sort(dim=1, descending=True)
    torch.testing.assert_close(step.scores, best.values[:, :3])
    assert torch.equal(step.parents * 5 + step.tokens, best.indices[:, :3])


def test_the_best_continuations_of_an_ended_beam() -> None:
    """A beam that has ended keeps its probability, and competes with what the others go on to."""
    state, logits = beams([[False, True, False], [False, False, True]]), torch.full((2, 3, 5), 0.2).log()
    step = best_continuations(*state.values(), logits, 0, 0.0, None)
    assert (step.tokens[0, 0], step.parents[0, 0]) == (0, 1)
    torch.testing.assert_close(step.log_probs[0, 0], state["log_probs"][0, 1])


def test_more_beams_than_tokens() -> None:
    """A beam wider than the vocabulary: at the first step only as many beams as tokens are possible."""
    decoder = decode.BeamSearchDecoder(tt.GRUCell(4), torch.eye(4), [1, 1], 0, torch.zeros(16, 4), beam_width=8)
    finished, inputs, state = decoder.initialize()
    outputs, state, _, finished = decoder.step(torch.tensor(0), inputs, state)
    assert torch.isfinite(state.log_probs).sum(1).tolist() == [4, 4]
    assert sorted(outputs.predicted_ids[0, :4].tolist()) == [0, 1, 2, 3]
    assert finished[:, 4:].all()


@pytest.mark.parametrize("attention", ["none", "attention", "attention with history"])
@pytest.mark.parametrize("time_major", [False, True], ids=["batch-major", "time-major"])
def test_beam_search_end_to_end(attention: str, time_major: bool) -> None:
    """Shapes, lengths and order of a whole search, with and without attention and its history."""
    rows, width, units, tokens, limit, places = 4, 3, 8, 6, 7, 5
    table, layer = torch.randn(tokens, units), torch.nn.Linear(units, tokens)
    cell: Any = tt.LSTMCell(units)
    if attention != "none":
        memory = decode.tile_batch(torch.randn(rows, places, 4), width)
        mechanism = decode.BahdanauAttention(units, memory, decode.tile_batch(torch.tensor([5, 2, 3, 1]), width))
        cell = decode.AttentionWrapper(cell, mechanism, units, alignment_history="history" in attention)
    state = cell.zero_state(rows * width, torch.float32)
    decoder = decode.BeamSearchDecoder(cell, table, [1] * rows, 0, state, width, layer)
    outputs, final, lengths = decode.dynamic_decode(decoder, time_major, maximum_iterations=limit)
    assert isinstance(outputs, decode.FinalBeamSearchDecoderOutput)
    assert isinstance(final, decode.BeamSearchDecoderState)
    steps = outputs.predicted_ids.shape[0 if time_major else 1]
    assert outputs.predicted_ids.shape == ((steps, rows, width) if time_major else (rows, steps, width))
    assert lengths.shape == (rows, width)
    assert int(lengths.max()) == steps <= limit
    scores = final.log_probs
    assert (scores[:, :-1] >= scores[:, 1:]).all()
    if "history" in attention:
        history = final.cell_state.alignment_history
        assert history.shape == (steps, rows * width, places)
        torch.testing.assert_close(history.sum(2), torch.ones(steps, rows * width))
