"""Threads that walk through a shard side by side, and meet after every stage.

Where rows are few, or a matrix is too large for a near cache, every thread that has rows of its own would fetch the
whole matrix at every step. Threads that share their rows have some of its columns each: they multiply all rows with
those, meet, do what is pointwise for some rows each, and meet again. Nobody adds numbers in another order for it.
"""

from __future__ import annotations

import ctypes
import time
from array import array
from functools import cache
from time import perf_counter

from throughtime.native.threads.calls import calls_of
from throughtime.native.threads.mailbox import waiting
from throughtime.native.threads.team import team
from throughtime.native.toolchain.llvm_builder import Builder, LlvmValue, integer
from throughtime.native.toolchain.module_loader import load

_LATE, _OVER, _MEMBERS = 5, 8, 9
"""Places of numbers. What is looked at lies on another cache line than what is counted."""

_LOOKS = 20_000
"""About ten microseconds: who waits longer lets others run."""
_MONOTONIC = getattr(time, "CLOCK_MONOTONIC", 0)
"""The number of a clock, which differs between systems; on one that has none threads do not meet."""
_PATIENCE = 4
"""How often somebody may be late before nobody waits for the others any more."""
_LATE_NANOSECONDS = 200_000
"""Who is waited for so long, and another step, does not run: several want a processor."""

# A meeting is 64-bit numbers: how many have come, the functions that let others run and that tell the time, after how
# many nanoseconds somebody is late, whether somebody is, and how often that was; how often all were there, and how many
# are expected. If somebody was late too often, whoever comes last expects the first member alone from then on.
MEETING = f"""
define internal void @meet(ptr %meeting) {{
entry:
  %place = getelementptr i64, ptr %meeting, i64 {_OVER}
  %members_place = getelementptr i64, ptr %meeting, i64 {_MEMBERS}
  %members = load atomic i64, ptr %members_place monotonic, align 8
  %over = load atomic i64, ptr %place monotonic, align 8
  %before = atomicrmw add ptr %meeting, i64 1 acq_rel, align 8
  %came = add i64 %before, 1
  %last = icmp eq i64 %came, %members
  br i1 %last, label %open, label %look
open:
  %flag_place = getelementptr i64, ptr %meeting, i64 4
  %late_place = getelementptr i64, ptr %meeting, i64 {_LATE}
  %flag = load atomic i64, ptr %flag_place monotonic, align 8
  store atomic i64 0, ptr %flag_place monotonic, align 8
  %earlier = load atomic i64, ptr %late_place monotonic, align 8
  %late = add i64 %earlier, %flag
  store atomic i64 %late, ptr %late_place monotonic, align 8
  %impatient = icmp sge i64 %late, {_PATIENCE}
  %expected = select i1 %impatient, i64 1, i64 %members
  store atomic i64 %expected, ptr %members_place monotonic, align 8
  store atomic i64 0, ptr %meeting monotonic, align 8
  %next = add i64 %over, 1
  store atomic i64 %next, ptr %place release, align 8
  ret void
look:
  %looks = phi i64 [ 0, %entry ], [ %more, %again ]
  %now = load atomic i64, ptr %place acquire, align 8
  %moved = icmp ne i64 %now, %over
  br i1 %moved, label %end, label %again
again:
  %more = add i64 %looks, 1
  %many = icmp sge i64 %more, {_LOOKS}
  br i1 %many, label %wait, label %look
wait:
  call void @wait(ptr %meeting, i64 %over)
  br label %end
end:
  ret void
}}

define internal void @wait(ptr %meeting, i64 %over) noinline {{
entry:
  %place = getelementptr i64, ptr %meeting, i64 {_OVER}
  %way_slot = getelementptr i64, ptr %meeting, i64 1
  %limit_slot = getelementptr i64, ptr %meeting, i64 3
  %flag_place = getelementptr i64, ptr %meeting, i64 4
  %give_way = load ptr, ptr %way_slot, align 8
  %limit = load i64, ptr %limit_slot, align 8
  %begun = call i64 @time(ptr %meeting)
  br label %look
look:
  %nothing = call i32 %give_way()
  %now = load atomic i64, ptr %place acquire, align 8
  %moved = icmp ne i64 %now, %over
  br i1 %moved, label %end, label %again
again:
  %time = call i64 @time(ptr %meeting)
  %waited = sub i64 %time, %begun
  %is_late = icmp sgt i64 %waited, %limit
  br i1 %is_late, label %note, label %look
note:
  store atomic i64 1, ptr %flag_place monotonic, align 8
  br label %look
end:
  ret void
}}

define internal i64 @time(ptr %meeting) {{
  %pair = alloca [2 x i64], align 8
  %slot = getelementptr i64, ptr %meeting, i64 2
  %clock = load ptr, ptr %slot, align 8
  %nothing = call i32 %clock(i32 {_MONOTONIC}, ptr %pair)
  %seconds = load i64, ptr %pair, align 8
  %rest = getelementptr i64, ptr %pair, i64 1
  %more = load i64, ptr %rest, align 8
  %scaled = mul i64 %seconds, 1000000000
  %total = add i64 %scaled, %more
  ret i64 %total
}}
"""


