"""A network beside packages that bring an OpenMP runtime of their own: its speed against torch, of that without them.

Every measurement is a process of its own, with the package imported before torch or after it. Outputs and gradients are
compared with torch's before anything is timed. Processes without and with the package alternate.

    python benchmarks/company.py [--quick]
"""

from __future__ import annotations

import copy
import sys
from functools import partial
from importlib import import_module
from statistics import median
from typing import Any, NamedTuple

import torch
from torch import nn

import throughtime as tt
from fresh import Case, ask, is_asked
from layouts import Row
from peer import interpreter, missing
from record import interleaved, ratio, summary, timed
from runs import check, inference, training
from shapes import TINY, Shape
from suite import Options, read_options, run_suite

PACKAGES = {"scikit-learn": "sklearn.ensemble", "LightGBM": "lightgbm", "Numba": "numba"}
ORDERS = "before torch", "after torch"
SHAPE = Shape(32, 60, 128, 128)
MODES = "training", "inference"


class Company(NamedTuple):
    """A package, and whether it is imported before torch or after it."""

    package: str
    order: str

    def __str__(self) -> str:
        return f"{self.package}, {self.order}"


CASES = [Company(package, order) for package in PACKAGES for order in ORDERS]


def answer(case: Case) -> dict[str, Any]:
    """In a fresh process: how many times as fast as torch in both modes, and the runtime that was used."""
    if case["after"]:
        import_module(case["after"])
    shape = Shape(*case["shape"])
    theirs = nn.LSTM(shape.I, shape.H, num_layers=2, batch_first=True)
    ours = tt.accelerate(copy.deepcopy(theirs))
    inputs = torch.randn(shape.B, shape.T, shape.I, requires_grad=True)
    cotangent = torch.randn(shape.B, shape.T, shape.H)
    ratios = {}
    for mode in MODES:
        steps = {}
        for name, module in (("throughtime", ours), ("torch", theirs)):
            run = partial(_outputs, module)
            steps[name] = (
                training(run, inputs, list(module.parameters()), cotangent)
                if mode == "training"
                else inference(run, inputs.detach())
            )
        check(mode, steps["throughtime"](), steps["torch"]())
        turns = {name: timed(step) for name, step in steps.items()}
        taken = interleaved(turns, rounds=case["rounds"], seconds=case["seconds"])
        ratios[mode] = ratio(summary(taken["torch"]), summary(taken["throughtime"]))
    return {**ratios, "runtime": tt.threads().file}


def _outputs(module: nn.Module, inputs: torch.Tensor) -> torch.Tensor:
    outputs: torch.Tensor = module(inputs)[0]
    return outputs


def measure(options: Options, processes: int, shape: Shape, company: Company) -> list[Row]:
    python, package = interpreter("company"), PACKAGES[company.package]
    case = {"shape": shape, "rounds": options.rounds, "seconds": options.seconds, "after": ""}
    alone, beside = [], []
    for _ in range(processes):
        alone.append(ask(__file__, case, python=python))
        if company.order == "before torch":
            beside.append(ask(__file__, case, python=python, first=package))
        else:
            beside.append(ask(__file__, {**case, "after": package}, python=python))
    rows = []
    for mode in MODES:
        without, with_it = (median(found[mode] for found in each) for each in (alone, beside))
        rows.append(
            {
                "cell": "LSTM, 2 layers",
                **shape.named(),
                "company": str(company),
                "mode": mode,
                "alone": round(without, 3),
                "ratio": round(with_it, 3),
                "of_alone": round(with_it / without, 3),
                "runtime": beside[0]["runtime"].rpartition("/")[2],
            }
        )
    return rows


def main() -> None:
    if is_asked(answer):
        return
    options = read_options(__doc__ or "", seconds=2.0, rounds=10)
    if interpreter("company") is None:
        print(missing("company"), file=sys.stderr)
        return
    processes, shape = (1, TINY) if options.quick else (5, SHAPE)
    run_suite("company", CASES, partial(measure, options, processes, shape), options)


if __name__ == "__main__":
    main()
