"""One run of a kernel: what its threads are told, and the memory that they work in.

A small network is run again and again over batches of the same shape. Then all of this is there from the run before,
and only the addresses of tensors are new.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import NamedTuple

from throughtime.backends.cpu.codegen.kernel import HEADER
from throughtime.layout.step_layout import StepLayout
from throughtime.native.gemm.pack_jobs import PackJobs, PanelPacker
from throughtime.native.threads.barrier import Barrier
from throughtime.native.threads.calls import Threads, calls_of
from throughtime.native.threads.prefetch_ring import PrefetchRing
from throughtime.native.threads.team import team
from throughtime.native.threads.work_stealing import StealableLoop, WorkStealing

_FIRST, _ORIGIN, _RELAY, _ASSISTS, _MEMBERS, _MEETING = map(
    HEADER.index, ("first", "origin", "relay", "assists", "members", "meeting")
)

Matrices = Sequence[tuple[int, ...]]
"""Addresses of matrices, each with the steps from row to row and from column to column."""


class Shard(NamedTuple):
    """Rows from `start` up to `stop`, prepared in blocks of steps; the first has so many `less`.

    Then: rows of a block, bytes of scratch memory, and of a room for a block.
    """

    start: int
    stop: int
    block: int
    less: int
    block_rows: int
    step_bytes: int
    room_bytes: int


class StepRanges(NamedTuple):
    """Those of a shard: the first step and the one after the last of each; and the number of its first half, or 0."""

    steps: array[int]
    half: int


class Division(NamedTuple):
    """Steps, and the shards of their rows.

    It is work for so many `threads`, with a shard for each; if there are `pieces`, of every shard, the other shards are
    halves of those before them. If there are several `rooms` for blocks, another thread prepares those of the only
    shard. With several `members` each shard is walked by so many side by side. One thread would take about so many
    `nanoseconds`.
    """

    steps: StepLayout
    first: int
    last: int
    shards: list[Shard]
    rooms: int
    scratch_bytes: int
    pieces: list[StepRanges]
    threads: int
    members: int
    nanoseconds: float

    @property
    def is_assisted(self) -> bool:
        return self.rooms > 1

    @property
    def is_joint(self) -> bool:
        return self.members > 1


class Code(NamedTuple):
    """A compiled kernel: as a function and as an address, the products that it calls, how many arguments a frame has.

    Its matrices are packed by `packers`, `own` of them for the loop itself, the others for what runs ahead of it, into
    panels at these places of so many bytes.
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
    """A division of steps, ready to be run in some memory as soon as addresses are known."""

    def __init__(self, code: Code, division: Division, memory: int) -> None:
        self._code, self._division, self._memory = code, division, memory
        # The panels come first, then the scratch memory of each shard.
        self._panels = [memory + place for place in code.panels]
        self._frames = _frames(code, division, memory + code.packed_bytes)
        step_nanoseconds = division.nanoseconds / max(1, division.last - division.first)
        self._meetings = [Barrier(step_nanoseconds) for _ in division.shards] if division.is_joint else []
        for place, frame in enumerate(self._frames if division.is_joint else ()):
            frame[_MEETING] = self._meetings[place // division.members].address
        self._starts = [frame.buffer_info()[0] for frame in self._frames]
        self._calls = calls_of(code.address, self._starts) if len(self._starts) > 1 else array("q")
        self._turns: WorkStealing | None = None
        if division.pieces:
            walks = [StealableLoop(start, *pieces) for start, pieces in zip(self._starts, division.pieces, strict=True)]
            self._turns = WorkStealing(code.address, _FIRST, walks, division.threads)
        self._matrices: list[tuple[int, ...]] | None = None

    def fits(self, division: Division, memory: int) -> bool:
        """Whether it serves for this division in this memory too."""
        return division is self._division and memory == self._memory

    def run(self, inputs: Sequence[int], matrices: Matrices, results: Sequence[int], origin: int) -> None:
        """Pack the matrices and walk through all steps; see `LoopKernel.launch`."""
        if matrices != self._matrices:
            self._aim(matrices)
        arguments = array("q", (*inputs, *self._panels, *results))
        for frame in self._frames:
            frame[_ORIGIN] = origin
            frame[len(HEADER) :] = arguments
        if self._relay is not None:
            self._relay.begin()
        else:
            self._packing.run(alone=self._division.is_joint and perf_counter() < _help.wanted_from)
        self._walk()

    def _aim(self, matrices: Matrices) -> None:
        """Note where the matrices are."""
        code, self._relay = self._code, None
        jobs = [
            packer.job(source, down, across, panel)
            for packer, (source, down, across), panel in zip(code.packers, matrices, self._panels, strict=True)
        ]
        if self._division.is_assisted:
            self._relay = PrefetchRing(jobs[: code.own], jobs[code.own :])
            for frame in self._frames:
                frame[_RELAY] = self._relay.address
        else:
            self._packing = PackJobs(code.packers, jobs, code.packed_bytes, self._division.threads)
        self._matrices = list(matrices)

    def _walk(self) -> None:
        starts, division = self._starts, self._division
        if len(starts) == 1:
            self._code.function(starts[0])
        elif division.is_joint:
            self._run_cooperatively(team())
        elif self._turns is not None:
            self._turns.run(team())
        elif division.is_assisted:
            self._run_with_prefetch(team())
        elif starts:
            team().run_calls(self._calls)

    def _run_with_prefetch(self, together: Threads) -> None:
        """Ask another thread for help, unless help has lately come too late."""
        begun = perf_counter()
        if begun < _help.wanted_from:
            # Whatever nobody has begun with, the walk does itself.
            self._code.function(self._starts[0])
        else:
            together.run_calls(self._calls)
            _help.came(late=perf_counter() - begun > 3e-9 * self._division.nanoseconds + _LATE)

    def _run_cooperatively(self, together: Threads) -> None:
        """All members at once; where they would wait for each other too long, or cannot be had, one for each shard."""
        begun, members = perf_counter(), self._division.members
        if begun >= _help.wanted_from:
            self._expect(members)
            if together.run_at_once(self._calls):
                # They know best; how long it should take depends on where matrices come from.
                _help.came(late=any(meeting.was_left for meeting in self._meetings))
                return
        starts = self._starts[::members]
        self._expect(1)
        if len(starts) > 1:
            together.run(self._code.address, starts)
        else:
            self._code.function(starts[0])

    def _expect(self, members: int) -> None:
        for meeting in self._meetings:
            meeting.begin(members)
        for frame in self._frames:
            frame[_MEMBERS] = members


class _Help:
    """Whether to ask for help. The team meets at the end: with fewer processors than threads, somebody comes late.

    Two programs on two processors took 8 ms for what each does alone in 0.1. So a walk that took much too long is
    followed by some without help, longer each time it happens again.
    """

    def __init__(self) -> None:
        self.wanted_from, self._pause = 0.0, _SHORTEST_PAUSE

    def came(self, *, late: bool) -> None:
        """Note that a walk is over that was helped, in time or late."""
        if late:
            self.wanted_from = perf_counter() + self._pause
            self._pause = min(2 * self._pause, _LONGEST_PAUSE)
        else:
            self._pause = _SHORTEST_PAUSE


_LATE, _SHORTEST_PAUSE, _LONGEST_PAUSE = 1e-3, 5e-3, 1.0
_help = _Help()


def _frames(code: Code, division: Division, scratch: int) -> list[array[int]]:
    """What each shard is told, and whoever assists with the only one; addresses of arguments are still to come."""
    steps, frames = division.steps, []
    head = (steps.active.data_ptr(), steps.offset.data_ptr(), division.first, division.last)
    for start, stop, block, less, block_rows, step_bytes, room_bytes in division.shards:
        rooms, apart = scratch + step_bytes, room_bytes if division.is_assisted else 0
        rest = (start, stop, steps.row_stride, 0, block, less, block_rows, scratch, rooms, apart, 0, 0)
        for member in range(division.members):
            crew = (member, division.members, 0)
            frames.append(array("q", (*head, *rest, *crew, *code.products, *[0] * code.arguments)))
        scratch = rooms + room_bytes
    if division.is_assisted:
        frames.append(frames[0][:])
        frames[1][_ASSISTS] = 1
    return frames