@cache
def _clock() -> int:
    return ctypes.cast(ctypes.CDLL(None).clock_gettime, ctypes.c_void_p).value or 0


class Barrier:
    """What the threads of a shard look at. It must live as long as they walk.

    One of them would take so many nanoseconds for a step.
    """

    def __init__(self, step_nanoseconds: float) -> None:
        late = _LATE_NANOSECONDS + int(step_nanoseconds)
        head = (0, waiting().give_way, _clock(), late)
        self._begin = array("q", (*head, *[0] * (2 * _OVER - len(head))))
        self._numbers = self._begin[:]
        self.address = self._numbers.buffer_info()[0]

    def begin(self, members: int) -> None:
        """Nobody has come yet, of so many."""
        self._numbers[:] = self._begin
        self._numbers[_MEMBERS] = members

    @property
    def was_left(self) -> bool:
        """Whether somebody was late too often."""
        return self._numbers[_LATE] >= _PATIENCE


class Participant:
    """One of several threads, as it is written into a kernel: its part of what they share, and where it meets them."""

    def __init__(self, builder: Builder, header: dict[str, LlvmValue]) -> None:
        # There is memory for so many; some may have left.
        self._b, self.number, self.room_for = builder, header["member"], header["members"]
        self._meeting = header["meeting"]

    def part(self, count: LlvmValue) -> tuple[LlvmValue, LlvmValue]:
        """From where, and up to where, of so many: nearly the same for everybody, the last has the most."""
        b, members = self._b, self._expected()
        ends = self.number, b.binary("add", self.number, integer(1))
        first, last = (b.binary("sdiv", b.binary("mul", count, end), members) for end in ends)
        return first, last

    def meet(self) -> None:
        """Wait until everybody is here; leave if one is not expected any more."""
        self._b.void(f"call void @meet({self._meeting})")
        self.leave()

    def leave(self) -> None:
        """Return, if one is not expected any more."""
        self._b.leave_if(self._b.compare("sge", self.number, self._expected()))

    def takes_turn(self, number: LlvmValue) -> LlvmValue:
        """Whether it is this member's turn."""
        turn = self._b.binary("srem", number, self._expected())
        return self._b.compare("eq", turn, self.number)

    def _expected(self) -> LlvmValue:
        """How many members there are now."""
        place = self._b.advance(self._meeting, _MEMBERS, 8)
        return self._b.let("i64", f"load atomic i64, {place} monotonic, align 8")


# The list has a meeting, and how often to come to it. Once somebody was late too often it is over.
_OFTEN = f"""
define void @often(ptr %list) {{
entry:
  %times_slot = getelementptr i64, ptr %list, i64 1
  %meeting = load ptr, ptr %list, align 8
  %times = load i64, ptr %times_slot, align 8
  %members_place = getelementptr i64, ptr %meeting, i64 {_MEMBERS}
  br label %loop
loop:
  %index = phi i64 [ 0, %entry ], [ %next, %loop ]
  call void @meet(ptr %meeting)
  %members = load atomic i64, ptr %members_place monotonic, align 8
  %next = add i64 %index, 1
  %several = icmp sgt i64 %members, 1
  %left = icmp slt i64 %next, %times
  %more = and i1 %several, %left
  br i1 %more, label %loop, label %end
end:
  ret void
}}
"""
_TIMES, _TRIES, _SECONDS, _LEAST = 26, 40, 5e-3, 10.0
_MEASURED: dict[int, float] = {}


def barrier_nanoseconds(members: int) -> float:
    """How long it takes so many threads to meet here, if nobody keeps them from it.

    It is measured once, in some milliseconds: 80 ns for the two processors of one machine, 350 for two of another's 16.
    With too few threads, or without a clock, it takes forever, for now.
    """
    if members not in _MEASURED:
        found = _measure(members) if _MONOTONIC else None
        if found is None:
            return float("inf")
        _MEASURED[members] = found
    return _MEASURED[members]


def _measure(members: int) -> float | None:
    together, meeting, taken = team(), Barrier(0.0), {}
    library, end = load(MEETING + _OFTEN), perf_counter() + _SECONDS
    for times in (1, _TIMES):
        numbers = array("q", (meeting.address, times))
        calls = calls_of(library.address("often"), [numbers.buffer_info()[0]] * members)
        tries: list[float] = []
        while not tries or (len(tries) < _TRIES and perf_counter() < end):
            meeting.begin(members)
            start = perf_counter()
            if not together.run_at_once(calls) or meeting.was_left:
                return None
            tries.append(perf_counter() - start)
        taken[times] = min(tries)
    found = 1e9 * (taken[_TIMES] - taken[1]) / (_TIMES - 1)
    # Nobody is so fast: others were in the way.
    return found if found > _LEAST else None
