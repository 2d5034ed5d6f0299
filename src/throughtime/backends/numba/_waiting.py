"""How threads hand over work without Python's lock and, for a while, without going to sleep.

Waking a thread up, or waiting for Python's lock, takes longer than many a shard runs. So a worker looks out for its
next job in machine code for a moment before it goes to sleep, and runs it there; and whoever waits for it looks at a
flag.

A mailbox is three 64-bit numbers: its state, the address of a function, and the address that the function is given.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Callable
from dataclasses import dataclass

from throughtime.backends.numba._library import load

ASLEEP, LOOKING, POSTED = range(3)
"""States of a mailbox."""

_ASSEMBLY = """
; Whether a flag was raised in time: looks at it again and again, after the first looks letting others run in between.
define i64 @wait(ptr %flag, ptr %give_way, i64 %polite, i64 %looks) {
entry:
  br label %look
look:
  %count = phi i64 [ 0, %entry ], [ %next, %again ]
  %value = load atomic i64, ptr %flag acquire, align 8
  %raised = icmp ne i64 %value, 0
  br i1 %raised, label %end, label %onward
onward:
  %next = add i64 %count, 1
  %over = icmp sge i64 %next, %looks
  br i1 %over, label %end, label %consider
consider:
  %courteous = icmp sge i64 %next, %polite
  br i1 %courteous, label %yield, label %again
yield:
  %ignored = call i32 %give_way()
  br label %again
again:
  br label %look
end:
  %result = zext i1 %raised to i64
  ret i64 %result
}

; Posts a job; the state that was found tells whether somebody has to be woken up.
define i64 @post(ptr %box, i64 %function, i64 %argument) {
  %function_slot = getelementptr i64, ptr %box, i64 1
  %argument_slot = getelementptr i64, ptr %box, i64 2
  store i64 %function, ptr %function_slot, align 8
  store i64 %argument, ptr %argument_slot, align 8
  %state = atomicrmw xchg ptr %box, i64 2 seq_cst, align 8
  ret i64 %state
}

; Runs one job after another, until none comes in time.
define void @serve(ptr %box, ptr %give_way, i64 %polite, i64 %looks) {
entry:
  br label %fresh
fresh:
  br label %look
look:
  %count = phi i64 [ 0, %fresh ], [ %next, %again ]
  %state = load atomic i64, ptr %box acquire, align 8
  %posted = icmp eq i64 %state, 2
  br i1 %posted, label %take, label %onward
onward:
  %next = add i64 %count, 1
  %over = icmp sge i64 %next, %looks
  br i1 %over, label %tired, label %consider
consider:
  %courteous = icmp sge i64 %next, %polite
  br i1 %courteous, label %yield, label %again
yield:
  %ignored = call i32 %give_way()
  br label %again
again:
  br label %look
take:
  %function_slot = getelementptr i64, ptr %box, i64 1
  %argument_slot = getelementptr i64, ptr %box, i64 2
  %function = load ptr, ptr %function_slot, align 8
  %argument = load i64, ptr %argument_slot, align 8
  ; Before the job, because the next may be posted as soon as this one is done; unless it is taken back in this moment.
  %taking = cmpxchg ptr %box, i64 2, i64 1 seq_cst seq_cst
  %taken = extractvalue { i64, i1 } %taking, 1
  br i1 %taken, label %run, label %fresh
run:
  call void %function(i64 %argument)
  br label %fresh
tired:
  %change = cmpxchg ptr %box, i64 1, i64 0 seq_cst seq_cst
  %changed = extractvalue { i64, i1 } %change, 1
  br i1 %changed, label %end, label %fresh
end:
  ret void
}

; Takes back a job that nobody has taken yet: whether that was so.
define i64 @retract(ptr %box) {
  %change = cmpxchg ptr %box, i64 2, i64 1 seq_cst seq_cst
  %changed = extractvalue { i64, i1 } %change, 1
  %result = zext i1 %changed to i64
  ret i64 %result
}
"""
_WAIT_LOOKS = 10_000, 30_000
"""Some tens of microseconds of looking, then some milliseconds of looking and giving way."""
_SERVE_LOOKS = 100, 3000
"""Giving way almost at once, for about a millisecond in all: so long a small network is not called."""


@dataclass(frozen=True)
class Waiting:
    """The functions of this module, compiled."""

    library: object
    give_way: int
    wait_function: Callable[..., int]
    post: Callable[[int, int, int], int]
    retract: Callable[[int], int]
    serve_function: Callable[..., None]

    def wait(self, flag: int) -> None:
        """Return when the number at the address `flag` is no longer zero."""
        while not self.wait_function(flag, self.give_way, *_WAIT_LOOKS):
            pass

    def serve(self, box: int) -> None:
        """Run what is posted to the mailbox at the address `box`, until for a moment nothing is."""
        self.serve_function(box, self.give_way, *_SERVE_LOOKS)


@functools.cache
def waiting() -> Waiting:
    system = ctypes.CDLL("kernel32" if sys.platform == "win32" else None)
    give_way = ctypes.cast(system.SwitchToThread if sys.platform == "win32" else system.sched_yield, ctypes.c_void_p)
    library = load(_ASSEMBLY)
    number, address = ctypes.c_int64, ctypes.c_void_p
    looking = (address, address, number, number)
    return Waiting(
        library,
        give_way.value or 0,
        ctypes.CFUNCTYPE(number, *looking)(library.address("wait")),
        # Over in no time: not worth letting go of Python's lock.
        ctypes.PYFUNCTYPE(number, address, number, number)(library.address("post")),
        ctypes.PYFUNCTYPE(number, address)(library.address("retract")),
        ctypes.CFUNCTYPE(None, *looking)(library.address("serve")),
    )
