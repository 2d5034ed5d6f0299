"""Training of a user's own cells against their eager loops, and against our own LSTM of equal size.

The eager loop is what one writes without this package: a Python loop over the same cell, differentiated by autograd.
Outputs and the gradients of inputs and weights are compared before anything is timed. Dropout is off for that, since
the two draw their masks in another order; both are timed with it.

    python benchmarks/own_cells.py [--quick]
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch

from layouts import Row
from record import Turn, interleaved, ratio, summary, timed
from runs import backend_of, check, eager_loop, ours, training
from shapes import LARGE, LONG, MEDIUM, ODD, SMALL, TINY, Shape
from suite import Options, read_options, run_suite
from user_cells import OWN_CELLS

CASES = [(name, shape) for name in OWN_CELLS for shape in (SMALL, ODD, MEDIUM, LARGE, LONG)]
QUICK = [(name, TINY) for name in OWN_CELLS]


def measure(
    options: Options,
    case: tuple[str, Shape],
    *,
    device: str = "cpu",
    clock: Callable[[Callable[[], object]], Turn] = timed,
    check: Callable[..., float] = check,
) -> Row:
    """One result; another device has a clock of its own, and a comparison for its precision."""
    name, shape = case
    cell, plain = (make(shape.I, shape.H).to(device) for make in OWN_CELLS[name])
    inputs = torch.randn(shape.B, shape.T, shape.I, device=device, requires_grad=True)
    cotangent = torch.randn(shape.B, shape.T, shape.H, device=device)
    our_step, eager_step = (
        training(run(cell), inputs, list(cell.parameters()), cotangent) for run in (ours, eager_loop)
    )
    plain_step = training(ours(plain), inputs, list(plain.parameters()), cotangent)
    cell.eval()
    difference = check(f"{name} {shape}", our_step(), eager_step())
    cell.train()
    turns = {"throughtime": clock(our_step), "eager": clock(eager_step), "lstm": clock(plain_step)}
    seconds = interleaved(turns, rounds=options.rounds, seconds=options.seconds)
    times = {who: summary(taken) for who, taken in seconds.items()}
    return {
        "cell": name,
        **shape.named(),
        **times,
        "ratio": ratio(times["eager"], times["throughtime"]),
        "of_lstm": ratio(times["throughtime"], times["lstm"]),
        "backend": backend_of(cell, inputs),
        "difference": difference,
    }


def main() -> None:
    options = read_options(__doc__ or "")
    run_suite("own-cells", QUICK if options.quick else CASES, partial(measure, options), options)


if __name__ == "__main__":
    main()
