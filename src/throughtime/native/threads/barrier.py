"""A spin barrier for the threads that run one shard together (`barrier.ll`).

With few rows, or a matrix that is too large for the L2 cache, a thread with rows of its own would read the whole matrix
at every step. Cooperative threads share the rows: each multiplies all rows with some columns of the matrix, they wait
for each other, each computes what is pointwise for some rows, and they wait again. The order of every sum stays the
same.
"""

from __future__ import annotations

import ctypes
import time
from array import array
from collections.abc import Callable
from functools import cache
from time import perf_counter

from throughtime.native.threads.calls import calls_of
from throughtime.native.threads.mailbox import mailbox_code
from throughtime.native.threads.team import team
from throughtime.native.toolchain.ir_files import read_ir
from throughtime.native.toolchain.llvm import NativeModule
from throughtime.native.toolchain.llvm_builder import Builder, LlvmValue, integer
from throughtime.native.toolchain.module_loader import load

BARRIER_IR = read_ir(__package__, "barrier.ll")
_BENCHMARK_IR = read_ir(__package__, "barrier_benchmark.ll")
_FIELDS = BARRIER_IR.fields("barrier")
_LATE_LIMIT = BARRIER_IR.constants["barrier_late_limit"]
_CLOCK_ID = getattr(time, "CLOCK_MONOTONIC", None)
"""The number of a clock, which differs between systems; without one, threads do not cooperate."""
_LATE_NANOSECONDS = 200_000
"""A thread that lets others wait for longer than this and one step does not run: the machine is oversubscribed."""


@cache
def _clock_function() -> int:
    return ctypes.cast(ctypes.CDLL(None).clock_gettime, ctypes.c_void_p).value or 0


class Barrier:
    """The record of one barrier; it must live as long as threads use it.

    `step_nanoseconds` is the time that one thread would take for a step.
    """

    def __init__(self, step_nanoseconds: float, late_nanoseconds: int = _LATE_NANOSECONDS) -> None:
        record = dict.fromkeys(_FIELDS, 0)
        del record["end"]
        record["yield"], record["clock"] = mailbox_code().yield_function, _clock_function()
        record["clock_id"], record["late_after"] = _CLOCK_ID or 0, late_nanoseconds + int(step_nanoseconds)
        self._initial = array("q", record.values())
        self._words = self._initial[:]
        self.address = self._words.buffer_info()[0]

    def begin(self, members: int) -> None:
        """Reset it for a number of threads."""
        self._words[:] = self._initial
        self._words[_FIELDS["members"]] = members

    def __getitem__(self, field: str) -> int:
        return self._words[_FIELDS[field]]

    @property
    def has_dropped(self) -> bool:
        """Whether threads were late too often, and the first one went on alone."""
        return self["late_count"] >= _LATE_LIMIT

    def drop_others(self) -> None:
        """Let the first thread go on alone from the next generation on, as after too many late ones."""
        self._words[_FIELDS["late_count"]] = _LATE_LIMIT


class Participant:
    """One of several cooperative threads, as code of a kernel: its part of shared work, and where it waits."""

    def __init__(self, builder: Builder, header: dict[str, LlvmValue]) -> None:
        # There is memory for `room_for` threads; some of them may have been dropped.
        self._b, self.number, self.room_for = builder, header["member"], header["members"]
        self._barrier = header["barrier"]

    def part(self, count: LlvmValue) -> tuple[LlvmValue, LlvmValue]:
        """The range of this thread in `count` items: nearly equal parts, the last is the largest."""
        b, members = self._b, self._expected()
        ends = self.number, b.binary("add", self.number, integer(1))
        first, last = (b.binary("sdiv", b.binary("mul", count, end), members) for end in ends)
        return first, last

    def wait(self) -> None:
        """Wait until all threads are here; return from the kernel if this one was dropped."""
        self._b.void(f"call void @barrier_wait({self._barrier})")
        self.leave_if_dropped()

    def leave_if_dropped(self) -> None:
        """Return from the kernel if this thread is not expected any more."""
        self._b.leave_if(self._b.compare("sge", self.number, self._expected()))

    def has_turn(self, number: LlvmValue) -> LlvmValue:
        """Whether an item is this thread's, if items are dealt round-robin."""
        turn = self._b.binary("srem", number, self._expected())
        return self._b.compare("eq", turn, self.number)

    def _expected(self) -> LlvmValue:
        """The number of threads that are still expected."""
        place = self._b.advance(self._barrier, _FIELDS["members"], 8)
        return self._b.let("i64", f"load atomic i64, {place} monotonic, align 8")


_REPEATS, _TRIES, _SECONDS, _LEAST_NANOSECONDS = 26, 40, 5e-3, 10.0
_measured: dict[int, float] = {}


def barrier_nanoseconds(
    members: int, measured: dict[int, float] = _measured, make_barrier: Callable[[float], Barrier] = Barrier
) -> float:
    """The time that a barrier takes for a number of threads, if they are not kept from running.

    It is measured once, in some milliseconds: 80 ns for the two processors of one machine, 350 for two of another's 16.
    It is infinite without a clock, and for now while there are fewer threads.
    """
    if members not in measured:
        found = None if _CLOCK_ID is None else _measure(members, make_barrier(0.0))
        if found is None:
            return float("inf")
        measured[members] = found
    return measured[members]


@cache
def benchmark_code() -> NativeModule:
    """The function `reach_barrier_often`."""
    return load(BARRIER_IR.text + _BENCHMARK_IR.definitions)


def _measure(members: int, barrier: Barrier) -> float | None:
    threads, taken, end = team(), dict[int, float](), perf_counter() + _SECONDS
    for repeats in (1, _REPEATS):
        benchmark = array("q", (barrier.address, repeats))
        calls = calls_of(benchmark_code().address("reach_barrier_often"), [benchmark.buffer_info()[0]] * members)
        tries: list[float] = []
        while not tries or (len(tries) < _TRIES and perf_counter() < end):
            barrier.begin(members)
            start = perf_counter()
            if not threads.run_concurrently(calls) or barrier.has_dropped:
                return None
            tries.append(perf_counter() - start)
        taken[repeats] = min(tries)
    found = 1e9 * (taken[_REPEATS] - taken[1]) / (_REPEATS - 1)
    # No barrier is faster: another program has disturbed the measurement.
    return found if found > _LEAST_NANOSECONDS else None
