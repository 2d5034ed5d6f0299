"""What `parallel_iterations` trades: memory and time of one call as it shrinks, each in a fresh process.

Outputs and gradients are compared with those of the default before anything is measured. Inference runs on `aten`:
in a kernel there is nothing to bound.

    python benchmarks/parallel_iterations.py [--quick]
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

import throughtime as tt
from fresh import ask, is_asked
from layouts import Row
from peak import KEEP_NOTHING, growth
from record import interleaved, summary, timed
from runs import check, inference, ours, training
from shapes import Shape
from suite import Options, read_options, run_suite
from user_cells import lstm

SHAPE = Shape(64, 512, 256, 256)
QUICK_SHAPE = Shape(8, 16, 32, 32)
VALUES = (None, 256, 64, 16, 4, 1)
MODES = {"inference on aten": "aten", "training": "auto"}


def prepared(case: dict[str, Any]) -> Callable[[int | None], Callable[[], Any]]:
    """From a value of `parallel_iterations` to a step."""
    shape = Shape(*case["shape"])
    cell, trains = lstm(shape.I, shape.H), case["mode"] == "training"
    inputs = torch.randn(shape.B, shape.T, shape.I, requires_grad=trains)
    cotangent = torch.randn(shape.B, shape.T, shape.H)

    def step(value: int | None) -> Callable[[], Any]:
        run = ours(cell, parallel_iterations=value)
        return training(run, inputs, list(cell.parameters()), cotangent) if trains else inference(run, inputs)

    return step


def answer(case: dict[str, Any]) -> dict[str, Any]:
    """In a fresh process: growth of memory, then time, then whether the results are those of the default."""
    shape, value = case["shape"], case["value"]
    with tt.backend(MODES[case["mode"]]):
        prepared({**case, "shape": [2, 3, *shape[2:]]})(value)()
        step = prepared(case)
        mib = growth(step(value))
        seconds = interleaved({"throughtime": timed(step(value))}, rounds=case["rounds"], seconds=case["seconds"])
        difference = check(str(value), step(value)(), step(None)())
    return {"mib": mib, "seconds": seconds["throughtime"], "difference": difference}


def measure(options: Options, shape: Shape, case: tuple[str, int | None]) -> Row:
    mode, value = case
    asked = {"shape": list(shape), "mode": mode, "value": value, "rounds": options.rounds, "seconds": options.seconds}
    found = ask(__file__, asked, KEEP_NOTHING)
    return {
        **shape.named(),
        "mode": mode,
        "parallel_iterations": value,
        "peak_mib": round(found["mib"], 2),
        "throughtime": summary(found["seconds"]),
        "difference": found["difference"],
    }


def main() -> None:
    if is_asked(answer):
        return
    options = read_options(__doc__ or "", seconds=1.0)
    shape = QUICK_SHAPE if options.quick else SHAPE
    cases = [(mode, value) for mode in MODES for value in (VALUES[::5] if options.quick else VALUES)]
    run_suite("parallel-iterations", cases, partial(measure, options, shape), options)


if __name__ == "__main__":
    main()
