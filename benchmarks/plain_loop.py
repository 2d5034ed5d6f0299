"""Inference and training of cells that no kernel takes, against the plain Python loop over the same cell.

Such a cell runs step by step, on torch operations or on the reference; then a call must not take longer than the loop
that one writes without this package. Outputs, and in training the gradients of inputs and weights, are compared before
anything is timed.

    python benchmarks/plain_loop.py [--quick]
"""

from __future__ import annotations

from functools import partial

import torch

from layouts import Row
from record import interleaved, ratio, summary, timed
from runs import backend_of, check, eager_loop, inference, ours, training
from shapes import TINY, Shape
from suite import Options, read_options, run_suite
from user_cells import LOOPED_CELLS

MODES = ("inference", "training")
SHAPES = (Shape(1, 100, 32, 64), Shape(8, 100, 32, 64), Shape(32, 50, 32, 64))
CASES = [(name, mode, shape) for name in LOOPED_CELLS for mode in MODES for shape in SHAPES]
QUICK = [(name, mode, TINY) for name in LOOPED_CELLS for mode in MODES]


def measure(options: Options, case: tuple[str, str, Shape]) -> Row:
    name, mode, shape = case
    cell = LOOPED_CELLS[name](shape.I, shape.H)
    inputs = torch.randn(shape.B, shape.T, shape.I, requires_grad=mode == "training")
    cotangent = torch.randn(shape.B, shape.T, shape.H)
    our_step, eager_step = (
        inference(run(cell), inputs)
        if mode == "inference"
        else training(run(cell), inputs, list(cell.parameters()), cotangent)
        for run in (ours, eager_loop)
    )
    difference = check(f"{name}, {mode}, {shape}", our_step(), eager_step())
    turns = {"throughtime": timed(our_step), "eager": timed(eager_step)}
    seconds = interleaved(turns, rounds=options.rounds, seconds=options.seconds)
    times = {who: summary(taken) for who, taken in seconds.items()}
    return {
        "cell": name,
        "mode": mode,
        **shape.named(),
        **times,
        "ratio": ratio(times["eager"], times["throughtime"]),
        "backend": backend_of(cell, inputs),
        "difference": difference,
    }


def main() -> None:
    options = read_options(__doc__ or "")
    run_suite("plain-loop", QUICK if options.quick else CASES, partial(measure, options), options)


if __name__ == "__main__":
    main()
