"""Fresh memory touched ahead of its first use.

The system gives memory a page at a time, at the first touch of each, and on a virtual machine that may take longer than
what is computed into it. A loop over one long sequence keeps one core busy: meanwhile another can touch what is next.
"""

from __future__ import annotations

import ctypes
import os
import queue
import sys
import threading
from functools import cache
from typing import Any

import numpy as np

from throughtime._fork_safety import after_fork

# Writes to every page without changing what is there, on Linux from 5.14 on; others answer that they do not know it.
_POPULATE_WRITE = 23
_PAGE = 1 << 12
# At a time: whoever asks the system for memory meanwhile waits for no longer than this takes.
_PIECE = 1 << 22

_Memory = np.ndarray[Any, Any]


class _Toucher:
    """A thread that touches one piece of memory after another, started when there is some."""

    def __init__(self) -> None:
        self._wanted: queue.SimpleQueue[_Memory] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._started = False

    def add(self, memory: _Memory) -> None:
        self._wanted.put(memory)
        with self._lock:
            if not self._started:
                threading.Thread(target=self._work, name="throughtime-touch", daemon=True).start()
                self._started = True

    def _work(self) -> None:
        while True:
            # It is held until it has been touched: whoever it was for may be done with it before.
            memory = self._wanted.get()
            _touch(memory.ctypes.data, memory.nbytes)
            del memory


def _touch(address: int, nbytes: int) -> None:
    madvise = _madvise()
    first, last = -(-address // _PAGE) * _PAGE, (address + nbytes) // _PAGE * _PAGE
    for start in range(first, last, _PIECE):
        if madvise(start, min(_PIECE, last - start), _POPULATE_WRITE):
            return


@cache
def _madvise() -> Any:
    madvise = ctypes.CDLL(None).madvise
    madvise.restype, madvise.argtypes = ctypes.c_int, (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return madvise


_toucher = _Toucher()


@after_fork
def _renew() -> None:
    global _toucher  # noqa: PLW0603
    _toucher = _Toucher()


def touch_ahead(memory: _Memory) -> None:
    """Have the pages of fresh memory touched by another thread; what is written to it meanwhile stays."""
    if sys.platform == "linux" and len(os.sched_getaffinity(0)) > 1:
        _toucher.add(memory)
