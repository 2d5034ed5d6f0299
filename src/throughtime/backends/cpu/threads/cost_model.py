"""How many threads walk through a shard of rows: one, or several side by side.

One that has its rows for itself waits for nobody. But it goes through all matrices at every step, and of few rows that
is all it does. Several share the matrix, but have to meet. What both ways take is estimated, with figures that fit two
processors of one kind and 16 of another; what it takes to meet differs too much for that, and is measured.
"""

from __future__ import annotations

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
_WORTH_MEETING = 1.1
"""How much faster several must be."""


class ThreadLayout(NamedTuple):
    """So many shards, each for so many threads."""

    shards: int
    members: int


@dataclass(frozen=True)
class StepCost:
    """What a step does for one row.

    That is: multiply-adds with matrices of so many bytes, those that run ahead of the loop, other numbers; and after
    how many stages threads that walk side by side have to meet.
    """

    multiply_adds: int
    matrix_bytes: int
    ahead: int
    numbers: int
    stages: int

    def crew(self, rows: int, shards: int, threads: int, *, helped: bool) -> ThreadLayout:
        """Who should walk where one thread for each of so many shards, and `helped` or not, is the other way."""
        chosen = ThreadLayout(shards, 1)
        if not self.multiply_adds:
            return chosen
        least = self.nanoseconds(rows, chosen, helped=helped) / _WORTH_MEETING
        members = 2
        while members <= min(threads, _MOST_MEMBERS):
            crew = ThreadLayout(min(threads // members, rows), members)
            taken = self.nanoseconds(rows, crew)
            # To meet is measured only where it matters.
            if taken < least and (taken := taken + self._meetings(crew)) < least:
                chosen, least = crew, taken
            members *= 2
        return chosen

    def nanoseconds(self, rows: int, crew: ThreadLayout, *, helped: bool = False) -> float:
        """About how long a step takes without meetings; what runs ahead is somebody else's if the crew is `helped`."""
        shards, members = crew
        each = -(-rows // shards)
        is_near = self.matrix_bytes <= members * near_bytes()
        far = FAR_MATRIX_NANOSECONDS + CONTENTION_NANOSECONDS * shards * members
        waiting = NEAR_MATRIX_NANOSECONDS if is_near else far
        product = max(MULTIPLY_ADD_NANOSECONDS * each, waiting) * self.multiply_adds
        ahead = 0.0 if helped else MULTIPLY_ADD_NANOSECONDS * each * self.ahead
        pointwise = ELEMENT_NANOSECONDS * self.numbers * -(-each // members)
        return (product + ahead) / members + pointwise

    def _meetings(self, crew: ThreadLayout) -> float:
        factor = BARRIER_FACTOR if crew.shards == 1 else SHARED_BARRIER_FACTOR
        return factor * barrier_nanoseconds(crew.members) * self.stages


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


@cache
def near_bytes() -> int:
    """What a thread keeps near of its matrices: three quarters of the second cache of a processor."""
    told = Path("/sys/devices/system/cpu/cpu0/cache/index2/size")
    try:
        return 3 * 1024 * int(told.read_text().strip().removesuffix("K")) // 4
    except (OSError, ValueError):
        return 3 << 18
