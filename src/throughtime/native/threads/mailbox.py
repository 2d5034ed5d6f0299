"""How threads hand over work without Python's lock and, for a while, without going to sleep.

Waking a thread up, or waiting for Python's lock, takes longer than many a shard runs. So a worker looks out for its
next job in machine code for a moment before it goes to sleep, and runs it there. Whoever has jobs posts them, does its
own, takes back what nobody has begun with, and waits for the rest: all of it in one call, which nothing interrupts.

A mailbox is four 64-bit numbers: its state, the address of a list of work (`calls.py`), the number of the thread that
has the mailbox, and how many threads there are.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from throughtime.native.toolchain.module_loader import load

ASLEEP, LOOKING, POSTED, RUNNING = range(4)
"""States of a mailbox."""
BOX = 4
"""Numbers of a mailbox."""

_ASSEMBLY = """
; The table has how many other threads there are, the list of work, and the function that lets other threads run; and
; for each thread its mailbox, and room for the state that the mailbox had.
define void @together(ptr %table, i64 %patience) {
entry:
  %list_slot = getelementptr i64, ptr %table, i64 1
  %give_way_slot = getelementptr i64, ptr %table, i64 2
  %jobs = getelementptr i64, ptr %table, i64 3
  %count = load i64, ptr %table, align 8
  %list = load ptr, ptr %list_slot, align 8
  %give_way = load ptr, ptr %give_way_slot, align 8
  %function = load ptr, ptr %list, align 8
  %threads = add i64 %count, 1
  br label %post
post:
  %posted = phi i64 [ 0, %entry ], [ %number, %post ]
  %job = phi ptr [ %jobs, %entry ], [ %job_next, %post ]
  %state_slot = getelementptr i64, ptr %job, i64 1
  %box = load ptr, ptr %job, align 8
  %box_list = getelementptr i64, ptr %box, i64 1
  %box_number = getelementptr i64, ptr %box, i64 2
  %box_threads = getelementptr i64, ptr %box, i64 3
  %number = add i64 %posted, 1
  store ptr %list, ptr %box_list, align 8
  store i64 %number, ptr %box_number, align 8
  store i64 %threads, ptr %box_threads, align 8
  %state = atomicrmw xchg ptr %box, i64 2 seq_cst, align 8
  store i64 %state, ptr %state_slot, align 8
  %job_next = getelementptr i64, ptr %job, i64 2
  %posted_all = icmp sge i64 %number, %count
  br i1 %posted_all, label %work, label %post
work:
  call void %function(ptr %list, i64 0, i64 %threads)
  br label %collect
collect:
  %collected = phi i64 [ 0, %work ], [ %his_number, %next ]
  %place = phi ptr [ %jobs, %work ], [ %place_next, %next ]
  %his_number = add i64 %collected, 1
  %his_state_slot = getelementptr i64, ptr %place, i64 1
  %his_box = load ptr, ptr %place, align 8
  %before = load i64, ptr %his_state_slot, align 8
  %change = cmpxchg ptr %his_box, i64 2, i64 %before seq_cst seq_cst
  %untouched = extractvalue { i64, i1 } %change, 1
  br i1 %untouched, label %instead, label %look
instead:
  call void %function(ptr %list, i64 %his_number, i64 %threads)
  br label %next
look:
  %looks = phi i64 [ 0, %collect ], [ %looks_next, %again ]
  %now = load atomic i64, ptr %his_box acquire, align 8
  %running = icmp eq i64 %now, 3
  br i1 %running, label %onward, label %next
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
  %place_next = getelementptr i64, ptr %place, i64 2
  %all = icmp sge i64 %his_number, %count
  br i1 %all, label %end, label %collect
end:
  ret void
}

; One thread does the work of all of so many.
define void @alone(ptr %list, i64 %threads) {
entry:
  %function = load ptr, ptr %list, align 8
  br label %run
run:
  %number = phi i64 [ 0, %entry ], [ %next, %run ]
  call void %function(ptr %list, i64 %number, i64 %threads)
  %next = add i64 %number, 1
  %more = icmp slt i64 %next, %threads
  br i1 %more, label %run, label %end
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
  %taking = cmpxchg ptr %box, i64 2, i64 3 seq_cst seq_cst
  %taken = extractvalue { i64, i1 } %taking, 1
  br i1 %taken, label %run, label %fresh
run:
  %list_slot = getelementptr i64, ptr %box, i64 1
  %number_slot = getelementptr i64, ptr %box, i64 2
  %threads_slot = getelementptr i64, ptr %box, i64 3
  %list = load ptr, ptr %list_slot, align 8
  %number = load i64, ptr %number_slot, align 8
  %threads = load i64, ptr %threads_slot, align 8
  %function = load ptr, ptr %list, align 8
  call void %function(ptr %list, i64 %number, i64 %threads)
  store atomic i64 1, ptr %box release, align 8
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


@dataclass(frozen=True)
class Mailbox:
    """The functions of this module, compiled."""

    library: object
    give_way: int
    together_function: Callable[..., None]
    alone: Callable[[int, int], None]
    serve_function: Callable[..., None]

    def together(self, work: int, boxes: Sequence[int]) -> None:
        """Call the function of a list in this thread and in those of some mailboxes, as far as they are in time.

        There is at least one mailbox. What nobody has begun with when our own part is done is called here.
        """
        table = array("q", (len(boxes), work, self.give_way))
        for box in boxes:
            table.extend((box, 0))
        self.together_function(table.buffer_info()[0], _WAIT_PATIENCE)

    def serve(self, box: int) -> None:
        """Run what is posted to the mailbox at the address `box`, until for a moment nothing is."""
        self.serve_function(box, self.give_way, *_SERVE_LOOKS)


@functools.cache
def waiting() -> Mailbox:
    system = ctypes.CDLL("kernel32" if sys.platform == "win32" else None)
    give_way = ctypes.cast(system.SwitchToThread if sys.platform == "win32" else system.sched_yield, ctypes.c_void_p)
    library = load(_ASSEMBLY)
    number, address = ctypes.c_int64, ctypes.c_void_p
    return Mailbox(
        library,
        give_way.value or 0,
        library.function("together", address, number),
        library.function("alone", address, number),
        library.function("serve", address, address, number, number),
    )
