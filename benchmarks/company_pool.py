"""A network on the pool of threads that serves where torch's OpenMP runtime cannot be used, against torch.

Torch's own threads spin for a while after each of its operators, and the pool's share the cores with them: that is what
is measured. As in `company.py`, every measurement is a process of its own, those on torch's threads and on the pool
alternate, and outputs and gradients are compared first. Shows a table and saves nothing; the goal is a ratio of 0.95.

    python benchmarks/company_pool.py [--quick]
"""

from __future__ import annotations

import os
from functools import partial
from statistics import median
from typing import Any

import company
from fresh import Case, ask, is_asked
from layouts import Row
from shapes import TINY, Shape
from suite import Options, read_options, run_suite
from throughtime.native.threads import team
from throughtime.native.threads.pool import Pool


def answer(case: Case) -> dict[str, Any]:
    """In a fresh process: as `company.answer`, on the threads that the case says."""
    if case["pool"]:
        team._team = Pool()
    return company.answer(case)


def measure(options: Options, processes: int, shape: Shape, waiting: str) -> list[Row]:
    case = {"shape": shape, "rounds": options.rounds, "seconds": options.seconds, "after": ""}
    on_team, on_pool = [], []
    for _ in range(processes):
        on_team.append(ask(__file__, {**case, "pool": False}))
        on_pool.append(ask(__file__, {**case, "pool": True}))
    rows = []
    for mode in company.MODES:
        team_ratio, pool_ratio = (median(found[mode] for found in each) for each in (on_team, on_pool))
        rows.append(
            {
                "cell": "LSTM, 2 layers",
                **shape.named(),
                "company": f"torch's threads, {waiting}",
                "mode": mode,
                "alone": round(team_ratio, 3),
                "ratio": round(pool_ratio, 3),
                "of_alone": round(pool_ratio / team_ratio, 3),
                "runtime": "pool",
            }
        )
    return rows


def main() -> None:
    if is_asked(answer):
        return
    options = read_options(__doc__ or "", seconds=2.0, rounds=10)._replace(results=None)
    processes, shape = (1, TINY) if options.quick else (5, company.SHAPE)
    waiting = os.environ.get("OMP_WAIT_POLICY", "as they wait by default")
    run_suite("company", [waiting], partial(measure, options, processes, shape), options)


if __name__ == "__main__":
    main()
