"""Training of dense batches: our LSTM, torch's GRU as a user's cell, and our RNN against `torch.nn`.

Outputs and the gradients of inputs and weights are compared with torch's before anything is timed.

    python benchmarks/dense_training.py [--quick]
"""

from __future__ import annotations

from functools import partial

import torch

from full_speed import floor
from layouts import Row
from pairs import PAIRS
from record import interleaved, ratio, summary, timed
from runs import backend_of, check, ours, theirs, training
from shapes import DENSE, TINY, Shape
from suite import Options, read_options, run_suite

CASES = [(kind, shape) for kind in PAIRS for shape in DENSE]
QUICK = [(kind, TINY) for kind in PAIRS]


def measure(options: Options, case: tuple[str, Shape]) -> Row:
    kind, shape = case
    pair = PAIRS[kind](shape)
    inputs = torch.randn(shape.B, shape.T, shape.I, requires_grad=True)
    cotangent = torch.randn(shape.B, shape.T, shape.H)
    our_step = training(ours(pair.cell), inputs, pair.weights, cotangent)
    their_step = training(theirs(pair.module), inputs, list(pair.module.parameters()), cotangent)
    difference = check(f"{kind} {shape}", pair.trained_as_torch(our_step()), their_step())
    seconds = interleaved(
        {"throughtime": timed(our_step), "torch": timed(their_step)}, rounds=options.rounds, seconds=options.seconds
    )
    times = {name: summary(taken) for name, taken in seconds.items()}
    return {
        "cell": kind,
        **shape.named(),
        **floor(kind, shape, training=True),
        **times,
        "ratio": ratio(times["torch"], times["throughtime"]),
        "backend": backend_of(pair.cell, inputs),
        "difference": difference,
    }


def main() -> None:
    options = read_options(__doc__ or "", seconds=2.5)
    run_suite("dense-training", QUICK if options.quick else CASES, partial(measure, options), options)


if __name__ == "__main__":
    main()
