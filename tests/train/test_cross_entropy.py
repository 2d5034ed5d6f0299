"""The cross-entropy in machine code: that of torch, over real steps, with gradients of first and second order."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from throughtime.backends.cpu import cross_entropy as cpu_cross_entropy
from throughtime.backends.cpu.cross_entropy import can_fuse, fused_cross_entropy
from throughtime.train import Mean, cross_entropy, mask

pytestmark = pytest.mark.covers("training")

SHAPES = [(64, 11, 9), (3, 1, 1), (5, 4, 2), (7, 3, 16), (7, 3, 17), (2, 5, 33), (4, 30, 1000), (90, 20, 100)]


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def examples(shape: tuple[int, int, int], dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    batch, time, classes = shape
    return (5 * torch.randn(shape, dtype=dtype)).requires_grad_(), torch.randint(classes, (batch, time))


def lengths_of(batch: int, time: int) -> list[Tensor | None]:
    mixed = torch.randint(time + 1, (batch,))
    mixed[0] = 0
    return [None, mixed, torch.full((batch,), time), torch.full((batch,), time + 3), torch.full((batch,), -1)]


def of_torch(scores: Tensor, classes: Tensor, lengths: Tensor | None) -> tuple[Tensor, int]:
    """The sum in double precision, over the steps that are real, and how many they are."""
    real = torch.ones_like(classes, dtype=torch.bool) if lengths is None else mask(lengths, classes.shape[1])
    return functional.cross_entropy(scores[real].double(), classes[real], reduction="sum"), int(real.sum())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_values_and_gradients_are_those_of_torch(shape: tuple[int, int, int], dtype: torch.dtype) -> None:
    scores, classes = examples(shape, dtype)
    for lengths in lengths_of(*shape[:2]):
        assert can_fuse(scores, classes, lengths)
        found, (expected, count) = cross_entropy(scores, classes, lengths), of_torch(scores, classes, lengths)
        assert found.count == count
        torch.testing.assert_close(found.total, expected.to(dtype))
        (gradient,) = torch.autograd.grad(0.3 * found.total, scores)
        (wanted,) = torch.autograd.grad(0.3 * expected, scores)
        torch.testing.assert_close(gradient, wanted)


@pytest.mark.parametrize("lengths", [None, torch.tensor([3, 0, 2])], ids=["all", "lengths"])
def test_finite_differences_of_first_and_second_order(lengths: Tensor | None) -> None:
    scores, classes = examples((3, 3, 4), torch.float64)

    def total(scores: Tensor) -> Tensor:
        return cross_entropy(scores, classes, lengths).total

    assert torch.autograd.gradcheck(total, scores)
    assert torch.autograd.gradgradcheck(total, scores)


def test_padding_may_hold_anything_second_derivatives_included() -> None:
    scores, classes = examples((2, 3, 4), torch.float64)
    lengths = torch.tensor([2, 3])
    with torch.no_grad():
        scores[0, 2], classes[0, 2] = torch.nan, -7
    found = cross_entropy(scores, classes, lengths)
    (gradient,) = torch.autograd.grad(found.value, scores, create_graph=True)
    (second,) = torch.autograd.grad(gradient.square().sum(), scores)
    for value in (found.total, gradient, second):
        assert value.isfinite().all()
    assert not gradient[0, 2].any()
    assert not second[0, 2].any()
    assert second[1].any()


def test_what_is_no_number_stays_none() -> None:
    scores = torch.randn(4, 5)
    scores[0, 1], scores[1], scores[2, 3] = torch.nan, -torch.inf, torch.inf
    classes = torch.zeros(4, dtype=torch.int64)
    rows = [fused_cross_entropy(row[None], classes[:1], None).total for row in scores]
    expected = functional.cross_entropy(scores, classes, reduction="none")
    torch.testing.assert_close(torch.stack(rows), expected, equal_nan=True)
    # A score that can never be is an infinite surprise, and no NaN.
    impossible = torch.tensor([[-torch.inf, 0.0]])
    assert fused_cross_entropy(impossible, classes[:1], None).total == torch.inf


@pytest.mark.parametrize("offset", [1e3, -1e4, 1e6, 1e8, 1e30])
def test_large_scores_that_differ_little(offset: float) -> None:
    scores = (torch.randn(8, 10) + offset).requires_grad_()
    classes = torch.randint(10, (8,))
    found, (expected, _) = cross_entropy(scores, classes).total, of_torch(scores, classes, None)
    torch.testing.assert_close(found, expected.float())
    pairs = (torch.autograd.grad(total, scores)[0] for total in (found, expected))
    torch.testing.assert_close(*pairs)


def test_lengths_that_are_no_whole_numbers_count_as_everywhere() -> None:
    scores, classes = examples((2, 4, 3), torch.float32)
    assert cross_entropy(scores, classes, torch.tensor([2.5, 1.0])).count == 4
    with pytest.raises(TypeError, match="`lengths` are no tensor: got list"):
        cross_entropy(scores, classes, [2, 2])  # type: ignore[arg-type]


def test_numbers_of_32_bits_and_tensors_that_lie_otherwise() -> None:
    scores, classes = examples((3, 4, 5), torch.float32)
    lengths = torch.tensor([4, 1, 2])
    expected = cross_entropy(scores, classes, lengths)
    turned = scores.detach().transpose(0, 2).contiguous().transpose(0, 2).requires_grad_()
    assert not turned.is_contiguous()
    found = cross_entropy(turned, classes.int(), lengths.int())
    assert torch.equal(found.total, expected.total)
    gradients = torch.autograd.grad(found.total, turned), torch.autograd.grad(expected.total, scores)
    assert torch.equal(*(gradient for (gradient,) in gradients))


def test_the_result_does_not_depend_on_the_number_of_threads() -> None:
    scores, classes = examples((90, 20, 100), torch.float32)
    assert scores.numel() > 2 * cpu_cross_entropy._WORTH_A_PART
    before, results = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            total = cross_entropy(scores, classes, torch.arange(90) % 21).total
            results.append((total, *torch.autograd.grad(total, scores)))
    finally:
        torch.set_num_threads(before)
    for result in results[1:]:
        assert all(map(torch.equal, result, results[0]))


def test_scores_changed_before_the_backward_pass_are_noticed() -> None:
    leaf, classes = examples((2, 3, 4), torch.float32)
    scores = leaf * 1
    total = cross_entropy(scores, classes).total
    scores.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        total.backward()


def test_many_gradients_at_once() -> None:
    scores, classes = examples((2, 3, 4), torch.float64)
    total = cross_entropy(scores, classes).total
    (many,) = torch.autograd.grad(
        total, scores, torch.tensor([1.0, 2.0], dtype=torch.float64), is_grads_batched=True, retain_graph=True
    )
    (one,) = torch.autograd.grad(total, scores)
    torch.testing.assert_close(many, torch.stack([one, 2 * one]))


@pytest.mark.parametrize("number", [4, -1, -100])
def test_a_class_without_a_score_is_told_with_its_number(number: int) -> None:
    scores, classes = examples((2, 3, 4), torch.float32)
    classes[1, 2] = number
    with pytest.raises(ValueError, match="a class of `targets` has no score"):
        cross_entropy(scores, classes)
    assert cross_entropy(scores, classes, torch.tensor([3, 2])).count == 5


def test_others_may_look_on() -> None:
    scores, classes = examples((2, 3, 4), torch.float32)
    expected = cross_entropy(scores, classes)
    (wanted,) = torch.autograd.grad(expected.total, scores)

    def total(scores: Tensor) -> Tensor:
        return cross_entropy(scores, classes).total

    torch.testing.assert_close(torch.func.grad(total)(scores.detach()), wanted)
    compiled: Any = torch.compile(total, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(scores), expected.total)


@pytest.mark.parametrize(
    "scores",
    [torch.randn(2, 3, 4, dtype=torch.float16), torch.randn(2, 3, 4, dtype=torch.bfloat16), torch.zeros(0, 3, 4)],
    ids=["float16", "bfloat16", "no rows"],
)
def test_what_is_left_to_torch(scores: Tensor) -> None:
    classes = torch.zeros(scores.shape[:2], dtype=torch.int64)
    assert not can_fuse(scores, classes, None)
    found = cross_entropy(scores, classes)
    assert isinstance(found, Mean)
    torch.testing.assert_close(found.total, of_torch(scores, classes, None)[0].float())
