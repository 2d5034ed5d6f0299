"""What every benchmark shares: a fair clock, the machine it ran on, and the dated file it leaves behind."""

from __future__ import annotations

import json
import math
import os
import platform
import time
from collections.abc import Callable, Sequence
from datetime import date
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch

import throughtime as tt

try:
    from llvmlite import binding as llvm
except ImportError:
    llvm = None

RESULTS = Path(__file__).parent / "results"

Turn = Callable[[int], list[float]]
"""Calls something a number of times in a row; the seconds of each call."""

SHORT = 0.05
"""A call of fewer seconds is repeated within a turn, after some that are not counted."""
SHORTEST_TURN = 0.02
WARMING = 0.01
"""Seconds of calls that are not counted: after a rest the processor's clock takes this long to rise."""
PAUSE = 0.003


def timed(run: Callable[[], object]) -> Turn:
    """The turn of something in this process."""

    def turn(calls: int) -> list[float]:
        seconds = []
        for _ in range(calls):
            start = time.perf_counter()
            run()
            seconds.append(time.perf_counter() - start)
        return seconds

    return turn


def interleaved(turns: dict[str, Turn], *, rounds: int, seconds: float = 0.0) -> dict[str, list[float]]:
    """Seconds a call of each, one number a round: at least `rounds`, and more until `seconds` are over.

    They take turns, each round in the opposite order, so that a busy moment hits all of them alike. A turn of short
    calls is many calls after some that find their own data in the caches again, as they do in a training loop.
    """
    calls = {name: _calls_in_a_turn(turn) for name, turn in turns.items()}
    taken: dict[str, list[float]] = {name: [] for name in turns}
    order, start, done = list(turns), time.perf_counter(), 0
    while done < rounds or time.perf_counter() - start < seconds:
        for name in order:
            # Threads that wait for work by spinning fall asleep before the next one starts.
            time.sleep(PAUSE)
            taken[name].append(_one_turn(turns[name], *calls[name]))
        order.reverse()
        done += 1
    return taken


def _calls_in_a_turn(turn: Turn) -> tuple[int, int]:
    """How many calls warm up, and how many make a turn long enough to time; neither has the first, which compile."""
    turn(1)
    if turn(1)[0] >= SHORT:
        return 0, 1
    fastest = min(turn(3))
    return math.ceil(WARMING / fastest), max(1, round(SHORTEST_TURN / fastest))


def _one_turn(turn: Turn, warming: int, calls: int) -> float:
    return fmean(turn(warming + calls)[warming:])


def summary(seconds: list[float]) -> dict[str, float]:
    """The median and the quartiles, in milliseconds, and of how many."""
    low, median, high = (float(f"{1000 * value:.5g}") for value in np.quantile(seconds, [0.25, 0.5, 0.75]).tolist())
    return {"median_ms": median, "lower_quartile_ms": low, "upper_quartile_ms": high, "rounds": len(seconds)}


def ratio(slower: dict[str, float], faster: dict[str, float]) -> float:
    """How many times as long the first takes as the second, by their medians."""
    return round(slower["median_ms"] / faster["median_ms"], 3)


def machine() -> dict[str, Any]:
    """What a reader must know to compare: processor, threads, versions."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "system": platform.platform(terse=True),
        "python": platform.python_version(),
        "versions": {module.__name__: module.__version__ for module in (tt, torch, np)} | _compilers(),
    }


def _compilers() -> dict[str, str]:
    found = {name for name in ("cpu", "llvmlite", "triton") if find_spec(name)}
    return {name: version(name) for name in sorted(found)}


def busy(seconds: float = 1.0) -> float | None:
    """The share of all cores that others use while this process sleeps; None where Linux does not tell."""
    stat = Path("/proc/stat")
    if not stat.exists():
        return None

    def ticks() -> tuple[int, int]:
        counts = [int(word) for word in stat.read_text().splitlines()[0].split()[1:9]]
        # The fourth and fifth are idle, and idle while waiting for a disk.
        return sum(counts), counts[3] + counts[4]

    before = ticks()
    time.sleep(seconds)
    total, idle = (after - earlier for after, earlier in zip(ticks(), before, strict=True))
    return round(1 - idle / max(total, 1), 2)


def save(
    name: str,
    results: Sequence[dict[str, Any]],
    goals: Sequence[dict[str, Any]] = (),
    folder: Path = RESULTS,
    **more: Any,
) -> Path:
    """Write `results` with today's date and the machine to `folder`, and say where.

    `goals` are those of the suite with what was reached; `more` is written beside the machine, unless it is empty.
    """
    folder.mkdir(parents=True, exist_ok=True)
    today = date.today().isoformat()  # noqa: DTZ011 (the day where the machine stands)
    path = folder / f"{today}-{name}.json"
    about = {"benchmark": name, "date": today, "machine": machine()}
    about |= {key: value for key, value in more.items() if value not in (None, {})}
    lists = {"goals": goals, "results": results} if goals else {"results": results}
    parts = [json.dumps(about, indent=2).removesuffix("\n}"), *(_lines(key, rows) for key, rows in lists.items())]
    path.write_text(",\n".join(parts) + "\n}\n")
    return path


def _lines(key: str, rows: Sequence[dict[str, Any]]) -> str:
    """One line a row, so that two files compare line by line."""
    lines = ",\n".join(f"    {json.dumps(row)}" for row in rows)
    return f'  "{key}": [\n{lines}\n  ]'


def _processor() -> str:
    """The processor's own name where Linux tells it, else what Python knows; and its kind, which the name may hide."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    name = names[0] if names else platform.processor() or platform.machine()
    return f"{name} ({llvm.get_host_cpu_name()})" if llvm is not None else name
