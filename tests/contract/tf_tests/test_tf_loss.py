"""TensorFlow's tests of `sequence_loss`, restated."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from throughtime import decode

pytestmark = pytest.mark.covers("tf-tests")

B, T, V = 2, 3, 5
# All logits of a step are equal, so every token costs the logarithm of their number.
EACH = math.log(V)
AVERAGE, SUM = ("average_across_timesteps", "average_across_batch"), ("sum_over_timesteps", "sum_over_batch")


def problem() -> tuple[Tensor, Tensor]:
    logits = torch.arange(T).view(1, T, 1).expand(B, T, V) + 0.5
    return logits, torch.arange(T).expand(B, T)


def flags(names: tuple[str, str], time: bool, batch: bool) -> dict[str, bool]:
    return {**dict.fromkeys((*AVERAGE, *SUM), False), names[0]: time, names[1]: batch}


@pytest.mark.parametrize(
    ("time", "batch", "expected"),
    [(True, True, EACH), (False, True, [EACH] * T), (True, False, [EACH] * B), (False, False, [[EACH] * T] * B)],
)
@pytest.mark.parametrize("names", [AVERAGE, SUM], ids=["average", "sum"])
def test_ways_to_reduce(names: tuple[str, str], time: bool, batch: bool, expected: object) -> None:
    """Averages and sums across steps, rows, both and neither."""
    loss = decode.sequence_loss(*problem(), torch.ones(B, T), **flags(names, time, batch))
    torch.testing.assert_close(loss, torch.tensor(expected))


def test_the_object_is_the_function() -> None:
    """`SequenceLoss` has the sums as its defaults, and the function's arguments the other way round."""
    logits, targets = torch.randn(B, T, V), torch.randint(V, (B, T))
    weights = torch.rand(B, T)
    expected = decode.sequence_loss(logits, targets, weights, **flags(SUM, True, True))
    torch.testing.assert_close(decode.SequenceLoss()(targets, logits, weights), expected)
    averaged = decode.SequenceLoss(**flags(AVERAGE, True, False))(targets, logits, weights)
    torch.testing.assert_close(averaged, decode.sequence_loss(logits, targets, weights, **flags(AVERAGE, True, False)))


def test_weights_in_a_sum() -> None:
    """A sum divides by the number of weights that are not 0, whatever their size."""
    weights = torch.tensor([[1.0, 2.0, 0.0], [0.5, 0.0, 0.0]])
    loss = decode.sequence_loss(*problem(), weights, **flags(SUM, True, True))
    torch.testing.assert_close(loss, torch.tensor(EACH * 3.5 / 3))
    rows = decode.sequence_loss(*problem(), weights, **flags(SUM, True, False))
    torch.testing.assert_close(rows, torch.tensor([EACH * 3 / 2, EACH * 0.5]))


@pytest.mark.parametrize("names", [AVERAGE, SUM], ids=["average", "sum"])
def test_weights_that_are_all_zero(names: tuple[str, str]) -> None:
    """Nothing counts: the loss is 0, not NaN."""
    loss = decode.sequence_loss(*problem(), torch.zeros(B, T), **flags(names, True, True))
    assert loss.item() == 0
