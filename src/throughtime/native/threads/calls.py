"""Calls that several threads share: one interface for torch's threads (`team.py`) and for a pool beside them.

Work is a list of 64-bit numbers. The first is the address of a function, which every thread calls with the address of
the list, the number of the thread and how many threads there are. Two numbers belong to the threads, and the rest is
for the function.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from array import array
from collections.abc import Iterable, Sequence

from throughtime.native.threads.mailbox import waiting
from throughtime.native.threads.openmp import torch_runtime
from throughtime.native.toolchain.llvm import NativeModule
from throughtime.native.toolchain.module_loader import load

HEAD = 3
"""Numbers of a list before those that are for its function."""
COUNT, ARRIVED = HEAD + 1, HEAD + 2
"""Where a list of calls says how many there are, and how many threads have come to run them at once."""
_YIELD, _ARGUMENTS = HEAD + 3, HEAD + 4
_PATIENCE, _LIMIT = 5_000, 20_000
"""Looks at how many have come before other threads may run in between, and before it is given up."""
_GIVEN_UP = -(1 << 32)

# Of a list of calls every thread runs its share. It has the function to call, how many calls there are, how many
# threads have come, the function that lets other threads run, and the argument of each call.
_ASSEMBLY = f"""
define void @share(ptr %list, i64 %me, i64 %threads) {{
entry:
  %function_slot = getelementptr ptr, ptr %list, i64 {HEAD}
  %count_slot = getelementptr i64, ptr %list, i64 {COUNT}
  %arguments = getelementptr i64, ptr %list, i64 {_ARGUMENTS}
  %function = load ptr, ptr %function_slot, align 8
  %count = load i64, ptr %count_slot, align 8
  br label %look
look:
  %index = phi i64 [ %me, %entry ], [ %next, %run ]
  %more = icmp slt i64 %index, %count
  br i1 %more, label %run, label %end
run:
  %slot = getelementptr i64, ptr %arguments, i64 %index
  %argument = load i64, ptr %slot, align 8
  call void %function(i64 %argument)
  %next = add i64 %index, %threads
  br label %look
end:
  ret void
}}

; The same for calls that wait for each other, where it is not certain that all threads come, or when. Nothing is called
; before all have come. The first thread gives up after a while, and whoever comes later finds a negative number.
define void @share_at_once(ptr %list, i64 %me, i64 %threads) {{
entry:
  %arrived = getelementptr i64, ptr %list, i64 {ARRIVED}
  %yield_slot = getelementptr ptr, ptr %list, i64 {_YIELD}
  %give_way = load ptr, ptr %yield_slot, align 8
  %first = icmp eq i64 %me, 0
  %before = atomicrmw add ptr %arrived, i64 1 acq_rel, align 8
  br label %look
look:
  %looks = phi i64 [ 0, %entry ], [ %more, %again ]
  %here = load atomic i64, ptr %arrived acquire, align 8
  %given_up = icmp slt i64 %here, 0
  br i1 %given_up, label %end, label %ask
ask:
  %all = icmp sge i64 %here, %threads
  br i1 %all, label %run, label %wait
wait:
  %more = add i64 %looks, 1
  %many = icmp sgt i64 %more, {_LIMIT}
  %gives_up = and i1 %many, %first
  br i1 %gives_up, label %give_up, label %consider
consider:
  %long = icmp sgt i64 %more, {_PATIENCE}
  br i1 %long, label %yield, label %again
yield:
  %ignored = call i32 %give_way()
  br label %again
again:
  br label %look
give_up:
  %change = cmpxchg ptr %arrived, i64 %here, i64 {_GIVEN_UP} acq_rel acquire, align 8
  %done = extractvalue {{ i64, i1 }} %change, 1
  br i1 %done, label %end, label %again
run:
  call void @share(ptr %list, i64 %me, i64 %threads)
  br label %end
end:
  ret void
}}
"""


class Threads(ABC):
    """Threads that run a list of work together with the one that calls them."""

    @abstractmethod
    def call_all(self, work: array[int], useful: int) -> None:
        """Call the function of a list in several threads, of which so many are useful, and wait for all of them."""

    @abstractmethod
    def run_at_once(self, calls: array[int]) -> bool:
        """Run calls that wait for each other; without as many threads as calls nothing is done, and False."""

    def run_calls(self, calls: array[int]) -> None:
        self.call_all(calls, calls[COUNT])

    def run(self, function: int, arguments: Sequence[int]) -> None:
        """Call the function at an address once for each argument."""
        self.call_all(calls_of(function, arguments), len(arguments))


def calls_of(function: int, arguments: Sequence[int]) -> array[int]:
    """Calls of the function at an address, one for each argument, for any threads."""
    share, *tellers, give_way = _shared()
    return array("q", (share, *tellers, function, len(arguments), 0, give_way, *arguments))


def calls_at_once(calls: array[int]) -> array[int]:
    """The same calls for threads of which some may come late: they begin when all have come, or not at all."""
    copy = calls[:]
    copy[0], copy[ARRIVED] = _library().address("share_at_once"), 0
    return copy


def work_of(function: int, numbers: Iterable[int]) -> array[int]:
    """A list of work for any threads."""
    return array("q", (function, *_shared()[1:3], *numbers))


@functools.cache
def _library() -> NativeModule:
    return load(_ASSEMBLY)


@functools.cache
def _shared() -> tuple[int, int, int, int]:
    """What all lists have: `share`, how OpenMP tells a thread its number and how many there are, and how to yield."""
    runtime = torch_runtime()
    tellers = (0, 0) if isinstance(runtime, str) else (runtime.thread_number, runtime.team_size)
    return _library().address("share"), *tellers, waiting().give_way
