"""Compare the speed of two source trees: run benchmark suites on both alternately, show the ratio of every shape.

python tools/compare_trees.py OLD/src NEW/src [--suites call_overhead drop_in] [--repeats 3] [--seconds 1]

A suite measures throughtime and its peers; only the times of throughtime count here. Of all repeats of a shape the
fastest counts: other processes can only slow a run down. The exit status is 1 if the geometric mean of NEW over OLD
is above `--mean` or a shape is above `--worst`.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
SUITES = ("call_overhead", "drop_in", "dense_training", "ragged_training", "inference")
LABELS = ("cell", "mode", "form", "lengths", "name", "shape")

Times = dict[str, float]
"""Milliseconds by the label of a shape."""


def time_of(row: dict[str, Any]) -> float:
    """The milliseconds of throughtime in a row of any suite."""
    if "ours_us" in row:
        return float(row["ours_us"]) / 1000
    return float(row["throughtime"]["lower_quartile_ms"])


def label_of(suite: str, row: dict[str, Any]) -> str:
    """A row by what is measured, without the results."""
    parts = [row[name] for name in LABELS if name in row]
    words = [
        " ".join(f"{axis}{size}" for axis, size in part.items()) if isinstance(part, dict) else part for part in parts
    ]
    return ": ".join([suite, ", ".join(map(str, words))])


def measure(tree: Path, suite: str, options: Sequence[str]) -> Times:
    """The times of one run of a suite on a source tree, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, str(BENCHMARKS / f"{suite}.py"), "--results", folder, *options]
        path = os.pathsep.join(map(str, (tree.resolve(), BENCHMARKS)))
        done = subprocess.run(
            command, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise SystemExit(f"{suite} fails on {tree}:\n{done.stderr or done.stdout}")
        (saved,) = Path(folder).glob("*.json")
        rows = json.loads(saved.read_text())["results"]
    return {label_of(suite, row): time_of(row) for row in rows}


def fastest(runs: Sequence[Times]) -> Times:
    """Of each shape the shortest time of several runs."""
    return {label: min(run[label] for run in runs) for label in runs[0]}


def alternately(trees: Sequence[Path], suite: str, repeats: int, options: Sequence[str]) -> Iterator[Times]:
    """The fastest times on each tree; the trees run alternately, in the opposite order every other time."""
    runs: list[list[Times]] = [[] for _ in trees]
    for repeat in range(repeats):
        order = range(len(trees)) if repeat % 2 == 0 else reversed(range(len(trees)))
        for index in order:
            runs[index].append(measure(trees[index], suite, options))
    return map(fastest, runs)


def geometric_mean(ratios: Sequence[float]) -> float:
    """The mean that does not depend on which tree is the first."""
    return math.exp(math.fsum(map(math.log, ratios)) / len(ratios))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("old", type=Path, help="the folder that holds the package `throughtime` to compare with")
    parser.add_argument("new", type=Path, help="the folder that holds the changed package")
    parser.add_argument("--suites", nargs="+", default=SUITES, metavar="NAME", help="(default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=3, help="runs of each suite on each tree (default: %(default)s)")
    parser.add_argument("--mean", type=float, default=1.02, help="the largest geometric mean (default: %(default)s)")
    parser.add_argument("--worst", type=float, default=1.05, help="the largest ratio of a shape (default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help="tiny cases: does it work?")
    parser.add_argument("--seconds", type=float, help="to spend on a shape (default: that of the suite)")
    parser.add_argument("--only", default="", metavar="TEXT", help="cases with TEXT in their name")
    given = parser.parse_args()
    for tree in (given.old, given.new):
        if not (tree / "throughtime").is_dir():
            parser.error(f"{tree} holds no package `throughtime`")
    options = ["--quick"] if given.quick else []
    options += [] if given.seconds is None else ["--seconds", str(given.seconds)]
    options += ["--only", given.only] if given.only else []
    ratios: dict[str, float] = {}
    print("      old ms       new ms  new/old")
    for suite in given.suites:
        old, new = alternately((given.old, given.new), suite, given.repeats, options)
        for label in old:
            ratios[label] = new[label] / old[label]
            print(f"{old[label]:12.4f} {new[label]:12.4f}  {ratios[label]:7.3f}  {label}", flush=True)
    mean, worst = geometric_mean(list(ratios.values())), max(ratios, key=ratios.__getitem__)
    print(
        f"geometric mean {mean:.3f} (at most {given.mean}), worst {ratios[worst]:.3f} (at most {given.worst}): {worst}"
    )
    sys.exit(mean > given.mean or ratios[worst] > given.worst)


if __name__ == "__main__":
    main()
