"""Loops that the GPU kernels do not take, replayed as CUDA graphs, against their eager loops.

*Ragged* is training on lengths between 1 and T, against the plain loop of the package, which leaves out padding too.
Outputs and gradients are compared before anything is timed.

    python benchmarks/gpu_graphs.py [--quick]
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

import throughtime as tt
from gpu_clock import check, is_mine, on_card
from layouts import Row
from record import interleaved, ratio, summary
from runs import Run, eager_loop, inference, ours, training
from shapes import Shape
from suite import Options, read_options, run_suite
from user_cells import FastWeights

MODES = ("inference", "training", "ragged")


def images(channels: int, filters: int) -> tt.RNNCell:
    """A convolutional LSTM over images of 16 x 16 points."""
    return tt.cells.Conv2DLSTMCell((16, 16, channels), filters, (3, 3))


class Kind(NamedTuple):
    """A cell from the sizes of inputs and state, its dtype, the dimensions of inputs, and sizes to measure at."""

    make: Callable[[int, int], tt.RNNCell]
    dtype: torch.dtype
    shapes: tuple[Shape, ...]
    points: tuple[int, ...] = ()


DOUBLE, SINGLE = torch.float64, torch.float32
USUAL = (Shape(32, 128, 256, 256), Shape(64, 256, 512, 512))
KINDS: dict[str, Kind] = {
    "LSTM": Kind(lambda inputs, units: tt.LSTMCell(units, input_size=inputs), DOUBLE, USUAL),
    "GRU": Kind(lambda inputs, units: tt.GRUCell(units, input_size=inputs), DOUBLE, USUAL),
    "convolutional LSTM": Kind(images, SINGLE, (Shape(8, 64, 4, 8), Shape(16, 64, 8, 16)), (16, 16)),
    "fast weights": Kind(FastWeights, SINGLE, (Shape(16, 128, 32, 32), Shape(32, 128, 64, 64))),
}


class Case(NamedTuple):
    """What is measured."""

    cell: str
    mode: str
    shape: Shape

    def __str__(self) -> str:
        return f"{self.cell} {self.mode} {self.shape}"


CASES = [Case(name, mode, shape) for name, kind in KINDS.items() for mode in MODES for shape in kind.shapes]
QUICK = [Case(name, mode, Shape(3, 41, 5, 6)) for name in KINDS for mode in MODES]


def measure(options: Options, case: Case) -> Row:
    torch.manual_seed(0)
    kind, shape = KINDS[case.cell], case.shape
    cell = kind.make(shape.I, shape.H).to("cuda", kind.dtype)
    inputs = torch.randn(shape.B, shape.T, *kind.points, shape.I, device="cuda", dtype=kind.dtype)
    lengths = None
    if case.mode == "ragged":
        lengths = torch.randint(1, shape.T + 1, (shape.B,), generator=torch.Generator().manual_seed(0)).tolist()
    runs: dict[str, Run] = {"throughtime": ours(cell, lengths), "eager": eager_loop(cell)}
    if lengths is not None:
        runs["eager"] = _reference(cell, lengths)
    with torch.no_grad():
        cotangent = torch.randn_like(runs["throughtime"](inputs))
    backend = tt.explain(cell, inputs, sequence_length=lengths, dtype=kind.dtype).backend
    if case.mode == "inference":
        steps: dict[str, Callable[[], Any]] = {who: inference(run, inputs) for who, run in runs.items()}
    else:
        inputs.requires_grad_()
        weights = list(cell.parameters())
        steps = {who: training(run, inputs, weights, cotangent) for who, run in runs.items()}
    wanted = steps["eager"]()
    # As it is, recorded, replayed.
    difference = max(check(str(case), steps["throughtime"](), wanted) for _ in range(3))
    turns = {who: on_card(step) for who, step in steps.items()}
    times = {
        who: summary(taken) for who, taken in interleaved(turns, rounds=options.rounds, seconds=options.seconds).items()
    }
    return {
        "cell": case.cell,
        "mode": case.mode,
        "dtype": str(kind.dtype).removeprefix("torch."),
        **shape.named(),
        **times,
        "ratio": ratio(times["eager"], times["throughtime"]),
        "backend": backend,
        "difference": difference,
    }


def _reference(cell: tt.RNNCell, lengths: list[int]) -> Run:
    run = ours(cell, lengths)

    def plain(inputs: Tensor) -> Tensor:
        with tt.backend("reference"):
            return run(inputs)

    return plain


def main() -> None:
    options = read_options(__doc__ or "", seconds=0.0, rounds=5)
    cases = [case for index, case in enumerate(QUICK if options.quick else CASES) if is_mine(index)]
    run_suite("gpu-graphs", cases, partial(measure, options), options)


if __name__ == "__main__":
    main()
