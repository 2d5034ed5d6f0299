"""A compiled loop program, ready to run: it splits rows into shards and launches them."""

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
from throughtime.backends.cpu.threads.cost_model import ThreadLayout, cooperative_layout, step_cost_of
from throughtime.backends.cpu.threads.partition import cut_steps, nanoseconds_of, with_halves
from throughtime.backends.cpu.threads.policy import ThreadPolicy, thread_policy
from throughtime.compiler.ir.loop_ir import LoopProgram
from throughtime.layout.step_layout import StepLayout
from throughtime.native.caching_allocator import Scratch
from throughtime.native.gemm.pack_jobs import make_packer
from throughtime.native.threads.prefetch_ring import RING_SLOTS
from throughtime.native.threads.split_rows import cut_rows
from throughtime.native.toolchain import llvm
from throughtime.native.toolchain.module_loader import ELEMENTS, load, product_address


class LoopKernel:
    """The kernel of one loop program. `source` is a readable listing, `llvm` the IR that was compiled.

    Cooperative threads run other code, generated from the same plan.
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
        self._cost = step_cost_of(plan)
        self._layouts: dict[tuple[int, int, int, bool], ThreadLayout] = {}
        self._row_nanoseconds = nanoseconds_of(program)
        self._ahead_nanoseconds = 0.0 if program.ahead is None else nanoseconds_of(program.ahead.program)
        self._latest: tuple[tuple[int, int, int], Division | None] = (0, 0, 0), None
        # Empty while it runs: one thread uses it at a time.
        self._latest_launch: list[Launch] = []

    @cached_property
    def _cooperative_code(self) -> Code:
        """The same for cooperative threads."""
        library = load(emit_kernel(self._plan, self._host, cooperative=True))
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
        policy: ThreadPolicy | None = None,
    ) -> None:
        """Run steps `first` to `last` (backwards if the program is) on at most `threads`; see the README."""
        if last <= first:
            return
        self.launch(
            self.divide(steps, first, last, threads, policy),
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

    def divide(
        self, steps: StepLayout, first: int, last: int, threads: int, policy: ThreadPolicy | None = None
    ) -> Division:
        """The work of each thread for some steps. The last division is reused: small calls repeat with the same."""
        policy = policy or thread_policy.value
        latest, known = self._latest
        if known is not None and known.steps is steps and latest == (first, last, threads) and known.policy is policy:
            return known
        layout, is_prefetched = self._thread_layout(steps.batch_size, last - first, threads, policy)
        shards = self._cut(steps, first, last, layout.shards)
        is_whole, is_cooperative = (first, last) == (0, len(steps.counts)), layout.members > 1
        total = steps.total if is_whole else sum(steps.counts[first:last])
        workers, nanoseconds = len(shards), self._row_nanoseconds * total
        pieces: list[StepRanges] = []
        steals = workers > 1 and policy.steals(nanoseconds, is_ragged=steps.is_ragged)
        if steals and is_whole and not is_cooperative:
            shards, pieces = self._in_pieces(steps, shards, policy)
        slots = RING_SLOTS if is_prefetched and not is_cooperative else 1
        each = [self._shard(rows, last - first, layout.members, prefetched=slots > 1) for rows in shards]
        nbytes = sum(shard.step_bytes + slots * shard.slot_bytes for shard in each)
        useful = workers * layout.members
        division = Division(
            steps, first, last, each, slots, nbytes, pieces, useful, layout.members, nanoseconds, policy
        )
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
                launch = Launch(self._cooperative_code if division.is_cooperative else self._code, division, memory)
            launch.run(inputs, matrices, results, origin)
            self._latest_launch[:] = [launch]

    def _shard(self, rows: tuple[int, int], steps: int, members: int, *, prefetched: bool) -> Shard:
        start, stop = rows
        # With prefetch the loop waits for the first block: that one is small.
        most = BLOCK_ROWS // 2 if prefetched else BLOCK_ROWS * members
        block = max(1, min(most // (stop - start), steps))
        less = block - max(1, block // 3) if prefetched else 0
        count, layout = stop - start, self._layout
        step_bytes, slot_bytes = layout.step.bytes(count, members), layout.block.bytes(block * count, members)
        return Shard(start, stop, block, less, block * count, step_bytes, slot_bytes)

    def _thread_layout(self, rows: int, steps: int, threads: int, policy: ThreadPolicy) -> tuple[ThreadLayout, bool]:
        """The shards and their threads, and whether another thread computes ahead of the only one."""
        if threads <= 1:
            return ThreadLayout(1, 1), False
        justified = policy.useful_shards(self._row_nanoseconds * rows * steps)
        # A GEMM of one row costs as much as one of two.
        most = min(justified, -(-rows // 2)) if self._code.packers else justified
        independent = ThreadLayout(max(1, min(threads, most)), 1)
        is_prefetched = independent.shards == 1 and policy.prefetches(self._ahead_nanoseconds * rows * steps)
        if justified < 2:
            return independent, is_prefetched
        if policy.members is not None:
            is_alone = policy.members == 1
            return independent if is_alone else cooperative_layout(rows, threads, policy.members), is_prefetched
        key = rows, independent.shards, threads, is_prefetched
        if key not in self._layouts:
            self._layouts[key] = self._cost.thread_layout(independent, rows, threads, prefetched=is_prefetched)
        return self._layouts[key], is_prefetched

    def _in_pieces(
        self, steps: StepLayout, shards: list[tuple[int, int]], policy: ThreadPolicy
    ) -> tuple[list[tuple[int, int]], list[StepRanges]]:
        """Shards and their halves, and the pieces of all of them: a half continues with those of the whole."""
        ranges, firsts = with_halves(shards, policy.half_rows)
        active, reverse = steps.active.numpy(), self.program.reverse
        pieces = [cut_steps(active, start, stop, reverse=reverse) for start, stop in shards]
        for number, first in enumerate(firsts):
            pieces += [pieces[number]] * 2 if first else []
        return ranges, list(map(StepRanges, pieces, firsts))

    def _cut(self, steps: StepLayout, first: int, last: int, count: int) -> list[tuple[int, int]]:
        """Ranges of rows."""
        if count <= 1:
            return [(0, steps.batch_size)] if steps.batch_size else []
        if (first, last) != (0, len(steps.counts)):
            return cut_rows([min(max(length - first, 0), last - first) for length in steps.lengths], count)
        if count not in steps.cuts:
            steps.cuts[count] = cut_rows(steps.lengths, count)
        return steps.cuts[count]
