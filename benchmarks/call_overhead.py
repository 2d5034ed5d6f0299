"""What one small call costs: B1 T1 H16, where there is next to nothing to compute, against `torch.nn.LSTM`.

python benchmarks/call_overhead.py [--quick]
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from layouts import Row
from pairs import lstm_pair
from record import interleaved, summary, timed
from runs import Run, backend_of, check, inference, ours, theirs, training
from shapes import Shape
from suite import Options, read_options, run_suite

SHAPE = Shape(1, 1, 16, 16)

Prepare = Callable[[Run, Tensor, list[Tensor]], Callable[[], object]]
MODES: dict[str, Prepare] = {
    "inference": lambda run, inputs, weights: inference(run, inputs),
    "forward, gradients wanted": lambda run, inputs, weights: partial(run, inputs),
    "forward and backward": lambda run, inputs, weights: training(run, inputs, weights, torch.ones(1, 1, SHAPE.H)),
}
"""The goal speaks of one call; the last mode is shown beside it."""


def measure(options: Options, mode: str) -> Row:
    pair, inputs = lstm_pair(SHAPE), torch.randn(SHAPE.B, SHAPE.T, SHAPE.I, requires_grad=True)
    our_run, their_run = ours(pair.cell), theirs(pair.module)
    difference = check(mode, our_run(inputs), their_run(inputs))
    prepare = MODES[mode]
    turns = {
        "ours": timed(prepare(our_run, inputs, pair.weights)),
        "torch": timed(prepare(their_run, inputs, list(pair.module.parameters()))),
    }
    seconds = interleaved(turns, rounds=options.rounds, seconds=options.seconds)
    micro = {who: round(1000 * summary(taken)["median_ms"], 1) for who, taken in seconds.items()}
    return {
        "mode": mode,
        "is_a_call": mode != "forward and backward",
        **SHAPE.named(),
        "ours_us": micro["ours"],
        "torch_us": micro["torch"],
        "beyond_us": round(micro["ours"] - micro["torch"], 1),
        "backend": backend_of(pair.cell, inputs),
        "difference": difference,
    }


def main() -> None:
    options = read_options(__doc__ or "")
    run_suite("call-overhead", MODES, partial(measure, options), options)


if __name__ == "__main__":
    main()
