"""The loss of real steps and its gradient: `tt.train.cross_entropy` against torch's, over the steps that a mask picks.

Sums and gradients are compared before anything is timed.

    python benchmarks/cross_entropy.py [--quick]
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

import throughtime as tt
from layouts import Row
from record import interleaved, ratio, summary, timed
from suite import Options, read_options, run_suite


class Scores(NamedTuple):
    """A batch of `B` sequences of up to `T` steps, with a score for each of `C` classes."""

    B: int
    T: int
    C: int


CASES = [Scores(64, 11, 9), Scores(32, 50, 50), Scores(64, 50, 500), Scores(20, 35, 10_000), Scores(32, 50, 30_000)]


def ours(scores: Tensor, classes: Tensor, lengths: Tensor) -> Tensor:
    return tt.train.cross_entropy(scores, classes, lengths).total


def torchs(scores: Tensor, classes: Tensor, lengths: Tensor) -> Tensor:
    real = torch.arange(scores.shape[1]) < lengths.unsqueeze(1)
    return functional.cross_entropy(scores[real], classes[real], reduction="sum")


def measure(options: Options, case: Scores) -> Row:
    scores = torch.randn(case, requires_grad=True)
    classes = torch.randint(case.C, case[:2])
    lengths = torch.randint(case.T // 2, case.T + 1, case[:1])
    steps = {
        name: lambda run=run: torch.autograd.grad(run(scores, classes, lengths), scores)[0]
        for name, run in (("throughtime", ours), ("torch", torchs))
    }
    found = {name: step() for name, step in steps.items()}
    difference = float((found["throughtime"] - found["torch"]).abs().max())
    if difference > 1e-5:
        raise RuntimeError(f"{case}: the gradients differ by {difference:.1e}")
    taken = interleaved(
        {name: timed(step) for name, step in steps.items()}, rounds=options.rounds, seconds=options.seconds
    )
    times = {name: summary(seconds) for name, seconds in taken.items()}
    return {
        "shape": case._asdict(),
        "real": int(lengths.sum()) / (case.B * case.T),
        **times,
        "ratio": ratio(times["torch"], times["throughtime"]),
        "difference": difference,
    }


def main() -> None:
    options = read_options(__doc__ or "")
    run_suite("cross-entropy", CASES[:2] if options.quick else CASES, partial(measure, options), options)


if __name__ == "__main__":
    main()
