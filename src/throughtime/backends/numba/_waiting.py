"""How threads hand over work without Python's lock and, for a while, without going to sleep.

Waking a thread up, or waiting for Python's lock, takes longer than many a shard runs. So a worker looks out for its
next job in machine code for a moment before it goes to sleep, and runs it there. Whoever has jobs posts them, does its
own, takes back what nobody has begun with, and waits for the rest: all of it in one call, which nothing interrupts.

A mailbox is three 64-bit numbers: its state, the address of a function, and the address that the function is given.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from throughtime.backends.numba._library import load

ASLEEP, LOOKING, POSTED = range(3)
"""States of a mailbox."""

_ASSEMBLY = """
; The list has how many jobs there are for others, the function of all jobs, the argument of our own, and the function
; that lets other threads run; and for each job a mailbox, its argument, the place of a number that is not zero once it
; is done, and room for the state that the mailbox had.
define void @together(ptr %list, i64 %patience) {
entry:
  %function_slot = getelementptr i64, ptr %list, i64 1
  %own_slot = getelementptr i64, ptr %list, i64 2
  %give_way_slot = getelementptr i64, ptr %list, i64 3
  %jobs = getelementptr i64, ptr %list, i64 4
  %count = load i64, ptr %list, align 8
  %function = load ptr, ptr %function_slot, align 8
  %own = load i64, ptr %own_slot, align 8
  %give_way = load ptr, ptr %give_way_slot, align 8
  br label %post
post:
  %posted = phi i64 [ 0, %entry ], [ %posted_next, %post ]
  %job = phi ptr [ %jobs, %entry ], [ %job_next, %post ]
  %argument_slot = getelementptr i64, ptr %job, i64 1
  %state_slot = getelementptr i64, ptr %job, i64 3
  %box = load ptr, ptr %job, align 8
  %argument = load i64, ptr %argument_slot, align 8
  %box_function = getelementptr i64, ptr %box, i64 1
  %box_argument = getelementptr i64, ptr %box, i64 2
  store ptr %function, ptr %box_function, align 8
  store i64 %argument, ptr %box_argument, align 8
  %state = atomicrmw xchg ptr %box, i64 2 seq_cst, align 8
  store i64 %state, ptr %state_slot, align 8
  %posted_next = add i64 %posted, 1
  %job_next = getelementptr i64, ptr %job, i64 4
  %posted_all = icmp sge i64 %posted_next, %count
  br i1 %posted_all, label %work, label %post
work:
  call void %function(i64 %own)
  br label %collect
collect:
  %collected = phi i64 [ 0, %work ], [ %collected_next, %next ]
  %place = phi ptr [ %jobs, %work ], [ %place_next, %next ]
  %his_argument_slot = getelementptr i64, ptr %place, i64 1
  %his_flag_slot = getelementptr i64, ptr %place, i64 2
  %his_state_slot = getelementptr i64, ptr %place, i64 3
  %his_box = load ptr, ptr %place, align 8
  %his_argument = load i64, ptr %his_argument_slot, align 8
  %flag = load ptr, ptr %his_flag_slot, align 8
  %before = load i64, ptr %his_state_slot, align 8
  %change = cmpxchg ptr %his_box, i64 2, i64 %before seq_cst seq_cst
  %untouched = extractvalue { i64, i1 } %change, 1
  br i1 %untouched, label %instead, label %look
instead:
  call void %function(i64 %his_argument)
  br label %next
look:
  %looks = phi i64 [ 0, %collect ], [ %looks_next, %again ]
  %value = load atomic i64, ptr %flag acquire, align 8
  %done = icmp ne i64 %value, 0
  br i1 %done, label %next, label %onward
onward:
  %looks_next = add i64 %looks, 1
  %courteous = icmp sge i64 %looks_next, %patience
  br i1 %courteous, label %yield, label %again
yield:
  %ignored = call i32 %give_way()
  br label %again
again:
  br label %look
next:
  %collected_next = add i64 %collected, 1
  %place_next = getelementptr i64, ptr %place, i64 4
  %all = icmp sge i64 %collected_next, %count
  br i1 %all, label %end, label %collect
end:
  ret void
}

; Runs one job after another, until none comes in time.
define void @serve(ptr %box, ptr %give_way, i64 %patience, i64 %most) {
entry:
  br label %fresh
fresh:
  ; Whoever takes a job back leaves the state as it was before, maybe asleep.
  %waking = cmpxchg ptr %box, i64 0, i64 1 seq_cst seq_cst
  br label %look
look:
  %looks = phi i64 [ 0, %fresh ], [ %next, %again ]
  %state = load atomic i64, ptr %box acquire, align 8
  %posted = icmp eq i64 %state, 2
  br i1 %posted, label %take, label %onward
onward:
  %next = add i64 %looks, 1
  %over = icmp sge i64 %next, %most
  br i1 %over, label %tired, label %consider
consider:
  %courteous = icmp sge i64 %next, %patience
  br i1 %courteous, label %yield, label %again
yield:
  %ignored = call i32 %give_way()
  br label %again
again:
  br label %look
take:
  ; It may be taken back in this moment. What is in the box is looked at afterwards: until it is done, nobody posts.
  %taking = cmpxchg ptr %box, i64 2, i64 1 seq_cst seq_cst
  %taken = extractvalue { i64, i1 } %taking, 1
  br i1 %taken, label %run, label %fresh
run:
  %function_slot = getelementptr i64, ptr %box, i64 1
  %argument_slot = getelementptr i64, ptr %box, i64 2
  %function = load ptr, ptr %function_slot, align 8
  %argument = load i64, ptr %argument_slot, align 8
  call void %function(i64 %argument)
  br label %fresh
tired:
  %change = cmpxchg ptr %box, i64 1, i64 0 seq_cst seq_cst
  %changed = extractvalue { i64, i1 } %change, 1
  br i1 %changed, label %end, label %fresh
end:
  ret void
}
"""
_WAIT_PATIENCE = 10_000
"""Some tens of microseconds of looking, before others may run in between."""
_SERVE_LOOKS = 100, 3000
"""Giving way almost at once, for about a millisecond in all: so long a small network is not called."""

Job = tuple[int, int, int]
"""The address of a mailbox, the argument, and the address of a number that the call changes from zero at its end."""


@dataclass(frozen=True)
class Waiting:
    """The functions of this module, compiled."""

    library: object
    give_way: int
    together_function: Callable[..., None]
    serve_function: Callable[..., None]

    def together(self, function: int, own: int, jobs: Sequence[Job]) -> None:
        """Call a function for an argument of our own, and have others call it for theirs, as far as they are in time.

        There is at least one job. What nobody has begun with when our own is done is called here.
        """
        numbers = [len(jobs), function, own, self.give_way]
        for job in jobs:
            numbers += (*job, 0)
        table = array("q", numbers)
        self.together_function(table.buffer_info()[0], _WAIT_PATIENCE)

    def serve(self, box: int) -> None:
        """Run what is posted to the mailbox at the address `box`, until for a moment nothing is."""
        self.serve_function(box, self.give_way, *_SERVE_LOOKS)


@functools.cache
def waiting() -> Waiting:
    system = ctypes.CDLL("kernel32" if sys.platform == "win32" else None)
    give_way = ctypes.cast(system.SwitchToThread if sys.platform == "win32" else system.sched_yield, ctypes.c_void_p)
    library = load(_ASSEMBLY)
    number, address = ctypes.c_int64, ctypes.c_void_p
    return Waiting(
        library,
        give_way.value or 0,
        library.function("together", address, number),
        library.function("serve", address, address, number, number),
    )
