"""The loss of a batch of sequences: what is past their ends does not count."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from throughtime._cross_entropy import cross_entropy_of
from throughtime._errors import check_callable, check_flag, problem, shape_of
from throughtime._tensors import as_tensor

LossFunction = Callable[..., Tensor]


def sequence_loss(
    logits: Any,
    targets: Any,
    weights: Any,
    average_across_timesteps: bool = True,
    average_across_batch: bool = True,
    sum_over_timesteps: bool = False,
    sum_over_batch: bool = False,
    softmax_loss_function: LossFunction | None = None,
    name: str | None = None,
) -> Tensor:
    """The weighted cross-entropy of sequences of logits.

    Where a weight is 0 neither logits nor targets are looked at: they may be NaN or out of range, and no gradient flows
    back from there. Weights are usually 1 up to and including a sequence's end token, and 0 past it.

    Args:
        logits: [B, T, V].
        targets: [B, T], whole numbers below V.
        weights: [B, T].
        average_across_timesteps: Divide the sum over steps by the sum of the weights.
        average_across_batch: Divide the sum over rows by the sum of the weights.
        sum_over_timesteps: Sum over steps and divide by the number of weights that are not 0.
        sum_over_batch: Sum over rows and divide by the number of weights that are not 0.
        softmax_loss_function: `(labels, logits) -> losses`, called by keyword with [B * T] and [B * T, V], in the place
            of the cross-entropy.
        name: Ignored; it names operations in TensorFlow.

    Returns:
        A scalar, or what is left of [B, T] when an axis is neither averaged nor summed over.

    >>> import torch, throughtime as tt
    >>> loss = tt.decode.sequence_loss(torch.zeros(2, 3, 5), torch.ones(2, 3, dtype=torch.int64), torch.ones(2, 3))
    >>> round(loss.item(), 4)  # log 5
    1.6094
    """
    averaged = [
        check_flag("average_across_batch", average_across_batch),
        check_flag("average_across_timesteps", average_across_timesteps),
    ]
    summed = [check_flag("sum_over_batch", sum_over_batch), check_flag("sum_over_timesteps", sum_over_timesteps)]
    for axis, average, total in zip(("batch", "timesteps"), averaged, summed, strict=True):
        if average and total:
            what = f"`average_across_{axis}` and `sum_over_{axis}` cannot both be set"
            raise ValueError(problem(what, got="both", expected="one of the two", fix="Turn one of them off."))
    scores, labels, counts = _check_shapes(logits, targets, weights)
    # Half precision has no room for a sum of many terms.
    wide = torch.promote_types(scores.dtype, torch.float32)
    losses = counts.to(wide) * _losses(scores, labels, counts != 0, softmax_loss_function).to(wide)
    axes = [axis for axis in range(2) if averaged[axis] or summed[axis]]
    if not axes:
        return losses.to(scores.dtype)
    total_count = (counts != 0 if any(summed) else counts).to(wide).sum(axes)
    # Where nothing counts, the loss is 0.
    return (losses.sum(axes) / torch.where(total_count == 0, 1, total_count)).to(scores.dtype)


def _losses(logits: Tensor, targets: Tensor, real: Tensor, function: LossFunction | None) -> Tensor:
    """The loss of each step [B, T], with zeros in the place of logits and targets that do not count."""
    logits = torch.where(real.unsqueeze(2), logits, logits.new_zeros(()))
    targets = torch.where(real, targets, 0)
    if function is None:
        losses = cross_entropy_of(logits.flatten(0, 1), targets.flatten(), reduction="none")
    else:
        fix = "Pass softmax_loss_function(labels, logits)."
        check_callable("softmax_loss_function", function, expected="a function", fix=fix)
        losses = function(labels=targets.flatten(), logits=logits.flatten(0, 1))
    return losses.view(targets.shape)


def _check_shapes(logits: Any, targets: Any, weights: Any) -> tuple[Tensor, Tensor, Tensor]:
    """The three as tensors that belong to each other."""
    logits, targets, weights = as_tensor("logits", logits), as_tensor("targets", targets), as_tensor("weights", weights)
    fix = "Give one row of logits, one target and one weight for each step."
    for name, tensor, axes in (
        ("logits", logits, "[B, T, V]"),
        ("targets", targets, "[B, T]"),
        ("weights", weights, "[B, T]"),
    ):
        if tensor.ndim != axes.count(",") + 1:
            raise ValueError(problem(f"`{name}` must be {axes}", got=shape_of(tensor), expected=axes, fix=fix))
    for name, tensor in (("targets", targets), ("weights", weights)):
        if tensor.shape != logits.shape[:2]:
            what = f"`{name}` does not fit `logits`"
            raise ValueError(problem(what, got=shape_of(tensor), expected=shape_of(logits)[:2], fix=fix))
    if not logits.is_floating_point():
        raise TypeError(problem("`logits` must be real", got=logits.dtype, expected="a floating point dtype", fix=fix))
    if targets.is_floating_point() or targets.dtype == torch.bool or targets.is_complex():
        what, fix = "`targets` must be whole numbers", "Convert them with `.long()`."
        raise TypeError(problem(what, got=targets.dtype, expected="an integer dtype", fix=fix))
    return logits, targets.long(), weights.to(logits.dtype)


class SequenceLoss:
    """`sequence_loss` as an object, with TensorFlow 2's defaults: sums over steps and rows.

    >>> import torch, throughtime as tt
    >>> loss = tt.decode.SequenceLoss()
    >>> round(loss(torch.ones(2, 3, dtype=torch.int64), torch.zeros(2, 3, 5), torch.ones(2, 3)).item(), 4)
    1.6094
    """

    def __init__(
        self,
        average_across_timesteps: bool = False,
        average_across_batch: bool = False,
        sum_over_timesteps: bool = True,
        sum_over_batch: bool = True,
        softmax_loss_function: LossFunction | None = None,
        name: str | None = None,
    ) -> None:
        self.average_across_timesteps = average_across_timesteps
        self.average_across_batch = average_across_batch
        self.sum_over_timesteps = sum_over_timesteps
        self.sum_over_batch = sum_over_batch
        self.softmax_loss_function = softmax_loss_function

    def __call__(self, y_true: Any, y_pred: Any, sample_weight: Any) -> Tensor:
        """The loss of logits `y_pred` [B, T, V] for targets `y_true` [B, T]."""
        return sequence_loss(
            y_pred,
            y_true,
            sample_weight,
            average_across_timesteps=self.average_across_timesteps,
            average_across_batch=self.average_across_batch,
            sum_over_timesteps=self.sum_over_timesteps,
            sum_over_batch=self.sum_over_batch,
            softmax_loss_function=self.softmax_loss_function,
        )
