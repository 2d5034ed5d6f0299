"""The scheduling policy of kernels: how much work justifies which use of threads.

Four strategies exist. *Shards*: each thread runs rows of its own. *Work stealing*: shards run in pieces, and an idle
thread takes half of the rows of a slow one. *Prefetch*: one thread runs the loop, another computes ahead of it.
*Cooperation*: several threads run one shard, with a barrier after every stage.

Kernels use the policy of the process, `thread_policy`, unless `run` is given another. Results never depend on it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter

from throughtime._setting import Setting
from throughtime.native.gemm.pack_jobs import SHARED_PACKING_BYTES
from throughtime.native.threads.barrier import Barrier


class Backoff:
    """When to use other threads for one loop again, after they came late.

    A parallel region ends when all its threads have arrived: with fewer processors than threads, one of them comes
    late. Two programs on two processors took 8 ms for a loop that takes 0.1 ms alone. So a loop that took much too long
    is followed by a pause without other threads, twice as long each time it happens again.
    """

    SHORTEST_PAUSE, LONGEST_PAUSE = 5e-3, 1.0

    def __init__(self, clock: Callable[[], float] = perf_counter) -> None:
        self.clock, self.pause_end, self._pause = clock, 0.0, self.SHORTEST_PAUSE

    @property
    def is_pausing(self) -> bool:
        return self.clock() < self.pause_end

    def note(self, *, late: bool) -> None:
        """Note how a loop with other threads ended."""
        if late:
            self.pause_end = self.clock() + self._pause
            self._pause = min(2 * self._pause, self.LONGEST_PAUSE)
        else:
            self._pause = self.SHORTEST_PAUSE


@dataclass(frozen=True, eq=False)
class ThreadPolicy:
    """Thresholds in nanoseconds of estimated work of one thread. Two policies are equal only if they are the same."""

    shard_nanoseconds: float = 20_000
    """Work that justifies a thread of its own.

    A thread of torch's team costs some microseconds while it spins, and tens of them on a virtual machine if it has to
    be woken up. A second thread is used from two shards of this size on.
    """
    prefetch_nanoseconds: float = 25_000
    """Work ahead of a loop that another thread computes."""
    stealing_nanoseconds: float = 4e6
    ragged_stealing_nanoseconds: float = 4e7
    """Work that is cut into pieces for work stealing; where lengths differ the cutting is repeated at every call."""
    half_rows: int = 4
    """A half of fewer rows is slow to multiply, and is not made."""
    packing_bytes: int = SHARED_PACKING_BYTES
    """Panels of matrices that several threads pack."""
    members: int | None = None
    """Threads that cooperate on a shard; None if the cost model decides."""
    make_barrier: Callable[[float], Barrier] = Barrier
    """Makes the barrier of a shard whose steps take one thread a number of nanoseconds."""
    backoff: Backoff = field(default_factory=Backoff)

    def useful_shards(self, nanoseconds: float) -> int:
        """The number of shards that an amount of work justifies."""
        return max(1, int(nanoseconds / self.shard_nanoseconds))

    def prefetches(self, nanoseconds: float) -> bool:
        """Whether another thread computes an amount of work ahead of the loop."""
        return nanoseconds >= self.prefetch_nanoseconds

    def steals(self, nanoseconds: float, *, is_ragged: bool) -> bool:
        """Whether an amount of work is cut into pieces."""
        return nanoseconds >= (self.ragged_stealing_nanoseconds if is_ragged else self.stealing_nanoseconds)


thread_policy = Setting(ThreadPolicy())
"""The policy of the process."""
