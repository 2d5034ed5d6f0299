"""Fresh memory that another thread touches ahead."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from throughtime.native import prefault

pytestmark = [
    pytest.mark.covers("memory"),
    pytest.mark.skipif(sys.platform != "linux", reason="only Linux can be asked to touch memory"),
]

BYTES = 1 << 26


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def is_known() -> bool:
    """Whether this system knows how: from 5.14 on."""
    page = np.zeros(2 * prefault._PAGE, dtype=np.uint8)
    start = -(-page.ctypes.data // prefault._PAGE) * prefault._PAGE
    return bool(prefault._madvise()(start, prefault._PAGE, prefault._POPULATE_WRITE) == 0)


def is_soon(condition: Callable[[], bool]) -> bool:
    end = time.monotonic() + 10
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.01)
    return False


def test_it_is_there_before_anybody_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    if not is_known():
        pytest.skip("this system does not know how")
    monkeypatch.setattr(prefault.os, "sched_getaffinity", lambda _: {0, 1})
    before = resident_bytes()
    memory = np.empty(BYTES, dtype=np.uint8)
    assert resident_bytes() - before < BYTES // 2
    prefault.touch_ahead(memory)
    assert is_soon(lambda: resident_bytes() - before > BYTES // 2)


def test_what_is_written_stays() -> None:
    memory = np.arange(BYTES // 8, dtype=np.int64)
    prefault._touch(memory.ctypes.data, memory.nbytes)
    assert np.array_equal(memory, np.arange(BYTES // 8))


def test_a_forked_process_has_a_thread_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefault.os, "sched_getaffinity", lambda _: {0, 1})
    prefault.touch_ahead(np.empty(BYTES, dtype=np.uint8))
    parent = prefault._toucher
    prefault._renew()
    assert prefault._toucher is not parent
    prefault.touch_ahead(np.empty(BYTES, dtype=np.uint8))
    assert prefault._toucher._started


def test_one_core_has_nobody_to_spare(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefault.os, "sched_getaffinity", lambda _: {0})
    monkeypatch.setattr(prefault, "_toucher", None)
    prefault.touch_ahead(np.empty(1, dtype=np.uint8))
