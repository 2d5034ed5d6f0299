"""Means and variances."""

from __future__ import annotations

import torch

from throughtime.tf1.ops._helpers import axes as axes_of
from throughtime.tf1.ops._table import Static, Tensor, operation

_KEEP = {"keep_dims": "keepdims"}


@operation(
    "nn.moments", op_name="moments", spellings=_KEEP, positional=("x", "axes", "shift", "name", "keep_dims", "keepdims")
)
def moments(x: Tensor, axes: Static, shift: Static = None, keepdims: Static = False) -> tuple[Tensor, Tensor]:
    """The mean and the variance over axes."""
    over, keep = axes_of(axes, x.ndim), bool(keepdims)
    wide = x.float() if x.dtype == torch.float16 else x
    mean = wide.mean(over, True)
    variance = torch.square(wide - mean.detach()).mean(over, keep)
    mean = mean if keep else mean.squeeze(over)
    return mean.to(x.dtype), variance.to(x.dtype)


@operation(
    "nn.weighted_moments",
    op_name="weighted_moments",
    spellings=_KEEP,
    same_dtype=("x", "frequency_weights"),
    positional=("x", "axes", "frequency_weights", "name", "keep_dims", "keepdims"),
)
def weighted_moments(
    x: Tensor, axes: Static, frequency_weights: Tensor, keepdims: Static = False
) -> tuple[Tensor, Tensor]:
    """The mean and the variance over axes, elements weighted."""
    over, keep = axes_of(axes, x.ndim), bool(keepdims)
    total = torch.broadcast_to(frequency_weights, x.shape).sum(over, keep)
    mean = (frequency_weights * x).sum(over, keep) / total
    variance = (frequency_weights * torch.square(x)).sum(over, keep) / total - torch.square(mean)
    return mean, variance


@operation(
    "nn.sufficient_statistics",
    op_name="sufficient_statistics",
    spellings=_KEEP,
    positional=("x", "axes", "shift", "keep_dims", "name", "keepdims"),
)
def sufficient_statistics(
    x: Tensor, axes: Static, shift: Static = None, keepdims: Static = False
) -> tuple[Tensor, Tensor, Tensor]:
    """The number of elements, their sum, and the sum of their squares."""
    over, keep = axes_of(axes, x.ndim), bool(keepdims)
    count = 1
    for axis in over:
        count *= x.shape[axis]
    moved = x if shift is None else x - shift
    return torch.tensor(float(count), dtype=x.dtype), moved.sum(over, keep), torch.square(moved).sum(over, keep)


@operation("nn.normalize_moments", op_name="normalize", scope="normalize")
def normalize_moments(
    counts: Tensor, mean_ss: Tensor, variance_ss: Tensor, shift: Tensor | None
) -> tuple[Tensor, Tensor]:
    """The mean and the variance of sums."""
    moved = mean_ss / counts
    mean = moved if shift is None else moved + shift
    return mean, variance_ss / counts - torch.square(moved)
