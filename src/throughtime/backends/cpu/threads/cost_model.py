"""The number of threads that run a shard of rows: one, or several that cooperate.

A thread with rows of its own needs no barrier. But it reads all matrices at every step, and with few rows that takes
most of its time. Cooperative threads share the matrices, and need a barrier after every stage. The time of both is
estimated, with figures that fit two processors of one kind and 16 of another; the time of a barrier differs too much
between machines, and is measured.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

from throughtime.backends.cpu.plan.kernel_plan import KernelPlan
from throughtime.backends.hardware_rates import (
    BARRIER_FACTOR,
    CONTENTION_NANOSECONDS,
    ELEMENT_NANOSECONDS,
    FAR_MATRIX_NANOSECONDS,
    MULTIPLY_ADD_NANOSECONDS,
    NEAR_MATRIX_NANOSECONDS,
    SHARED_BARRIER_FACTOR,
)
from throughtime.compiler.ir.costs import elements, multiply_adds
from throughtime.native.threads.barrier import barrier_nanoseconds

_MOST_MEMBERS = 8
_LEAST_SPEEDUP = 1.1
"""Of cooperative threads over independent ones."""


class ThreadLayout(NamedTuple):
    """A number of shards, and the number of threads that run each."""

    shards: int
    members: int


@cache
def near_bytes() -> int:
    """Bytes of matrices that stay in the L2 cache of a processor: three quarters of it."""
    size = Path("/sys/devices/system/cpu/cpu0/cache/index2/size")
    try:
        return 3 * 1024 * int(size.read_text().strip().removesuffix("K")) // 4
    except (OSError, ValueError):
        return 3 << 18


class Machine(NamedTuple):
    """The two figures of a machine that decide; this one's by default."""

    near_bytes: Callable[[], int] = near_bytes
    barrier_nanoseconds: Callable[[int], float] = barrier_nanoseconds


@dataclass(frozen=True)
class StepCost:
    """The work of a step for one row.

    Multiply-adds of the loop and of the work ahead of it, other numbers, the bytes of the loop's matrices, and the
    stages, after each of which cooperative threads need a barrier.
    """

    multiply_adds: int
    matrix_bytes: int
    ahead: int
    numbers: int
    stages: int

    def thread_layout(
        self,
        independent: ThreadLayout,
        rows: int,
        threads: int,
        *,
        prefetched: bool,
        machine: Machine | None = None,
    ) -> ThreadLayout:
        """The fastest layout: one thread for each shard of the `independent` layout, or cooperative threads."""
        if not self.multiply_adds:
            return independent
        machine = machine or Machine()
        chosen = independent
        least = self.nanoseconds(rows, chosen, machine.near_bytes(), prefetched=prefetched) / _LEAST_SPEEDUP
        members = 2
        while members <= min(threads, _MOST_MEMBERS):
            layout = cooperative_layout(rows, threads, members)
            taken = self.nanoseconds(rows, layout, machine.near_bytes())
            # A barrier is measured only where its time decides.
            if taken < least and (taken := taken + self._barriers(layout, machine)) < least:
                chosen, least = layout, taken
            members *= 2
        return chosen

    def nanoseconds(self, rows: int, layout: ThreadLayout, near_bytes: int, *, prefetched: bool = False) -> float:
        """Estimated time of a step without barriers; another thread does the work ahead if it is `prefetched`."""
        shards, members = layout
        each = -(-rows // shards)
        is_near = self.matrix_bytes <= members * near_bytes
        far = FAR_MATRIX_NANOSECONDS + CONTENTION_NANOSECONDS * shards * members
        waiting = NEAR_MATRIX_NANOSECONDS if is_near else far
        product = max(MULTIPLY_ADD_NANOSECONDS * each, waiting) * self.multiply_adds
        ahead = 0.0 if prefetched else MULTIPLY_ADD_NANOSECONDS * each * self.ahead
        pointwise = ELEMENT_NANOSECONDS * self.numbers * -(-each // members)
        return (product + ahead) / members + pointwise

    def _barriers(self, layout: ThreadLayout, machine: Machine) -> float:
        factor = BARRIER_FACTOR if layout.shards == 1 else SHARED_BARRIER_FACTOR
        return factor * machine.barrier_nanoseconds(layout.members) * self.stages


def cooperative_layout(rows: int, threads: int, members: int) -> ThreadLayout:
    """The shards of `members` threads each."""
    return ThreadLayout(min(threads // members, rows), members)


def step_cost_of(plan: KernelPlan) -> StepCost:
    """The work of a plan."""
    program, ahead = plan.program, plan.program.ahead
    return StepCost(
        multiply_adds=multiply_adds(program),
        matrix_bytes=sum(matrix.rows * matrix.columns * matrix.dtype.itemsize for matrix in program.matrices),
        ahead=0 if ahead is None else multiply_adds(ahead.program),
        numbers=elements(program),
        stages=len(plan.stages),
    )
