"""Blocks of steps that one thread prepares while another walks through those before them.

One row of a batch cannot be shared among threads, but what runs ahead of its loop can. One thread walks, another
assists: it packs what blocks are multiplied with, and prepares blocks as far ahead as there is room for. The walk does
itself what nobody has begun with: it does not wait for somebody who has not started. Who packs prepares the first block
too: what is packed lies in the cache of that processor. Who does what changes no result.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from throughtime.native.gemm.pack_panels import Job, job_list
from throughtime.native.threads.mailbox import waiting

RING_SLOTS = 4
"""Blocks that are prepared and not yet used, at most; a power of two."""

_LOOKS = 2000
"""About as long as a block takes: who waits longer waits for somebody who does not run."""

_READY = 8
"""The numbers of rooms begin on another cache line than what all of them look at."""

# A relay is 64-bit numbers: how many blocks are claimed, how many the walk has left behind, whether matrices are being
# packed (1) or packed (2), where the lists of matrices are, those of the walk and those of blocks, and the function
# that lets others run; and for each room the block that is ready in it, counted from one.
RELAY = f"""
; To be called between two looks at what another thread will change: after many of them others may run, maybe that one.
define internal void @between_looks(ptr %relay, i64 %looks) {{
entry:
  %many = icmp sgt i64 %looks, {_LOOKS}
  br i1 %many, label %let, label %end
let:
  %slot = getelementptr i64, ptr %relay, i64 5
  %give_way = load ptr, ptr %slot, align 8
  %ignored = call i32 %give_way()
  br label %end
end:
  ret void
}}

define internal void @await(ptr %relay, ptr %place, i64 %number) {{
entry:
  br label %look
look:
  %looks = phi i64 [ 0, %entry ], [ %more, %again ]
  %found = load atomic i64, ptr %place acquire, align 8
  %there = icmp eq i64 %found, %number
  br i1 %there, label %end, label %again
again:
  call void @between_looks(ptr %relay, i64 %looks)
  %more = add i64 %looks, 1
  br label %look
end:
  ret void
}}

; Whether the walk has to prepare a block itself; if somebody else has begun with it, only once that is ready. Without a
; relay it is always so.
define internal i1 @is_mine(ptr %relay, i64 %block) {{
entry:
  %alone = icmp eq ptr %relay, null
  br i1 %alone, label %end, label %claim
claim:
  %after = add i64 %block, 1
  %change = cmpxchg ptr %relay, i64 %block, i64 %after monotonic monotonic, align 8
  %mine = extractvalue {{ i64, i1 }} %change, 1
  %room = and i64 %block, {RING_SLOTS - 1}
  %place = add i64 %room, {_READY}
  %ready = getelementptr i64, ptr %relay, i64 %place
  br i1 %mine, label %end, label %another
another:
  call void @await(ptr %relay, ptr %ready, i64 %after)
  br label %end
end:
  %result = phi i1 [ true, %entry ], [ true, %claim ], [ false, %another ]
  ret i1 %result
}}

; The next of so many blocks, for one who assists, once there is room for it; -1 if none is left.
define internal i64 @next_block(ptr %relay, i64 %blocks) {{
entry:
  %walked = getelementptr i64, ptr %relay, i64 1
  br label %look
look:
  %looks = phi i64 [ 0, %entry ], [ %more, %again ], [ 0, %claim ]
  %block = load atomic i64, ptr %relay monotonic, align 8
  %left = icmp slt i64 %block, %blocks
  br i1 %left, label %consider, label %end
consider:
  %behind = load atomic i64, ptr %walked acquire, align 8
  %ahead = sub i64 %block, %behind
  %fits = icmp slt i64 %ahead, {RING_SLOTS}
  br i1 %fits, label %claim, label %again
again:
  call void @between_looks(ptr %relay, i64 %looks)
  %more = add i64 %looks, 1
  br label %look
claim:
  %after = add i64 %block, 1
  %change = cmpxchg ptr %relay, i64 %block, i64 %after monotonic monotonic, align 8
  %mine = extractvalue {{ i64, i1 }} %change, 1
  br i1 %mine, label %end, label %look
end:
  %result = phi i64 [ -1, %look ], [ %block, %claim ]
  ret i64 %result
}}

; A block is ready for the walk.
define internal void @hand_over(ptr %relay, i64 %block) {{
  %room = and i64 %block, {RING_SLOTS - 1}
  %place = add i64 %room, {_READY}
  %ready = getelementptr i64, ptr %relay, i64 %place
  %after = add i64 %block, 1
  store atomic i64 %after, ptr %ready release, align 8
  ret void
}}

; The walk is done with a block, and with its room.
define internal void @leave_behind(ptr %relay, i64 %block) {{
  %walked = getelementptr i64, ptr %relay, i64 1
  %after = add i64 %block, 1
  store atomic i64 %after, ptr %walked release, align 8
  ret void
}}

; Packs what the walk itself multiplies with.
define internal void @pack_own(ptr %relay) {{
  %list_slot = getelementptr i64, ptr %relay, i64 3
  %list = load ptr, ptr %list_slot, align 8
  call void @pack_all(ptr %list)
  ret void
}}

; Packs what blocks are multiplied with and prepares the first one, if nobody has begun to, or waits until it is packed.
define internal void @begin_blocks(ptr %frame, ptr %relay) {{
entry:
  %state = getelementptr i64, ptr %relay, i64 2
  %change = cmpxchg ptr %state, i64 0, i64 1 monotonic monotonic, align 8
  %mine = extractvalue {{ i64, i1 }} %change, 1
  br i1 %mine, label %work, label %another
another:
  call void @await(ptr %relay, ptr %state, i64 2)
  br label %end
work:
  %list_slot = getelementptr i64, ptr %relay, i64 4
  %list = load ptr, ptr %list_slot, align 8
  call void @pack_all(ptr %list)
  store atomic i64 2, ptr %state release, align 8
  call void @prepare(ptr %frame, i64 0)
  call void @hand_over(ptr %relay, i64 0)
  br label %end
end:
  ret void
}}

; Prepares blocks until none is left.
define internal void @assist(ptr %frame, ptr %relay, i64 %blocks) {{
entry:
  call void @begin_blocks(ptr %frame, ptr %relay)
  br label %look
look:
  %block = call i64 @next_block(ptr %relay, i64 %blocks)
  %none = icmp slt i64 %block, 0
  br i1 %none, label %end, label %work
work:
  call void @prepare(ptr %frame, i64 %block)
  call void @hand_over(ptr %relay, i64 %block)
  br label %look
end:
  ret void
}}
"""


class PrefetchRing:
    """What a walk and whoever assists it look at, with the matrices that they pack. It must live as long as they do."""

    def __init__(self, own: Sequence[Job], of_blocks: Sequence[Job]) -> None:
        self._lists = job_list(own), job_list(of_blocks)
        addresses = [jobs.buffer_info()[0] for jobs in self._lists]
        # The first block is for whoever packs.
        head = (1, 0, 0, *addresses, waiting().give_way)
        self._begin = array("q", (*head, *[0] * (_READY + RING_SLOTS - len(head))))
        self._numbers = self._begin[:]
        self.address = self._numbers.buffer_info()[0]

    def begin(self) -> None:
        """Nothing is done yet."""
        self._numbers[:] = self._begin
