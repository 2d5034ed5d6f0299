"""Where inputs come from: sampling, schedules, tables of embeddings."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import throughtime as tt
from throughtime import decode
from throughtime.decode.helpers._sampling import narrowed

pytestmark = pytest.mark.covers("decoding")

LOGITS = torch.log(torch.tensor([0.5, 0.25, 0.15, 0.1]))


def shares(count: int = 6000, logits: Tensor = LOGITS, **options: Any) -> Tensor:
    """How often each token is drawn."""
    helper = decode.SampleEmbeddingHelper(torch.eye(len(logits)), [0], 0, seed=0, **options)
    drawn = helper.sample(0, logits.expand(count, -1), None)
    return torch.bincount(drawn, minlength=len(logits)) / count


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [0.5, 0.25, 0.15, 0.1]),
        ({"softmax_temperature": 1e-4}, [1.0, 0.0, 0.0, 0.0]),
        ({"softmax_temperature": 1e4}, [0.25] * 4),
        ({"softmax_temperature": 0.5}, [0.25 / 0.345, 0.0625 / 0.345, 0.0225 / 0.345, 0.01 / 0.345]),
        ({"top_k": 1}, [1.0, 0.0, 0.0, 0.0]),
        ({"top_k": 2}, [2 / 3, 1 / 3, 0.0, 0.0]),
        ({"top_k": 9}, [0.5, 0.25, 0.15, 0.1]),
        ({"top_p": 0.4}, [1.0, 0.0, 0.0, 0.0]),
        ({"top_p": 0.74}, [2 / 3, 1 / 3, 0.0, 0.0]),
        ({"top_p": 0.8}, [0.5 / 0.9, 0.25 / 0.9, 0.15 / 0.9, 0.0]),
        ({"top_p": 1.0}, [0.5, 0.25, 0.15, 0.1]),
        ({"top_k": 3, "top_p": 0.6}, [2 / 3, 1 / 3, 0.0, 0.0]),
    ],
    ids=str,
)
def test_tokens_are_as_likely_as_they_should_be(options: dict[str, Any], expected: list[float]) -> None:
    found = shares(**options)
    torch.testing.assert_close(found, torch.tensor(expected), atol=0.025, rtol=0)
    assert not found[torch.tensor(expected) == 0].any()


def test_order_of_tokens_does_not_matter() -> None:
    order = torch.tensor([2, 0, 3, 1])
    found = shares(logits=LOGITS[order], top_k=3, top_p=0.8)
    torch.testing.assert_close(found, torch.tensor([0.0, 2.0, 0.0, 1.0]) / 3, atol=0.025, rtol=0)


def test_half_precision_is_sampled_from_too() -> None:
    torch.testing.assert_close(shares(logits=LOGITS.half()), LOGITS.exp(), atol=0.025, rtol=0)


def test_seeds_and_generators_decide_the_tokens() -> None:
    def drawn(**options: Any) -> list[int]:
        helper = decode.SampleEmbeddingHelper(torch.eye(4), [0], 0, **options)
        return torch.cat([helper.sample(0, LOGITS.expand(5, -1), None) for _ in range(3)]).tolist()

    assert drawn(seed=1) == drawn(seed=1) != drawn(seed=2)
    assert drawn(generator=torch.Generator().manual_seed(1)) == drawn(seed=1)
    torch.manual_seed(3)
    first = drawn()
    torch.manual_seed(3)
    assert drawn() == first


@pytest.mark.parametrize("embedding", ["table", "module", "function"])
def test_embeddings_of_every_kind(embedding: str) -> None:
    table = torch.randn(6, 3)
    module = torch.nn.Embedding.from_pretrained(table)
    given = {"table": table, "module": module, "function": lambda tokens: table[tokens]}[embedding]
    helper = decode.GreedyEmbeddingHelper(given, torch.tensor([1, 2]), torch.tensor(0))
    assert torch.equal(helper.initialize()[1], table[[1, 2]])
    _, inputs, _ = helper.next_inputs(0, None, None, torch.tensor([5, 0]))
    assert torch.equal(inputs, table[[5, 0]])


@pytest.mark.parametrize("probability", [0.3, torch.tensor(0.3), torch.tensor([0.3] * 4)], ids=["number", "()", "[B]"])
def test_schedules_take_as_many_samples_as_they_should(probability: Any) -> None:
    inputs = torch.zeros(4, 2, 3)
    embedding = decode.ScheduledEmbeddingTrainingHelper(inputs, [2] * 4, torch.eye(3), probability, scheduling_seed=0)
    output = decode.ScheduledOutputTrainingHelper(inputs, [2] * 4, probability, seed=0)
    tokens = torch.stack([embedding.sample(0, torch.zeros(4, 3), None) for _ in range(1000)])
    taken = torch.stack([output.sample(0, torch.zeros(4, 3), None) for _ in range(1000)])
    assert (tokens >= 0).float().mean().item() == pytest.approx(0.3, abs=0.03)
    assert taken.float().mean().item() == pytest.approx(0.3, abs=0.03)
    assert set(tokens.unique().tolist()) == {-1, 0, 1, 2}


def test_scheduled_sampling_trains() -> None:
    """Gradients reach the table of embeddings through tokens that were sampled, and the cell through outputs."""
    table = torch.randn(4, 3, requires_grad=True)
    cell = tt.GRUCell(4, input_size=3)
    helper = decode.ScheduledEmbeddingTrainingHelper(torch.randn(2, 5, 3), [5, 3], table, 1.0, seed=0)
    outputs, _, lengths = decode.dynamic_decode(decode.BasicDecoder(cell, helper, cell.zero_state(2, torch.float32)))
    assert lengths.tolist() == [5, 3]
    outputs.rnn_output.square().sum().backward()
    assert table.grad is not None
    assert table.grad.any()


def test_nested_inputs_and_lengths_above_the_time() -> None:
    inputs = {"a": torch.randn(2, 3, 4), "b": torch.randn(2, 3)}
    helper = decode.TrainingHelper(inputs, torch.tensor([99, 1]))
    finished, first = helper.initialize()
    assert not finished.any()
    assert torch.equal(first["a"], inputs["a"][:, 0])
    finished, following, _ = helper.next_inputs(torch.tensor(0), None, None, torch.zeros(2))
    assert finished.tolist() == [False, True]
    assert torch.equal(following["b"], torch.stack([inputs["b"][0, 1], torch.tensor(0.0)]))
    assert helper.next_inputs(2, None, None, torch.zeros(2))[0].all()


def test_of_equally_likely_tokens_the_first_are_kept() -> None:
    kept = narrowed(torch.zeros(2, 5), 2, None).isfinite()
    assert kept.tolist() == [[True, True, False, False, False]] * 2


@pytest.mark.parametrize("probability", [2, torch.tensor(-0.5), torch.tensor([0.0, 1.5]), torch.tensor(torch.nan)])
def test_no_probability(probability: Any) -> None:
    with pytest.raises(ValueError, match="`sampling_probability` is no probability: got"):
        decode.ScheduledOutputTrainingHelper(torch.zeros(2, 5, 3), [5, 2], probability)


@pytest.mark.parametrize("temperature", [None, 1e-40])
def test_nothing_to_draw_from(temperature: float | None) -> None:
    helper = decode.SampleEmbeddingHelper(torch.eye(3), torch.tensor([0, 0]), 2, softmax_temperature=temperature)
    logits = torch.full((2, 3), torch.nan) if temperature is None else torch.ones(2, 3)
    with pytest.raises(ValueError, match="there is nothing to draw from: got NaN or Inf as logits"):
        helper.sample(0, logits, None)


def test_half_precision_has_room() -> None:
    loss = decode.sequence_loss(torch.zeros(40, 2000, 5).half(), torch.ones(40, 2000).long(), torch.ones(40, 2000))
    assert loss.dtype == torch.float16
    assert abs(loss.item() - 1.609) < 1e-2
    start = torch.nn.functional.one_hot(torch.zeros(1).long(), 7).half()
    moved = decode.monotonic_attention(torch.tensor([[0.999] * 5 + [0.5] * 2]).half(), start, "parallel")
    assert moved.isfinite().all()


@pytest.mark.parametrize("target", [-100, -1, 5])
def test_targets_without_logits(target: int) -> None:
    targets = torch.tensor([[1, target]])
    with pytest.raises(ValueError, match="a class of `targets` has no score"):
        decode.sequence_loss(torch.zeros(1, 2, 5), targets, torch.ones(1, 2))
    # Where nothing counts they may be anything.
    assert decode.sequence_loss(torch.zeros(1, 2, 5), targets, torch.tensor([[1.0, 0.0]])).isfinite()
