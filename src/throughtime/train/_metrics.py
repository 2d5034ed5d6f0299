"""Losses and metrics that look at real steps only, and add up over batches and workers."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from throughtime._cross_entropy import cross_entropy_of
from throughtime._errors import check_number, problem, shape_of, type_name
from throughtime.backends.cpu.cross_entropy import can_fuse, fused_cross_entropy


class Mean(NamedTuple):
    """A mean that still knows its sum and its count, so that means of parts add up to the mean of the whole.

    >>> import torch, throughtime as tt
    >>> whole = tt.train.Mean(torch.tensor(6.0), 2) + tt.train.Mean(torch.tensor(3.0), 1)
    >>> whole.value
    tensor(3.)
    """

    total: Tensor
    count: Tensor | int  # type: ignore[assignment]  # a tuple's `count` is of no use here

    @property
    def value(self) -> Tensor:
        """The mean; zero where nothing was counted."""
        count = torch.as_tensor(self.count, device=self.total.device)
        return self.total / torch.where(count == 0, 1, count).to(self.total.dtype)

    def __add__(self, other: object) -> Mean:
        if not isinstance(other, Mean):
            return NotImplemented
        return Mean(self.total + other.total, self.count + other.count)


def mask(lengths: Tensor, time: int) -> Tensor:
    """Which steps are real: bool [B, time].

    >>> import torch, throughtime as tt
    >>> tt.train.mask(torch.tensor([2, 0]), time=3).tolist()
    [[True, True, False], [False, False, False]]
    """
    return torch.arange(time, device=lengths.device) < lengths.unsqueeze(1)


def real_steps(lengths: Tensor | None, *values: Tensor) -> list[Tensor]:
    """The real steps [N, ...] of `values` [B, T, ...]; the padding is not read again, nor does a gradient reach it.

    If all are real, the values are as they came.
    """
    if lengths is None:
        return list(values)
    _check_lengths(lengths, *values)
    time = values[0].shape[1]
    if lengths.device.type == "cpu" and len(lengths) and int(lengths.min()) >= time:
        # Batches of like lengths often have no padding at all.
        return list(values)
    places = mask(lengths, time).flatten().nonzero().squeeze(1)
    return [value.flatten(0, 1).index_select(0, places) for value in values]


def _check_lengths(lengths: object, *values: Tensor) -> None:
    if not isinstance(lengths, Tensor):
        what, fix = "`lengths` are no tensor", "Pass `torch.tensor(lengths)`."
        raise TypeError(problem(what, got=type_name(lengths), expected="a tensor [B] of whole numbers", fix=fix))
    for value in values:
        if value.ndim < 2 or lengths.shape != value.shape[:1]:
            what, fix = "values and `lengths` do not fit", "Pass values [B, T, ...] and lengths [B]."
            got = f"{shape_of(value)} and {shape_of(lengths)}"
            raise ValueError(problem(what, got=got, expected="[B, T, ...] and [B]", fix=fix))


def masked_mean(values: Tensor, lengths: Tensor | None = None) -> Mean:
    """The mean of `values` [B, T, ...] over real steps, or over everything; padding may hold anything, NaN included.

    >>> import torch, throughtime as tt
    >>> tt.train.masked_mean(torch.tensor([[1.0, 3.0, torch.nan]]), torch.tensor([2])).value
    tensor(2.)
    """
    (real,) = real_steps(lengths, values)
    return Mean(_wide(real).sum(), real.numel())


def _wide(values: Tensor) -> Tensor:
    """In float32 at least: half precision is too coarse for a sum of many small terms, and whole numbers may wrap."""
    return values.to(torch.promote_types(values.dtype, torch.float32))


def cross_entropy(
    scores: Tensor, targets: Tensor, lengths: Tensor | None = None, *, label_smoothing: float = 0.0
) -> Mean:
    """Cross-entropy of `scores` [..., C] against classes `targets` [...], over real steps if there are `lengths`.

    >>> import torch, throughtime as tt
    >>> scores, targets = torch.zeros(2, 5, 4), torch.zeros(2, 5, dtype=torch.int64)
    >>> tt.train.cross_entropy(scores, targets, torch.tensor([5, 3])).value  # log(4): it knows nothing
    tensor(1.3863)
    """
    _check_classes(scores, targets)
    if not 0 <= check_number("label_smoothing", label_smoothing) <= 1:
        what, fix = "`label_smoothing` is no share", "Pass a number such as 0.1."
        raise ValueError(problem(what, got=label_smoothing, expected="0 to 1", fix=fix))
    if lengths is not None:
        _check_lengths(lengths, scores, targets)
    if not label_smoothing and can_fuse(scores, targets, lengths):
        losses = fused_cross_entropy(scores, targets, lengths)
        if losses.all_scored:
            return Mean(losses.total, losses.steps)
    # Here torch says what is wrong with a class that has no score.
    scores, targets = real_steps(lengths, scores, targets)
    wide = _wide(scores.flatten(0, -2))
    # torch takes classes of 64 bits only, and says so in words of its own.
    classes = targets.flatten().long()
    total = cross_entropy_of(wide, classes, reduction="sum", label_smoothing=label_smoothing)
    return Mean(total, targets.numel())


def accuracy(scores: Tensor, targets: Tensor, lengths: Tensor | None = None) -> Mean:
    """How often the highest of `scores` [..., C] is that of the class in `targets` [...], over real steps.

    >>> import torch, throughtime as tt
    >>> tt.train.accuracy(torch.eye(3), torch.tensor([0, 1, 0])).value
    tensor(0.6667)
    """
    _check_classes(scores, targets)
    scores, targets = real_steps(lengths, scores, targets)
    right = scores.argmax(-1) == targets
    return Mean(right.sum(dtype=torch.float32), right.numel())


def squared_error(predicted: Tensor, targets: Tensor, lengths: Tensor | None = None) -> Mean:
    """The mean of the squared differences, over real steps if there are `lengths`.

    >>> import torch, throughtime as tt
    >>> tt.train.squared_error(torch.tensor([1.0, 4.0]), torch.tensor([1.0, 2.0])).value
    tensor(2.)
    """
    return masked_mean(_differences(predicted, targets, lengths).square())


def absolute_error(predicted: Tensor, targets: Tensor, lengths: Tensor | None = None) -> Mean:
    """The mean of the absolute differences, over real steps if there are `lengths`.

    >>> import torch, throughtime as tt
    >>> tt.train.absolute_error(torch.tensor([1.0, 4.0]), torch.tensor([1.0, 2.0])).value
    tensor(1.)
    """
    return masked_mean(_differences(predicted, targets, lengths).abs())


def _check_classes(scores: Tensor, targets: Tensor) -> None:
    if scores.ndim < 2 or scores.shape[:-1] != targets.shape or targets.is_floating_point():
        what, fix = "`scores` and `targets` do not fit", "Pass one class, a whole number, for each row of scores."
        got = f"{shape_of(scores)} and {shape_of(targets)} of {targets.dtype}"
        raise ValueError(problem(what, got=got, expected="[..., C] and whole numbers [...]", fix=fix))


def _differences(predicted: Tensor, targets: Tensor, lengths: Tensor | None) -> Tensor:
    # Broadcasting [B, 1] against [B] would give a [B, B] of nonsense, without a word.
    if predicted.shape != targets.shape:
        what, fix = "`predicted` and `targets` differ in shape", "Squeeze or unsqueeze one of them."
        raise ValueError(problem(what, got=shape_of(predicted), expected=shape_of(targets), fix=fix))
    predicted, targets = real_steps(lengths, predicted, targets)
    return _wide(predicted) - _wide(targets)
