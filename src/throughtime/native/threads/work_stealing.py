"""Threads that help each other out: who is done gets half of the rows that another still has to walk through.

Processors are rarely equal: another program wants one of them, a virtual machine has noisy neighbours, a laptop has
slow cores beside fast ones. With one shard a thread all would wait for the slowest. So a walk goes in pieces of steps,
and between two of them its thread looks whether somebody is idle. If so, the rest of the walk becomes two, each with
half of the rows, and the one who waits takes one of them. Where all are equally fast nobody ever waits, and nothing is
done that would not have been done anyway. A state is where the last piece left it: there are no locks.
"""

from __future__ import annotations

import functools
from array import array
from collections.abc import Sequence
from typing import NamedTuple

from throughtime.native.threads.calls import HEAD as WORK
from throughtime.native.threads.calls import Threads, work_of
from throughtime.native.threads.mailbox import waiting
from throughtime.native.toolchain.llvm import NativeModule
from throughtime.native.toolchain.module_loader import load

_FUNCTION, _WANTED, _HEAD, _WALK = WORK, WORK + 4, 16, 8
"""Where a list has the function to call, and how many wait; how many numbers it has before walks, and for each."""
_LOOKS = 5_000
"""Some ten microseconds, or more if there are many walks to look at: who waits longer lets others run."""

# A list has the function to call, the slot of the first step in a frame (that of the last one follows), how many walks
# there are, the function that lets others run, how many threads wait, and how many walks there are in the beginning.
# Each walk has twice the pieces left, and one more while somebody is at it; all pieces; its frame; the steps of the
# pieces; and the number of the first of its two halves, or 0. Halves come after what they are halves of, and have no
# pieces left until it is divided: who finds nothing left in that order is done.
_ASSEMBLY = f"""
define void @take_turns(ptr %list, i64 %me, i64 %threads) {{
entry:
  %some = alloca i64, align 8
  %count_place = getelementptr i64, ptr %list, i64 {_FUNCTION + 2}
  %way_place = getelementptr i64, ptr %list, i64 {_FUNCTION + 3}
  %wanted = getelementptr i64, ptr %list, i64 {_WANTED}
  %own_place = getelementptr i64, ptr %list, i64 {_FUNCTION + 5}
  %walks = getelementptr i64, ptr %list, i64 {_HEAD}
  %count = load i64, ptr %count_place, align 8
  %give_way = load ptr, ptr %way_place, align 8
  %owned = load i64, ptr %own_place, align 8
  %offset = mul i64 %me, {_WALK}
  %own = getelementptr i64, ptr %walks, i64 %offset
  %has_own = icmp slt i64 %me, %owned
  br i1 %has_own, label %begin, label %look
begin:
  ; The rows of a thread are the same from run to run: they may still be in its cache.
  %is_own = call i1 @claim(ptr %own)
  br i1 %is_own, label %go, label %look
look:
  %waits = phi i1 [ false, %entry ], [ false, %begin ], [ %waits, %try ], [ false, %go ], [ true, %again ]
  %looks = phi i64 [ 0, %entry ], [ 0, %begin ], [ %looks, %try ], [ 0, %go ], [ %looked, %again ]
  %best = call ptr @longest(ptr %walks, i64 %count, ptr %some)
  %none = icmp eq ptr %best, null
  br i1 %none, label %idle, label %try
try:
  %is_mine = call i1 @claim(ptr %best)
  br i1 %is_mine, label %claimed, label %look
claimed:
  br i1 %waits, label %found, label %go
found:
  %before = atomicrmw sub ptr %wanted, i64 1 monotonic, align 8
  br label %go
go:
  %chosen = phi ptr [ %own, %begin ], [ %best, %claimed ], [ %best, %found ]
  call void @walk(ptr %list, ptr %chosen)
  br label %look
idle:
  %left = load i64, ptr %some, align 8
  %over = icmp eq i64 %left, 0
  br i1 %over, label %end, label %wait
wait:
  br i1 %waits, label %rest, label %ask
ask:
  %asked = atomicrmw add ptr %wanted, i64 1 monotonic, align 8
  br label %rest
rest:
  %looked = add i64 %looks, 1
  %long = icmp sgt i64 %looked, {_LOOKS}
  br i1 %long, label %yield, label %again
yield:
  %nothing = call i32 %give_way()
  br label %again
again:
  br label %look
end:
  ret void
}}

; The walk that has most pieces left, and nobody is at; whether there are any with pieces left is written down.
define internal ptr @longest(ptr %walks, i64 %count, ptr %some) {{
entry:
  br label %look
look:
  %index = phi i64 [ 0, %entry ], [ %next, %look ]
  %best = phi ptr [ null, %entry ], [ %better, %look ]
  %most = phi i64 [ 0, %entry ], [ %more, %look ]
  %any = phi i64 [ 0, %entry ], [ %any_more, %look ]
  %offset = mul i64 %index, {_WALK}
  %walk = getelementptr i64, ptr %walks, i64 %offset
  %state = load atomic i64, ptr %walk acquire, align 8
  %any_more = or i64 %any, %state
  %busy = trunc i64 %state to i1
  %free = xor i1 %busy, true
  %longer = icmp sgt i64 %state, %most
  %take = and i1 %free, %longer
  %better = select i1 %take, ptr %walk, ptr %best
  %more = select i1 %take, i64 %state, i64 %most
  %next = add i64 %index, 1
  %again = icmp slt i64 %next, %count
  br i1 %again, label %look, label %end
end:
  store i64 %any_more, ptr %some, align 8
  ret ptr %better
}}

; Whether a walk is ours now: somebody else may have been quicker.
define internal i1 @claim(ptr %walk) {{
entry:
  %state = load atomic i64, ptr %walk monotonic, align 8
  %busy = trunc i64 %state to i1
  %over = icmp eq i64 %state, 0
  %lost = or i1 %busy, %over
  br i1 %lost, label %end, label %try
try:
  %claimed = add i64 %state, 1
  %change = cmpxchg ptr %walk, i64 %state, i64 %claimed acquire monotonic, align 8
  %is_mine = extractvalue {{ i64, i1 }} %change, 1
  ret i1 %is_mine
end:
  ret i1 false
}}

; One piece after another, until there are none left, or somebody waits for a half.
define internal void @walk(ptr %list, ptr %walk) {{
entry:
  %function_place = getelementptr i64, ptr %list, i64 {_FUNCTION}
  %slot_place = getelementptr i64, ptr %list, i64 {_FUNCTION + 1}
  %wanted = getelementptr i64, ptr %list, i64 {_WANTED}
  %walks = getelementptr i64, ptr %list, i64 {_HEAD}
  %pieces_place = getelementptr i64, ptr %walk, i64 1
  %frame_place = getelementptr i64, ptr %walk, i64 2
  %steps_place = getelementptr i64, ptr %walk, i64 3
  %half_place = getelementptr i64, ptr %walk, i64 4
  %function = load ptr, ptr %function_place, align 8
  %slot = load i64, ptr %slot_place, align 8
  %pieces = load i64, ptr %pieces_place, align 8
  %frame = load ptr, ptr %frame_place, align 8
  %steps = load ptr, ptr %steps_place, align 8
  %half = load i64, ptr %half_place, align 8
  %first_target = getelementptr i64, ptr %frame, i64 %slot
  %last_target = getelementptr i64, ptr %first_target, i64 1
  %halves_offset = mul i64 %half, {_WALK}
  %lower = getelementptr i64, ptr %walks, i64 %halves_offset
  %upper = getelementptr i64, ptr %lower, i64 {_WALK}
  %is_last = icmp eq i64 %half, 0
  %begun = load atomic i64, ptr %walk monotonic, align 8
  br label %piece
piece:
  %state = phi i64 [ %begun, %entry ], [ %fewer, %go_on ]
  %left = lshr i64 %state, 1
  %done = sub i64 %pieces, %left
  %pair = mul i64 %done, 2
  %first_place = getelementptr i64, ptr %steps, i64 %pair
  %last_place = getelementptr i64, ptr %first_place, i64 1
  %first = load i64, ptr %first_place, align 8
  %last = load i64, ptr %last_place, align 8
  store i64 %first, ptr %first_target, align 8
  store i64 %last, ptr %last_target, align 8
  call void %function(ptr %frame)
  %fewer = sub i64 %state, 2
  %over = icmp slt i64 %fewer, 2
  br i1 %over, label %end, label %ask
ask:
  %waiting = load atomic i64, ptr %wanted monotonic, align 8
  %nobody = icmp slt i64 %waiting, 1
  %alone = or i1 %nobody, %is_last
  br i1 %alone, label %go_on, label %divide
go_on:
  store atomic i64 %fewer, ptr %walk monotonic, align 8
  br label %piece
divide:
  %free = sub i64 %fewer, 1
  store atomic i64 %free, ptr %lower release, align 8
  store atomic i64 %free, ptr %upper release, align 8
  br label %end
end:
  store atomic i64 0, ptr %walk release, align 8
  ret void
}}
"""


