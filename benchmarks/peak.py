"""The peak of a process's memory over one call, as Linux counts it."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable
from pathlib import Path

STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
KEEP_NOTHING = {"MALLOC_MMAP_THRESHOLD_": "262144", "MALLOC_TRIM_THRESHOLD_": "262144"}
"""For the environment: malloc gives what is freed back at once, so that a peak is of what is in use."""


def growth(run: Callable[[], object]) -> float:
    """By how many MiB the resident memory exceeds, at its peak during the call, what it was before."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    # Writing 5 makes the peak start again from here.
    CLEAR.write_text("5")
    before = _kib("VmRSS")
    run()
    return (_kib("VmHWM") - before) / 1024


def _kib(field: str) -> int:
    lines = STATUS.read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:"))
