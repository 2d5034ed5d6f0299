"""A compiled loop program, ready to run: rows into shards, and launches of those."""

from __future__ import annotations

import contextlib
import ctypes
import itertools
from collections.abc import Sequence
from functools import cached_property

from torch import Tensor

from throughtime.backends.cpu.codegen.kernel import emit_kernel, slots
from throughtime.backends.cpu.codegen.listing import write_source
from throughtime.backends.cpu.launch import Code, Division, Launch, Shard, StepRanges
from throughtime.backends.cpu.plan.kernel_plan import make_plan
from throughtime.backends.cpu.plan.scratch_layout import BLOCK_ROWS, make_layout
from throughtime.backends.cpu.threads.cost_model import ThreadLayout, step_cost_of
from throughtime.backends.cpu.threads.partition import (
    cut_steps,
    is_worth_help,
    is_worth_pieces,
    nanoseconds_of,
    useful_shards,
    with_halves,
)
from throughtime.compiler.ir.loop_ir import LoopProgram
from throughtime.layout.step_layout import StepLayout
from throughtime.native.caching_allocator import Scratch
from throughtime.native.gemm.pack_jobs import make_packer
from throughtime.native.threads.prefetch_ring import RING_SLOTS
from throughtime.native.threads.split_rows import cut_rows
from throughtime.native.toolchain import llvm
from throughtime.native.toolchain.module_loader import ELEMENTS, load, product_address


