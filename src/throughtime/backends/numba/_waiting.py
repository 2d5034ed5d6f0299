"""Waiting for a thread without going to sleep: being woken up takes longer than many a shard runs."""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Callable

from throughtime.backends.numba._library import load

# Looks at a flag, first without pause, then letting other threads run in between; 1 if it was raised in time.
_ASSEMBLY = """
define i64 @wait(ptr %flag, ptr %give_way, i64 %looks, i64 %polite) {
entry:
  br label %look

look:
  %count = phi i64 [ 0, %entry ], [ %next, %again ]
  %value = load atomic i64, ptr %flag acquire, align 8
  %raised = icmp ne i64 %value, 0
  br i1 %raised, label %done, label %onward

onward:
  %next = add i64 %count, 1
  %over = icmp sge i64 %next, %looks
  br i1 %over, label %late, label %consider

consider:
  %courteous = icmp sge i64 %next, %polite
  br i1 %courteous, label %yield, label %again

yield:
  %ignored = call i32 %give_way()
  br label %again

again:
  br label %look

done:
  ret i64 1

late:
  ret i64 0
}
"""
_LOOKS = 30_000
_IMPATIENT = 10_000
"""Some tens of microseconds of looking, then some milliseconds of looking and giving way."""


@functools.cache
def _function() -> Callable[[int], int]:
    libc = ctypes.CDLL("kernel32" if sys.platform == "win32" else None)
    give_way = ctypes.cast(libc.SwitchToThread if sys.platform == "win32" else libc.sched_yield, ctypes.c_void_p)
    library = load(_ASSEMBLY)
    wait = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_void_p] * 2, *[ctypes.c_int64] * 2)(library.address("wait"))

    def call(flag: int, _library: object = library) -> int:
        result: int = wait(flag, give_way, _LOOKS, _IMPATIENT)
        return result

    return call


def is_raised(flag: int) -> bool:
    """Whether the 64-bit number at the address `flag` became something else than zero within a few milliseconds."""
    return bool(_function()(flag))
