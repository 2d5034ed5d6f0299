"""Training of batches of variable length, against torch packed and against our own dense run of equal shape.

Lengths are uniform, and those of two real data sets: Japanese Vowels and PLAID. Outputs and the gradients of inputs
and weights are compared with torch's before anything is timed.

    python benchmarks/ragged_training.py [--quick]
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import torch

import lengths as real
from layouts import Row
from pairs import PAIRS
from record import interleaved, ratio, summary, timed
from runs import backend_of, check, ours, theirs, training
from shapes import LARGE, LARGEST, LONG, MEDIUM, ODD, TINY, Shape
from suite import Options, read_options, run_suite


class Case(NamedTuple):
    """A batch that is as long as its longest sequence."""

    kind: str
    name: str
    shape: Shape
    lengths: list[int]

    def __str__(self) -> str:
        return f"{self.kind} {self.shape} {self.name}"


def uniform(kind: str, shape: Shape) -> Case:
    return Case(kind, "uniform", shape, real.uniform(shape.B, shape.T))


def vowels(kind: str, B: int, H: int) -> Case:
    """Japanese Vowels has 12 features a step."""
    lengths = real.of_japanese_vowels(B)
    return Case(kind, "Japanese Vowels", Shape(B, max(lengths), 12, H), lengths)


def plaid(kind: str, B: int, H: int) -> Case:
    """PLAID has one feature a step."""
    lengths = real.of_plaid(B)
    return Case(kind, "PLAID", Shape(B, max(lengths), 1, H), lengths)


CASES = [
    *(uniform("LSTM", shape) for shape in (ODD, MEDIUM, LARGE, LARGEST, LONG)),
    *(vowels("LSTM", B, H) for B, H in ((32, 64), (128, 100))),
    *(plaid("LSTM", B, H) for B, H in ((32, 64), (64, 128))),
    *(case for kind in ("GRU", "RNN") for case in (uniform(kind, MEDIUM), vowels(kind, 32, 64), plaid(kind, 32, 64))),
]
QUICK = [uniform("LSTM", TINY), uniform("GRU", TINY), uniform("RNN", TINY), vowels("LSTM", 3, 5)]


def measure(options: Options, case: Case) -> Row:
    kind, name, shape, lengths = case
    pair = PAIRS[kind](shape)
    inputs = torch.randn(shape.B, shape.T, shape.I, requires_grad=True)
    cotangent = torch.randn(shape.B, shape.T, shape.H)
    our_step = training(ours(pair.cell, lengths), inputs, pair.weights, cotangent)
    dense_step = training(ours(pair.cell), inputs, pair.weights, cotangent)
    their_step = training(theirs(pair.module, lengths), inputs, list(pair.module.parameters()), cotangent)
    difference = check(f"{kind} {shape} {name}", pair.trained_as_torch(our_step()), their_step())
    turns = {"throughtime": timed(our_step), "torch": timed(their_step), "dense": timed(dense_step)}
    seconds = interleaved(turns, rounds=options.rounds, seconds=options.seconds)
    times = {who: summary(taken) for who, taken in seconds.items()}
    share = sum(lengths) / (shape.B * shape.T)
    return {
        "cell": kind,
        **shape.named(),
        "lengths": name,
        "share": round(share, 4),
        **times,
        "ratio": ratio(times["torch"], times["throughtime"]),
        "over_share": round(ratio(times["throughtime"], times["dense"]) / share, 3),
        "backend": backend_of(pair.cell, inputs, lengths),
        "difference": difference,
    }


def main() -> None:
    options = read_options(__doc__ or "", seconds=4.0)
    run_suite("ragged-training", QUICK if options.quick else CASES, partial(measure, options), options)


if __name__ == "__main__":
    main()
