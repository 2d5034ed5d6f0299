"""Training of cells that compute with matrices of a row, such as attention, against their eager loops.

The eager loop is a Python loop over the same cell, differentiated by autograd. Outputs and the gradients of inputs and
weights are compared before anything is timed.

    python benchmarks/matrix_cells.py [--quick]
"""

from __future__ import annotations

from functools import partial

import torch

from layouts import Row
from record import interleaved, ratio, summary, timed
from runs import backend_of, check, eager_loop, ours, training
from shapes import TINY, Shape
from suite import Options, read_options, run_suite
from user_cells import MATRIX_CELLS

SHAPES = (Shape(1, 100, 64, 64), Shape(16, 100, 32, 32), Shape(32, 50, 64, 64), Shape(32, 50, 128, 128))
CASES = [(name, shape) for name in MATRIX_CELLS for shape in SHAPES]
QUICK = [(name, TINY._replace(H=12)) for name in MATRIX_CELLS]


def measure(options: Options, case: tuple[str, Shape]) -> Row:
    name, shape = case
    cell = MATRIX_CELLS[name](shape.I, shape.H)
    inputs = torch.randn(shape.B, shape.T, shape.I, requires_grad=True)
    cotangent = torch.randn(shape.B, shape.T, shape.H)
    our_step, eager_step = (
        training(run(cell), inputs, list(cell.parameters()), cotangent) for run in (ours, eager_loop)
    )
    difference = check(f"{name} {shape}", our_step(), eager_step())
    turns = {"throughtime": timed(our_step), "eager": timed(eager_step)}
    seconds = interleaved(turns, rounds=options.rounds, seconds=options.seconds)
    times = {who: summary(taken) for who, taken in seconds.items()}
    return {
        "cell": name,
        **shape.named(),
        **times,
        "ratio": ratio(times["eager"], times["throughtime"]),
        "backend": backend_of(cell, inputs),
        "difference": difference,
    }


def main() -> None:
    options = read_options(__doc__ or "")
    run_suite("matrix-cells", QUICK if options.quick else CASES, partial(measure, options), options)


if __name__ == "__main__":
    main()
