"""Peak memory of a training step against torch.nn's, each in fresh processes.

What counts is the growth of the resident memory over one whole step: outputs, all that is kept for the backward pass,
and the gradients. Inputs and weights are there before. A step on a tiny batch comes first, so that neither libraries
nor compiled code are counted. After the measurement, the process of ours compares its gradients with torch's.

    python benchmarks/memory.py [--quick]
"""

from __future__ import annotations

from functools import partial
from statistics import median
from typing import Any, NamedTuple

import torch

from fresh import ask, is_asked
from layouts import Row
from lengths import uniform
from pairs import PAIRS
from peak import KEEP_NOTHING, growth
from runs import check, ours, theirs, training
from shapes import LARGE, LONG, MEDIUM, TINY, Shape
from suite import Options, read_options, run_suite


class Case(NamedTuple):
    kind: str
    shape: Shape
    lengths: str = "T"

    def __str__(self) -> str:
        return f"{self.kind} {self.shape} {self.lengths}"


WIDE = Shape(128, 200, 64, 128)
CASES = [
    *(Case("LSTM", shape) for shape in (MEDIUM, LARGE, LONG, WIDE)),
    *(Case(kind, shape) for kind in ("GRU", "RNN") for shape in (LARGE, LONG)),
    *(Case("LSTM", shape, "uniform") for shape in (LARGE, LONG)),
]
QUICK = [Case("LSTM", Shape(32, 20, 64, 64)), Case("LSTM", Shape(32, 20, 64, 64), "uniform")]


def steps(kind: str, shape: Shape, ragged: bool) -> dict[str, Any]:
    """A training step of ours and one of torch, with the same weights."""
    pair = PAIRS[kind](shape)
    lengths = uniform(shape.B, shape.T) if ragged else None
    inputs = torch.randn(shape.B, shape.T, shape.I, requires_grad=True)
    cotangent = torch.randn(shape.B, shape.T, shape.H)
    our_step = training(ours(pair.cell, lengths), inputs, pair.weights, cotangent)
    their_step = training(theirs(pair.module, lengths), inputs, list(pair.module.parameters()), cotangent)
    return {"ours": our_step, "torch": their_step, "as_torch": pair.trained_as_torch}


def answer(case: dict[str, Any]) -> dict[str, Any]:
    """In a fresh process: the growth over one step of one side; from ours, also the difference of the two."""
    kind, shape, ragged, who = case["kind"], Shape(*case["shape"]), case["ragged"], case["who"]
    steps(kind, TINY._replace(I=shape.I, H=shape.H), ragged)[who]()
    both = steps(kind, shape, ragged)
    mib = growth(both[who])
    if who == "torch":
        return {"mib": mib}
    return {"mib": mib, "difference": check(str(shape), both["as_torch"](both["ours"]()), both["torch"]())}


def measure(options: Options, case: Case) -> Row:
    asked = {"kind": case.kind, "shape": list(case.shape), "ragged": case.lengths != "T"}
    answers = {
        who: [ask(__file__, {**asked, "who": who}, KEEP_NOTHING) for _ in range(options.rounds)]
        for who in ("ours", "torch")
    }
    mib = {who: median(one["mib"] for one in found) for who, found in answers.items()}
    return {
        "cell": case.kind,
        **case.shape.named(),
        "lengths": case.lengths,
        "ours_mib": round(mib["ours"], 2),
        "torch_mib": round(mib["torch"], 2),
        "of_torch": round(mib["ours"] / mib["torch"], 3),
        "difference": max(one["difference"] for one in answers["ours"]),
    }


def main() -> None:
    if is_asked(answer):
        return
    options = read_options(__doc__ or "", rounds=1)
    run_suite("memory", QUICK if options.quick else CASES, partial(measure, options), options)


if __name__ == "__main__":
    main()
