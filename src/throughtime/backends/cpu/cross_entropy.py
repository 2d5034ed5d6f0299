"""The cross-entropy of classes over real steps, on a CPU: one pass over the scores forwards, one backwards."""

from __future__ import annotations

import itertools
from array import array
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from throughtime._active_modes import intercepting_mode, is_batched
from throughtime.native import cross_entropy as native_cross_entropy
from throughtime.native.caching_allocator import as_contiguous
from throughtime.native.toolchain import llvm

_WORTH_A_PART, _MOST_PARTS = 1 << 14, 16
"""Scores that are worth a call of their own, and into how many calls all are divided at most.

However many threads share them, the sum is taken in the same order.
"""


class Losses(NamedTuple):
    """The sum of the losses, of how many steps, and whether each class has a score: otherwise the sum means nothing."""

    total: Tensor
    steps: int
    all_scored: bool


def can_fuse(scores: Tensor, classes: Tensor, lengths: Tensor | None) -> bool:
    """Whether there is machine code for these: plain tensors on a CPU, and no mode that intercepts operations."""
    parts = (scores, classes) if lengths is None else (scores, classes, lengths)
    return (
        not intercepting_mode()
        and scores.dtype in native_cross_entropy.SCORED
        and scores.numel() > 0
        and (lengths is None or not lengths.is_floating_point())
        and all(type(part) is Tensor and part.device.type == "cpu" for part in parts)
        and llvm.is_installed()
    )


def fused_cross_entropy(scores: Tensor, classes: Tensor, lengths: Tensor | None) -> Losses:
    """The cross-entropy of `scores` [..., C] for `classes` [...]; with `lengths` [B] these are [B, T, C] and [B, T]."""
    facts = array("q")
    total: Tensor = _CrossEntropy.apply(scores, classes, lengths, facts)  # type: ignore[no-untyped-call]
    return Losses(total, sum(facts[1::3]), not any(facts[2::3]))


class _CrossEntropy(torch.autograd.Function):
    """The sum of the losses; `facts` are filled in."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, classes: Tensor, lengths: Tensor | None, facts: array[int]) -> Tensor:
        norms = torch.empty((*classes.shape, 2), dtype=scores.dtype)
        call = _Call(scores, classes, lengths, norms)
        facts.extend([0] * 3 * len(call.parts))
        native_cross_entropy.cross_entropy(scores.dtype, call.frames(facts=facts.buffer_info()[0]))
        ctx.save_for_backward(scores, classes, lengths, norms)
        return torch.tensor(sum(memoryview(facts).cast("B").cast("d")[::3]), dtype=scores.dtype)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        scores, classes, lengths, norms = ctx.saved_tensors
        if torch.is_grad_enabled() or is_batched(gradient):
            return _slopes(scores, classes, lengths) * gradient, None, None, None
        slopes, factor = torch.empty(scores.shape, dtype=scores.dtype), as_contiguous(gradient)
        call = _Call(scores, classes, lengths, norms)
        native_cross_entropy.cross_entropy_gradient(
            scores.dtype, call.frames(slopes=slopes.data_ptr(), factor=factor.data_ptr())
        )
        return slopes, None, None, None


class _Shard(NamedTuple):
    """Sequences for one call: where their rows begin, how many they are, how long, and where their lengths lie."""

    start: int
    batch: int
    time: int
    lengths: int


class _Call:
    """What machine code is told, in parts; it lives until that is done."""

    def __init__(self, scores: Tensor, classes: Tensor, lengths: Tensor | None, norms: Tensor) -> None:
        # Classes and lengths may be of 32 bits.
        self._scores, self._classes, self._norms = as_contiguous(scores), as_contiguous(classes.long()), norms
        rows = classes.numel() if lengths is None else len(lengths)
        parts = max(1, min(_MOST_PARTS, scores.numel() // _WORTH_A_PART, rows))
        pairs = list(itertools.pairwise(rows * part // parts for part in range(parts + 1)))
        if lengths is None:
            # Each part is one sequence of as many steps as it has rows.
            self._lengths = torch.tensor([last - first for first, last in pairs])
            self.parts = [_Shard(first, 1, last - first, number) for number, (first, last) in enumerate(pairs)]
        else:
            self._lengths, time = as_contiguous(lengths.long()), classes.shape[1]
            self.parts = [_Shard(first * time, last - first, time, first) for first, last in pairs]

    def frames(self, *, facts: int = 0, slopes: int = 0, factor: int = 0) -> list[array[int]]:
        """One for each part; `facts`, `slopes` and `factor` are addresses."""
        columns, size = self._scores.shape[-1], self._scores.dtype.itemsize
        tensors = (self._lengths, self._scores, self._classes, self._norms)
        lengths, scores, classes, norms = (tensor.data_ptr() for tensor in tensors)
        return [
            array("q", (
                part.batch, part.time, columns, lengths + 8 * part.lengths,
                scores + part.start * columns * size, classes + part.start * 8, norms + part.start * 2 * size,
                facts + 24 * number, slopes + part.start * columns * size, factor,
            ))
            for number, part in enumerate(self.parts)
        ]  # fmt: skip


def _slopes(scores: Tensor, classes: Tensor, lengths: Tensor | None) -> Tensor:
    """The gradient in operations of torch, for gradients of it."""
    classes = classes.long()
    if lengths is not None:
        padding = torch.arange(classes.shape[1]) >= lengths.unsqueeze(1)
        scores, classes = scores.masked_fill(padding.unsqueeze(2), 0), classes.masked_fill(padding, 0)
    slopes = functional.softmax(scores, -1) - functional.one_hot(classes, scores.shape[-1])
    return slopes if lengths is None else slopes.masked_fill(padding.unsqueeze(2), 0)
