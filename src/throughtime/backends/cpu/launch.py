"""One run of a kernel: the frames of its threads, and the memory that they work in.

A small network runs again and again over batches of the same shape. Its launch is reused, and only the addresses of
tensors are new.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from typing import NamedTuple

from throughtime.backends.cpu.codegen.kernel import HEADER
from throughtime.backends.cpu.threads.policy import ThreadPolicy
from throughtime.layout.step_layout import StepLayout
from throughtime.native.gemm.pack_jobs import PackJobs, PanelPacker
from throughtime.native.threads.calls import Threads, calls_of
from throughtime.native.threads.prefetch_ring import PrefetchRing
from throughtime.native.threads.team import team
from throughtime.native.threads.work_stealing import StealableLoop, WorkStealing

_FIRST, _ORIGIN, _RING, _PRODUCES, _MEMBERS, _BARRIER = map(
    HEADER.index, ("first", "origin", "ring", "produces", "members", "barrier")
)
_LATE_SECONDS = 1e-3
"""A loop with prefetch is late after this time and three times its estimate."""

Matrices = Sequence[tuple[int, ...]]
"""Addresses of matrices, each with the steps from row to row and from column to column."""


class Shard(NamedTuple):
    """Rows from `start` to `stop`, with the blocks of steps that are computed ahead of the loop.

    A block has `block` steps, the first one `less` fewer, and at most `block_rows` rows. The loop needs `step_bytes` of
    scratch memory, and each slot for a block `slot_bytes`.
    """

    start: int
    stop: int
    block: int
    less: int
    block_rows: int
    step_bytes: int
    slot_bytes: int


class StepRanges(NamedTuple):
    """The pieces of a shard: the first step of each and the one after its last; the number of its first half, or 0."""

    steps: array[int]
    half: int


class Division(NamedTuple):
    """A range of steps, and the shards of their rows.

    `threads` are used, with one shard each. With `pieces` (one `StepRanges` a shard) the shards after the first
    `threads` are halves of those before them. With several `slots` another thread computes the blocks of the only
    shard. With several `members` each shard is run by that number of cooperative threads. `nanoseconds` is the
    estimated time of one thread.
    """

    steps: StepLayout
    first: int
    last: int
    shards: list[Shard]
    slots: int
    scratch_bytes: int
    pieces: list[StepRanges]
    threads: int
    members: int
    nanoseconds: float
    policy: ThreadPolicy

    @property
    def is_prefetched(self) -> bool:
        return self.slots > 1

    @property
    def is_cooperative(self) -> bool:
        return self.members > 1


class Code(NamedTuple):
    """A compiled kernel as a function and as an address, the GEMMs it calls, and the number of arguments of a frame.

    `packers` pack its matrices to the offsets `panels` of `packed_bytes`: the first `own` are for the loop, the others
    for the work ahead of it.
    """

    function: Callable[[int], None]
    address: int
    products: Sequence[int]
    arguments: int
    packers: Sequence[PanelPacker]
    own: int
    panels: Sequence[int]
    packed_bytes: int


class Launch:
    """A division of steps, ready to run in some memory as soon as addresses are known."""

    def __init__(self, code: Code, division: Division, memory: int) -> None:
        self._code, self._division, self._memory = code, division, memory
        self._backoff = division.policy.backoff
        # The panels come first, then the scratch memory of each shard.
        self._panels = [memory + offset for offset in code.panels]
        self._frames = _frames(code, division, memory + code.packed_bytes)
        step_nanoseconds = division.nanoseconds / max(1, division.last - division.first)
        make_barrier, cooperative = division.policy.make_barrier, division.shards if division.is_cooperative else []
        self._barriers = [make_barrier(step_nanoseconds) for _ in cooperative]
        for number, frame in enumerate(self._frames if division.is_cooperative else ()):
            frame[_BARRIER] = self._barriers[number // division.members].address
        self._starts = [frame.buffer_info()[0] for frame in self._frames]
        self._calls = calls_of(code.address, self._starts) if len(self._starts) > 1 else array("q")
        self._stealing: WorkStealing | None = None
        if division.pieces:
            loops = [StealableLoop(start, *pieces) for start, pieces in zip(self._starts, division.pieces, strict=True)]
            self._stealing = WorkStealing(code.address, _FIRST, loops, division.threads)
        self._matrices: list[tuple[int, ...]] | None = None

    def fits(self, division: Division, memory: int) -> bool:
        """Whether it can run this division in this memory too."""
        return division is self._division and memory == self._memory

    def run(self, inputs: Sequence[int], matrices: Matrices, results: Sequence[int], origin: int) -> None:
        """Pack the matrices and run all steps; see `LoopKernel.launch`."""
        if matrices != self._matrices:
            self._set_matrices(matrices)
        arguments = array("q", (*inputs, *self._panels, *results))
        for frame in self._frames:
            frame[_ORIGIN] = origin
            frame[len(HEADER) :] = arguments
        if self._ring is not None:
            self._ring.begin()
        else:
            self._packing.run(alone=self._division.is_cooperative and self._backoff.is_pausing)
        self._run_loop()

    def _set_matrices(self, matrices: Matrices) -> None:
        """Make the jobs that pack the matrices at these addresses."""
        code, division, self._ring = self._code, self._division, None
        jobs = [
            packer.job(source, down, across, panel)
            for packer, (source, down, across), panel in zip(code.packers, matrices, self._panels, strict=True)
        ]
        if division.is_prefetched:
            self._ring = PrefetchRing(jobs[: code.own], jobs[code.own :])
            for frame in self._frames:
                frame[_RING] = self._ring.address
        else:
            shares = division.threads if code.packed_bytes >= division.policy.packing_bytes else 1
            self._packing = PackJobs(code.packers, jobs, shares)
        self._matrices = list(matrices)

    def _run_loop(self) -> None:
        starts, division = self._starts, self._division
        if len(starts) == 1:
            self._code.function(starts[0])
        elif division.is_cooperative:
            self._run_cooperatively(team())
        elif self._stealing is not None:
            self._stealing.run(team())
        elif division.is_prefetched:
            self._run_with_prefetch(team())
        elif starts:
            team().run_calls(self._calls)

    def _run_with_prefetch(self, threads: Threads) -> None:
        """With another thread, unless other threads came late a short time ago."""
        backoff = self._backoff
        begun = backoff.clock()
        if begun < backoff.pause_end:
            # The loop computes every block itself.
            self._code.function(self._starts[0])
        else:
            threads.run_calls(self._calls)
            backoff.note(late=backoff.clock() - begun > 3e-9 * self._division.nanoseconds + _LATE_SECONDS)

    def _run_cooperatively(self, threads: Threads) -> None:
        """All members of each shard; or one thread a shard if others came late, or if there are too few threads."""
        members = self._division.members
        if not self._backoff.is_pausing:
            self._expect(members)
            if threads.run_concurrently(self._calls):
                # The barriers know best: the time of a step depends on where its matrices are.
                self._backoff.note(late=any(barrier.has_dropped for barrier in self._barriers))
                return
        starts = self._starts[::members]
        self._expect(1)
        if len(starts) > 1:
            threads.run(self._code.address, starts)
        else:
            self._code.function(starts[0])

    def _expect(self, members: int) -> None:
        for barrier in self._barriers:
            barrier.begin(members)
        for frame in self._frames:
            frame[_MEMBERS] = members


def _frames(code: Code, division: Division, scratch: int) -> list[array[int]]:
    """The frame of every thread, without the addresses of arguments."""
    steps, frames = division.steps, []
    head = (steps.active.data_ptr(), steps.offset.data_ptr(), division.first, division.last)
    for start, stop, block, less, block_rows, step_bytes, slot_bytes in division.shards:
        slots, stride = scratch + step_bytes, slot_bytes if division.is_prefetched else 0
        rest = (start, stop, steps.row_stride, 0, block, less, block_rows, scratch, slots, stride, 0, 0)
        for member in range(division.members):
            cooperation = (member, division.members, 0)
            frames.append(array("q", (*head, *rest, *cooperation, *code.products, *[0] * code.arguments)))
        scratch = slots + slot_bytes
    if division.is_prefetched:
        frames.append(frames[0][:])
        frames[1][_PRODUCES] = 1
    return frames
