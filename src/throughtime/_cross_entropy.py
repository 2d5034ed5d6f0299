"""The cross-entropy of classes, as losses of sequences want it: no class is left out, and none is without a score."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional

from throughtime._errors import problem

_NO_CLASS = -(2**63)
"""torch leaves targets of -100 out of its sum unless another number is named; a count would include them."""


def cross_entropy_of(scores: Tensor, classes: Tensor, *, reduction: str, label_smoothing: float = 0.0) -> Tensor:
    """torch's cross-entropy of `scores` [N, C] for `classes` [N] from 0 up to C, not included."""
    try:
        return functional.cross_entropy(
            scores, classes, reduction=reduction, label_smoothing=label_smoothing, ignore_index=_NO_CLASS
        )
    except IndexError as error:
        what, fix = "a class of `targets` has no score", "Count classes from 0, and give the model an output for each."
        got, expected = f"{int(classes.min())} to {int(classes.max())}", f"0 to {scores.shape[-1] - 1}"
        raise ValueError(problem(what, got=got, expected=expected, fix=fix)) from error
