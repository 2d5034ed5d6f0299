"""Training of a user's own cells on a GPU, against their eager loops and against our own LSTM of equal size.

python benchmarks/gpu_own_cells.py [--quick]
"""

from __future__ import annotations

from functools import partial

import torch
from gpu_clock import check, is_mine, on_card
from layouts import Row
from record import interleaved, ratio, summary
from runs import backend_of, eager_loop, ours, training
from shapes import TINY, Shape
from suite import Options, read_options, run_suite

from user_cells import OWN_CELLS

CASES = [(name, shape) for name in OWN_CELLS for shape in (Shape(32, 128, 256, 256), Shape(64, 128, 512, 512))]
QUICK = [(name, TINY) for name in OWN_CELLS]


def measure(options: Options, case: tuple[str, Shape]) -> Row:
    name, shape = case
    cell, plain = (make(shape.I, shape.H).cuda() for make in OWN_CELLS[name])
    inputs = torch.randn(shape.B, shape.T, shape.I, device="cuda", requires_grad=True)
    cotangent = torch.randn(shape.B, shape.T, shape.H, device="cuda")
    our_step, eager_step = (
        training(run(cell), inputs, list(cell.parameters()), cotangent) for run in (ours, eager_loop)
    )
    plain_step = training(ours(plain), inputs, list(plain.parameters()), cotangent)
    cell.eval()
    difference = check(f"{name} {shape}", our_step(), eager_step())
    cell.train()
    turns = {"throughtime": on_card(our_step), "eager": on_card(eager_step), "lstm": on_card(plain_step)}
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
    options = read_options(__doc__ or "", seconds=0.0, rounds=5)
    torch.set_float32_matmul_precision("high")
    cases = [case for index, case in enumerate(QUICK if options.quick else CASES) if is_mine(index)]
    run_suite("gpu-own-cells", cases, partial(measure, options), options)


if __name__ == "__main__":
    main()
