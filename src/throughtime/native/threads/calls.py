"""Calls that several threads share: one interface for torch's threads (`team.py`) and for a pool (`pool.py`).

Work is an array of 64-bit words. The first is the address of a function; every thread calls it with the address of the
array, the number of the thread and the number of threads. The next two are for the threads, the rest for the function
(`shared_calls.ll`).
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from array import array
from collections.abc import Iterable, Sequence

from throughtime.native.threads.mailbox import mailbox_code
from throughtime.native.threads.openmp import torch_runtime
from throughtime.native.toolchain.ir_files import read_ir
from throughtime.native.toolchain.llvm import NativeModule
from throughtime.native.toolchain.module_loader import load

_IR = read_ir(__package__, "shared_calls.ll")
_FIELDS = _IR.fields("shared_calls")
HEAD, COUNT, ARRIVED = _FIELDS["function"], _FIELDS["count"], _FIELDS["arrived"]
"""Offsets in an array of calls: the first word for the function, the number of calls, the threads that have arrived."""


class Threads(ABC):
    """Threads that run an array of work together with the calling thread."""

    @abstractmethod
    def call_all(self, work: array[int], useful: int) -> None:
        """Call the function of an array in several threads, of which `useful` have work, and wait for all of them."""

    @abstractmethod
    def run_concurrently(self, calls: array[int]) -> bool:
        """Run calls that wait for each other; with fewer threads than calls, run none and return False."""

    def run_calls(self, calls: array[int]) -> None:
        self.call_all(calls, calls[COUNT])

    def run(self, function: int, arguments: Sequence[int]) -> None:
        """Call the function at an address once for each argument."""
        self.call_all(calls_of(function, arguments), len(arguments))


def calls_of(function: int, arguments: Sequence[int]) -> array[int]:
    """Calls of the function at an address, one for each argument, for any threads."""
    entry, *numbering, yield_function = _shared()
    return array("q", (entry, *numbering, function, len(arguments), 0, yield_function, *arguments))


def concurrent_calls(calls: array[int]) -> array[int]:
    """The same calls for threads that may come late: they begin when all threads have arrived, or not at all."""
    copy = calls[:]
    copy[0], copy[ARRIVED] = _library().address("run_shared_calls_concurrently"), 0
    return copy


def work_of(function: int, words: Iterable[int]) -> array[int]:
    """An array of work for any threads."""
    return array("q", (function, *_shared()[1:3], *words))


@functools.cache
def _library() -> NativeModule:
    return load(_IR.text)


@functools.cache
def _shared() -> tuple[int, int, int, int]:
    """The words of every array: its entry, OpenMP's functions for thread number and team size, and yield."""
    runtime = torch_runtime()
    numbering = (0, 0) if isinstance(runtime, str) else (runtime.thread_number, runtime.team_size)
    return _library().address("run_shared_calls"), *numbering, mailbox_code().yield_function