class LoopKernel:
    """The kernel of one loop program. `source` is for people, `llvm` is what the machine code was made from.

    For threads that walk side by side there is other code, from the same plan.
    """

    def __init__(self, program: LoopProgram, host: llvm.Host | None = None) -> None:
        host = host or llvm.host()
        plan = make_plan(program)
        self.program, self.replaceable = program, plan.replaceable
        self._plan, self._host = plan, host
        self.source = write_source(plan, host)
        self.llvm = emit_kernel(plan, host)
        library = load(self.llvm)
        self._layout = make_layout(plan)
        packers = [make_packer(matrix, host) for matrix in program.given_matrices]
        *panels, packed_bytes = itertools.accumulate((packer.bytes for packer in packers), initial=0)
        dtypes = {matrix.dtype for matrix in program.given_matrices}
        self._code = Code(
            function=library.function("loop", ctypes.c_void_p),
            address=library.address("loop"),
            products=[product_address(dtype, host) if dtype in dtypes else 0 for dtype in ELEMENTS],
            arguments=len(slots(program)),
            packers=packers,
            own=len(program.matrices),
            panels=panels,
            packed_bytes=packed_bytes,
        )
        self._work = step_cost_of(plan)
        self._crews: dict[tuple[int, int, int, bool], ThreadLayout] = {}
        self._row_nanoseconds = nanoseconds_of(program)
        self._ahead_nanoseconds = 0.0 if program.ahead is None else nanoseconds_of(program.ahead.program)
        self._latest: tuple[tuple[int, int, int], Division | None] = (0, 0, 0), None
        # Not while it runs: one thread has it at a time.
        self._latest_launch: list[Launch] = []

    @cached_property
    def _joint_code(self) -> Code:
        """The same for threads that walk side by side."""
        library = load(emit_kernel(self._plan, self._host, joint=True))
        return self._code._replace(function=library.function("loop", ctypes.c_void_p), address=library.address("loop"))

    def run(  # noqa: PLR0913 (one for each kind of buffer)
        self,
        streams: Sequence[Tensor],
        lagged: Sequence[tuple[Tensor, Tensor]],
        constants: Sequence[Tensor],
        matrices: Sequence[Tensor],
        carried: Sequence[Tensor],
        stored: Sequence[Tensor],
        steps: StepLayout,
        first: int,
        last: int,
        threads: int,
        origin: int = 0,
    ) -> None:
        """Run steps `first` to `last` (backwards if the program is); see the README for the arguments."""
        if last <= first:
            return
        self.launch(
            self.divide(steps, first, last, threads),
            [
                *[tensor.data_ptr() for tensor in streams],
                *[stream.data_ptr() for stream, _ in lagged],
                *[initial.data_ptr() for _, initial in lagged],
                *[tensor.data_ptr() for tensor in constants],
            ],
            [(matrix.data_ptr(), *matrix.stride()) for matrix in matrices],
            [*[tensor.data_ptr() for tensor in carried], *[tensor.data_ptr() for tensor in stored]],
            origin,
        )

    def divide(self, steps: StepLayout, first: int, last: int, threads: int) -> Division:
        """Who does what of some steps; small calls come again and again with the same."""
        latest, known = self._latest
        if known is not None and known.steps is steps and latest == (first, last, threads):
            return known
        count = self._useful_shards(steps, first, last, threads)
        ahead_nanoseconds = self._ahead_nanoseconds * steps.batch_size * (last - first)
        is_helped = threads > 1 and count == 1 and is_worth_help(ahead_nanoseconds)
        crew = self._crew(steps.batch_size, last - first, count, threads, helped=is_helped)
        shards = self._cut(steps, first, last, crew.shards)
        is_whole, is_joint = (first, last) == (0, len(steps.counts)), crew.members > 1
        total = steps.total if is_whole else sum(steps.counts[first:last])
        workers, nanoseconds = len(shards), self._row_nanoseconds * total
        pieces: list[StepRanges] = []
        is_much = workers > 1 and is_worth_pieces(nanoseconds, is_ragged=steps.is_ragged)
        if is_much and is_whole and not is_joint:
            shards, pieces = self._in_pieces(steps, shards)
        rooms = RING_SLOTS if is_helped and not is_joint else 1
        each = [self._shard(rows, last - first, crew.members, assisted=rooms > 1) for rows in shards]
        nbytes = sum(shard.step_bytes + rooms * shard.room_bytes for shard in each)
        useful = workers * crew.members
        division = Division(steps, first, last, each, rooms, nbytes, pieces, useful, crew.members, nanoseconds)
        self._latest = (first, last, threads), division
        return division

    def launch(
        self,
        division: Division,
        inputs: Sequence[int],
        matrices: Sequence[tuple[int, ...]],
        results: Sequence[int],
        origin: int = 0,
    ) -> None:
        """Run on addresses, in the order of `run`; matrices with the steps from row to row and column to column."""
        with Scratch(self._code.packed_bytes + division.scratch_bytes) as memory:
            launch: Launch | None = None
            with contextlib.suppress(IndexError):
                launch = self._latest_launch.pop()
            if launch is None or not launch.fits(division, memory):
                launch = Launch(self._joint_code if division.is_joint else self._code, division, memory)
            launch.run(inputs, matrices, results, origin)
            self._latest_launch[:] = [launch]

    def _shard(self, rows: tuple[int, int], steps: int, members: int, *, assisted: bool) -> Shard:
        start, stop = rows
        # Where another prepares blocks the walk waits for the first: that one is small.
        most = BLOCK_ROWS // 2 if assisted else BLOCK_ROWS * members
        block = max(1, min(most // (stop - start), steps))
        less = block - max(1, block // 3) if assisted else 0
        count, layout = stop - start, self._layout
        step_bytes, room_bytes = layout.step.bytes(count, members), layout.block.bytes(block * count, members)
        return Shard(start, stop, block, less, block * count, step_bytes, room_bytes)

    def _useful_shards(self, steps: StepLayout, first: int, last: int, threads: int) -> int:
        """How many threads it is worth to wake up, for rows of their own."""
        if threads <= 1:
            return 1
        most = useful_shards(self._row_nanoseconds * steps.batch_size * (last - first))
        if self._code.packers:
            # One row costs a product as much as two.
            most = min(most, -(-steps.batch_size // 2))
        return max(1, min(threads, most))

    def _in_pieces(
        self, steps: StepLayout, shards: list[tuple[int, int]]
    ) -> tuple[list[tuple[int, int]], list[StepRanges]]:
        """Shards and their halves, and the pieces of all of them: a half goes on with those of the whole."""
        ranges, firsts = with_halves(shards)
        active, reverse = steps.active.numpy(), self.program.reverse
        pieces = [cut_steps(active, start, stop, reverse=reverse) for start, stop in shards]
        for number, first in enumerate(firsts):
            pieces += [pieces[number]] * 2 if first else []
        return ranges, list(map(StepRanges, pieces, firsts))

    def _crew(self, rows: int, steps: int, shards: int, threads: int, *, helped: bool) -> ThreadLayout:
        """Who walks; it has to be worth it to call several."""
        if threads <= 1 or useful_shards(self._row_nanoseconds * rows * steps) < 2:
            return ThreadLayout(shards, 1)
        key = rows, shards, threads, helped
        if key not in self._crews:
            self._crews[key] = self._work.crew(rows, shards, threads, helped=helped)
        return self._crews[key]

    def _cut(self, steps: StepLayout, first: int, last: int, count: int) -> list[tuple[int, int]]:
        """Ranges of rows."""
        if count <= 1:
            return [(0, steps.batch_size)] if steps.batch_size else []
        if (first, last) != (0, len(steps.counts)):
            return cut_rows([min(max(length - first, 0), last - first) for length in steps.lengths], count)
        if count not in steps.cuts:
            steps.cuts[count] = cut_rows(steps.lengths, count)
        return steps.cuts[count]