class StealableLoop(NamedTuple):
    """The address of a frame, its pieces (two numbers each), and the number of the first of two halves, or 0."""

    frame: int
    pieces: array[int]
    half: int


@functools.cache
def _library() -> NativeModule:
    return load(_ASSEMBLY)


class WorkStealing:
    """Walks for several threads: the function at an address is called for all their pieces, in order within each.

    The two numbers of a piece go to a slot of the frame, and to the next one. The first `owned` walks are there from
    the beginning, the others are halves of walks before them. All of it must live as long as the threads walk.
    """

    def __init__(self, function: int, slot: int, walks: Sequence[StealableLoop], owned: int) -> None:
        self._walks, self._owned = walks, owned
        head = [function, slot, len(walks), waiting().give_way, 0, owned]
        numbers = head + [0] * (_HEAD - WORK - len(head))
        for number, (frame, pieces, half) in enumerate(walks):
            count = len(pieces) // 2
            left = 2 * count if number < owned else 0
            numbers += (left, count, frame, pieces.buffer_info()[0], half, 0, 0, 0)
        self._begin = work_of(_library().address("take_turns"), numbers)
        self._numbers = self._begin[:]

    def run(self, threads: Threads) -> None:
        self._numbers[:] = self._begin
        threads.call_all(self._numbers, self._owned)
