"""Losses and metrics: real steps only, and parts that add up."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from torch.nn import functional

from throughtime.train import Mean, absolute_error, accuracy, cross_entropy, mask, masked_mean, squared_error

pytestmark = pytest.mark.covers("training")

LENGTHS = torch.tensor([4, 0, 2])
REAL = mask(LENGTHS, 4)


def poisoned(values: torch.Tensor) -> torch.Tensor:
    return values.masked_fill(~REAL.view(*REAL.shape, *[1] * (values.ndim - 2)), torch.nan).requires_grad_()


def test_masked_losses_are_those_of_the_real_steps_alone() -> None:
    scores, classes = torch.randn(3, 4, 5), torch.randint(5, (3, 4))
    numbers, targets = torch.randn(3, 4, 2), torch.randn(3, 4, 2)
    pairs: list[tuple[Any, torch.Tensor]] = [
        (cross_entropy(poisoned(scores), classes, LENGTHS), functional.cross_entropy(scores[REAL], classes[REAL])),
        (accuracy(poisoned(scores), classes, LENGTHS), (scores[REAL].argmax(1) == classes[REAL]).float().mean()),
        (squared_error(poisoned(numbers), targets, LENGTHS), functional.mse_loss(numbers[REAL], targets[REAL])),
        (absolute_error(poisoned(numbers), targets, LENGTHS), functional.l1_loss(numbers[REAL], targets[REAL])),
        (masked_mean(poisoned(numbers), LENGTHS), numbers[REAL].mean()),
    ]
    for found, expected in pairs:
        torch.testing.assert_close(found.value, expected)


@pytest.mark.parametrize("loss", [cross_entropy, squared_error, absolute_error])
def test_nothing_in_the_padding_reaches_a_gradient(loss: Any) -> None:
    values = poisoned(torch.randn(3, 4, 5))
    targets = torch.randint(5, (3, 4)) if loss is cross_entropy else torch.randn(3, 4, 5)
    loss(values, targets, LENGTHS).value.backward()
    assert values.grad.isfinite().all()
    assert not values.grad[~REAL].any()
    assert values.grad[REAL].any()


@pytest.mark.parametrize("lengths", [[4, 4, 4], [9, 4, 5]], ids=str)
def test_a_batch_without_padding_is_taken_as_it_is(lengths: list[int]) -> None:
    values = torch.randn(3, 4, 5, requires_grad=True)
    for measure, targets in (
        (cross_entropy, torch.randint(5, (3, 4))),
        (accuracy, torch.randint(5, (3, 4))),
        (squared_error, torch.randn(3, 4, 5)),
        (lambda x, _, n=None: masked_mean(x, n), None),
    ):
        found, expected = measure(values, targets, torch.tensor(lengths)), measure(values, targets)
        assert torch.equal(found.value, expected.value)
        assert found.count == expected.count
    empty = torch.zeros(0, 4, 5), torch.zeros(0, dtype=torch.int64)
    assert masked_mean(*empty).count == 0


def test_one_target_for_each_sequence() -> None:
    scores, classes = torch.randn(6, 5), torch.randint(5, (6,))
    torch.testing.assert_close(cross_entropy(scores, classes).value, functional.cross_entropy(scores, classes))
    smooth = cross_entropy(scores, classes, label_smoothing=0.1).value
    torch.testing.assert_close(smooth, functional.cross_entropy(scores, classes, label_smoothing=0.1))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32, torch.bool], ids=str)
def test_classes_are_whole_numbers_of_any_size(dtype: torch.dtype) -> None:
    scores, classes = torch.randn(3, 4, 5), torch.randint(2, (3, 4))
    for metric in (cross_entropy, accuracy):
        assert metric(scores, classes.to(dtype), LENGTHS).value == metric(scores, classes, LENGTHS).value


def test_parts_add_up() -> None:
    scores, classes = torch.randn(3, 4, 5), torch.randint(5, (3, 4))
    parts = [cross_entropy(scores[:, piece], classes[:, piece], n) for piece, n in _halves()]
    torch.testing.assert_close((parts[0] + parts[1]).value, cross_entropy(scores, classes, LENGTHS).value)
    with pytest.raises(TypeError):
        parts[0] + 1


def _halves() -> list[tuple[slice, torch.Tensor]]:
    return [(slice(0, 2), LENGTHS.clamp(max=2)), (slice(2, 4), (LENGTHS - 2).clamp(min=0))]


def test_nothing_counted_is_zero() -> None:
    assert masked_mean(torch.ones(2, 3), torch.tensor([0, 0])).value == 0
    assert Mean(torch.tensor(0.0), 0).value == 0


def test_half_precision_is_summed_in_single() -> None:
    assert (
        cross_entropy(torch.zeros(2, 3, dtype=torch.bfloat16), torch.zeros(2, dtype=torch.long)).total.dtype
        == torch.float32
    )


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: squared_error(torch.ones(4, 1), torch.ones(4)),
            "`predicted` and `targets` differ in shape: got (4, 1)",
        ),
        (
            lambda: cross_entropy(torch.ones(4, 3), torch.ones(4)),
            "`scores` and `targets` do not fit: got (4, 3) and (4,)",
        ),
        (lambda: accuracy(torch.ones(4, 3), torch.ones(3).long()), "`scores` and `targets` do not fit"),
        (
            lambda: cross_entropy(torch.ones(1, 2), torch.zeros(1).long(), label_smoothing=2),
            "`label_smoothing` is no share: got 2, expected 0 to 1",
        ),
        (lambda: masked_mean(torch.ones(4, 3), torch.ones(3)), "values and `lengths` do not fit: got (4, 3) and (3,)"),
    ],
)
def test_mistakes(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        call()


def test_a_class_without_a_score() -> None:
    with pytest.raises(ValueError, match=r"a class of `targets` has no score: got 0 to 7, expected 0 to 2"):
        cross_entropy(torch.zeros(2, 3), torch.tensor([0, 7]))


def test_there_is_no_class_that_is_ignored() -> None:
    """torch leaves -100 out of its sum; the count would have it all the same."""
    with pytest.raises(ValueError, match=r"a class of `targets` has no score: got -100 to 1"):
        cross_entropy(torch.zeros(2, 3), torch.tensor([1, -100]))


def test_sums_have_room() -> None:
    assert masked_mean(torch.ones(4, 20000).half()).value == 1
    assert squared_error(torch.full((1000,), 10.0).half(), torch.zeros(1000).half()).value == 100
    assert absolute_error(torch.tensor([1], dtype=torch.uint8), torch.tensor([2], dtype=torch.uint8)).value == 1
    assert Mean(torch.tensor(0.25), torch.tensor(0.5)).value == 0.5
