"""What every benchmark shares: a fair clock, the machine it ran on, and the dated file it leaves behind."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import torch

import throughtime as tt

RESULTS = Path(__file__).parent / "results"


def interleaved(runs: dict[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Seconds of each run, `rounds` times; the runs take turns, so that a busy moment hits all of them alike."""
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for run in runs.values():
        run()
    for _ in range(rounds):
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - start)
    return seconds


def summary(seconds: list[float]) -> dict[str, float]:
    """The median and the quartiles, in milliseconds."""
    low, median, high = (round(1000 * value, 3) for value in np.quantile(seconds, [0.25, 0.5, 0.75]).tolist())
    return {"median_ms": median, "lower_quartile_ms": low, "upper_quartile_ms": high}


def machine() -> dict[str, Any]:
    """What a reader must know to compare: processor, threads, versions."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "system": platform.platform(terse=True),
        "python": platform.python_version(),
        "versions": {module.__name__: module.__version__ for module in (tt, torch, np)},
    }


def save(name: str, results: list[dict[str, Any]]) -> Path:
    """Write `results` with today's date and the machine to benchmarks/results/, and say where."""
    RESULTS.mkdir(exist_ok=True)
    today = date.today().isoformat()  # noqa: DTZ011 (the day where the machine stands)
    path = RESULTS / f"{today}-{name}.json"
    about = json.dumps({"benchmark": name, "date": today, "machine": machine()}, indent=2).removesuffix("\n}")
    # One line a result, so that two files compare line by line.
    rows = ",\n".join(f"    {json.dumps(result)}" for result in results)
    path.write_text(f'{about},\n  "results": [\n{rows}\n  ]\n}}\n')
    return path


def _processor() -> str:
    """The processor's own name where Linux tells it, else what Python knows."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
