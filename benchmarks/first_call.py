"""How long the first training step of a new cell takes: cold, and from the disk cache; with few steps and with many.

Every number comes from a fresh process, the median of a few. Imports are not counted, except those that the call itself
makes. Gradients of the first step and of the next must be equal.

    python benchmarks/first_call.py [--quick]
"""

from __future__ import annotations

import tempfile
import time
from functools import partial
from statistics import median
from typing import Any

import torch

from fresh import ask, is_asked
from layouts import Row
from runs import check, ours
from suite import Options, read_options, run_suite
from user_cells import LayerNormLSTM, lstm

CELLS = {"LSTM": lstm, "layer-norm LSTM": LayerNormLSTM}
SIZE = 64
CASES = [(kind, T) for kind in CELLS for T in (10, 100_000)]
QUICK = [("LSTM", 10)]


def answer(case: dict[str, Any]) -> dict[str, Any]:
    """In a fresh process: the seconds of the first step and of the next two, the shorter one."""
    cell = CELLS[case["kind"]](SIZE, SIZE)
    run, inputs, weights = ours(cell), torch.randn(1, case["T"], SIZE), torch.randn(1, case["T"], SIZE)
    seconds, left = [], []
    for _ in range(3):
        cell.zero_grad()
        start = time.perf_counter()
        # A loss of one number: to be handed a gradient of the outputs, torch would first import half a second of sympy.
        (run(inputs) * weights).sum().backward()
        seconds.append(time.perf_counter() - start)
        left.append([weight.grad for weight in cell.parameters()])
    check("the first step and the next", left[0], left[1])
    return {"first_s": seconds[0], "next_s": min(seconds[1:])}


def measure(options: Options, case: tuple[str, int]) -> list[Row]:
    """One result for an empty cache and one for the cache that the cold run left."""
    kind, T = case
    taken: dict[str, list[dict[str, Any]]] = {"cold": [], "disk": []}
    for _ in range(options.rounds):
        with tempfile.TemporaryDirectory() as folder:
            for answers in taken.values():
                answers.append(ask(__file__, {"kind": kind, "T": T}, {"THROUGHTIME_CACHE_DIR": folder}))
    rows = []
    for cache, answers in taken.items():
        first, following = (median(one[key] for one in answers) for key in ("first_s", "next_s"))
        rows.append(
            {
                "cell": kind,
                "T": T,
                "cache": cache,
                "first_s": round(first, 3),
                "next_s": round(following, 4),
                "extra_s": round(first - following, 3),
                "rounds": options.rounds,
            }
        )
    return rows


def main() -> None:
    if is_asked(answer):
        return
    options = read_options(__doc__ or "", rounds=3)
    run_suite("first-call", QUICK if options.quick else CASES, partial(measure, options), options)


if __name__ == "__main__":
    main()
