"""One step of beam search: the best continuations of all beams."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from throughtime._errors import InvalidArgumentError, problem


class BeamStep(NamedTuple):
    """Where each new beam comes from and what it says, all [B, W]."""

    scores: Tensor
    log_probs: Tensor
    tokens: Tensor
    parents: Tensor


def end_only(log_probs: Tensor, finished: Tensor, end_token: int) -> Tensor:
    """`log_probs` [B, W, V], but beams that have ended go on with the end token for certain."""
    lowest = log_probs.new_full((log_probs.shape[2],), torch.finfo(log_probs.dtype).min)
    lowest[end_token] = 0
    return torch.where(finished.unsqueeze(2), lowest, log_probs)


def length_penalty(lengths: Tensor, weight: Any, dtype: torch.dtype) -> Tensor:
    """`((5 + length) / 6) ** weight` (Wu et al. 2016): 1 for a weight of 0."""
    penalty: Tensor = ((5.0 + lengths.to(dtype)) / 6.0) ** weight
    return penalty


def coverage_penalty(attended: Tensor) -> Tensor:
    """`sum log(min(attended, 1))` [B, W] of how much each place was looked at, [B, W, S] (Wu et al. 2016).

    A place that was never looked at at all lies past the end of its memory, and costs nothing.
    """
    return torch.where(attended == 0, 1, attended).clamp(max=1).log().sum(2)


def best_continuations(
    log_probs: Tensor,
    finished: Tensor,
    lengths: Tensor,
    step_log_probs: Tensor,
    end_token: int,
    length_penalty_weight: Any,
    coverage: Tensor | None,
) -> BeamStep:
    """The W best of all W * V continuations of each row; of equals, the one that comes first.

    Args:
        log_probs: [B, W], of the beams so far.
        finished: bool [B, W].
        lengths: [B, W], so far.
        step_log_probs: [B, W, V], of each token after each beam.
        end_token: The token that ends a beam.
        length_penalty_weight: The weight of the length penalty.
        coverage: The weighted coverage penalty [B, W] of the beams that have ended, or None.
    """
    vocabulary = step_log_probs.shape[2]
    totals = log_probs.unsqueeze(2) + end_only(step_log_probs, finished, end_token)
    # As TensorFlow scores: the end token itself does not make a sequence longer.
    grown = torch.ones(vocabulary, dtype=lengths.dtype, device=lengths.device)
    grown[end_token] = 0
    new_lengths = lengths.unsqueeze(2) + grown * (~finished).unsqueeze(2)
    scores = totals / length_penalty(new_lengths, length_penalty_weight, totals.dtype)
    if coverage is not None:
        scores = scores + coverage.unsqueeze(2)
    values, places = first_of_the_best(scores.flatten(1), log_probs.shape[1])
    chosen = totals.flatten(1).gather(1, places)
    return BeamStep(values, chosen, places % vocabulary, places.div(vocabulary, rounding_mode="floor"))


def first_of_the_best(scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` largest of each row, largest first, and of equals the first: what `topk` leaves open."""
    least = scores.topk(count, 1).values[:, -1:]
    above, equal = scores > least, scores == least
    room = count - above.sum(1, keepdim=True)
    kept = (above | (equal & (equal.cumsum(1) <= room))).nonzero()
    if len(kept) != len(scores) * count:
        what, fix = "the scores of beam search are not comparable", "Look for NaN in the outputs of the cell."
        raise InvalidArgumentError(problem(what, got="NaN", expected="log probabilities", fix=fix))
    places = kept[:, 1].view(-1, count)
    values, order = scores.gather(1, places).sort(dim=1, descending=True, stable=True)
    return values, places.gather(1, order)
