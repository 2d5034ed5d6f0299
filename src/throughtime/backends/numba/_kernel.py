"""A compiled loop program, ready to run: rows into shards, and launches of those."""

from __future__ import annotations

import contextlib
import ctypes
import itertools
from collections.abc import Sequence

from torch import Tensor

from throughtime.backends._memory import Scratch
from throughtime.backends._steps import Steps
from throughtime.backends.numba import _llvm
from throughtime.backends.numba._emit import emit_kernel, slots
from throughtime.backends.numba._launch import Code, Division, Launch, Shard
from throughtime.backends.numba._layout import BLOCK_ROWS, make_layout
from throughtime.backends.numba._library import ELEMENTS, load, product_address
from throughtime.backends.numba._packer import make_packer
from throughtime.backends.numba._plan import make_plan
from throughtime.backends.numba._relay import ROOMS
from throughtime.backends.numba._shards import (
    cut_rows,
    cut_steps,
    is_worth_help,
    nanoseconds_of,
    shards_in_pieces,
    useful_shards,
)
from throughtime.backends.numba._source import write_source
from throughtime.backends.numba._team import is_usable, team
from throughtime.compiler._loop import LoopProgram


class LoopKernel:
    """The kernel of one loop program. `source` is for people, `llvm` is what the machine code was made from."""

    def __init__(self, program: LoopProgram, host: _llvm.Host | None = None) -> None:
        host = host or _llvm.host()
        plan = make_plan(program)
        self.program, self.replaceable = program, plan.replaceable
        self.source = write_source(plan, host)
        self.llvm = emit_kernel(plan, host)
        library = load(self.llvm)
        self._layout = make_layout(plan, host)
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
        self._row_nanoseconds = nanoseconds_of(program)
        self._ahead_nanoseconds = 0.0 if program.ahead is None else nanoseconds_of(program.ahead.program)
        self._latest: tuple[tuple[int, int, int], Division | None] = (0, 0, 0), None
        # Not while it runs: one thread has it at a time.
        self._latest_launch: list[Launch] = []

    def run(
        self,
        streams: Sequence[Tensor],
        lagged: Sequence[tuple[Tensor, Tensor]],
        constants: Sequence[Tensor],
        matrices: Sequence[Tensor],
        carried: Sequence[Tensor],
        stored: Sequence[Tensor],
        steps: Steps,
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

    def divide(self, steps: Steps, first: int, last: int, threads: int) -> Division:
        """Who does what of some steps; small calls come again and again with the same."""
        latest, known = self._latest
        if known is not None and known.steps is steps and latest == (first, last, threads):
            return known
        shards = self._shards(steps, first, last, threads)
        workers, pieces = len(shards), []
        nanoseconds, is_whole = self._row_nanoseconds * steps.total, (first, last) == (0, len(steps.counts))
        more = shards_in_pieces(workers, steps.batch_size, nanoseconds, is_ragged=steps.is_ragged)
        if more and is_whole and is_usable() and team() is not None:
            active = steps.active.numpy()
            shards = cut_rows(steps.lengths, more)
            pieces = [cut_steps(active, start, stop, reverse=self.program.reverse) for start, stop in shards]
        helped = is_worth_help(self._ahead_nanoseconds * steps.batch_size * (last - first))
        rooms = ROOMS if threads > 1 and len(shards) == 1 and helped else 1
        each = [self._shard(start, stop, last - first, assisted=rooms > 1) for start, stop in shards]
        nbytes = sum(shard.step_bytes + rooms * shard.room_bytes for shard in each)
        division = Division(steps, first, last, each, rooms, nbytes, pieces, workers, nanoseconds)
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
                launch = Launch(self._code, division, memory)
            launch.run(inputs, matrices, results, origin)
            self._latest_launch[:] = [launch]

    def _shard(self, start: int, stop: int, steps: int, *, assisted: bool) -> Shard:
        # Where another prepares blocks the walk waits for the first: that one is small.
        most = BLOCK_ROWS // 2 if assisted else BLOCK_ROWS
        block = max(1, min(most // (stop - start), steps))
        less = block - max(1, block // 3) if assisted else 0
        rows, layout = stop - start, self._layout
        return Shard(start, stop, block, less, block * rows, layout.step.bytes(rows), layout.block.bytes(block * rows))

    def _shards(self, steps: Steps, first: int, last: int, threads: int) -> list[tuple[int, int]]:
        """Ranges of rows, one for each thread that is worth waking up."""
        if threads > 1:
            most = useful_shards(self._row_nanoseconds * steps.batch_size * (last - first))
            if self._code.packers:
                # One row costs a product as much as two.
                most = min(most, -(-steps.batch_size // 2))
            threads = min(threads, most)
        if threads <= 1:
            return [(0, steps.batch_size)] if steps.batch_size else []
        if (first, last) != (0, len(steps.counts)):
            return cut_rows([min(max(length - first, 0), last - first) for length in steps.lengths], threads)
        if threads not in steps.cuts:
            steps.cuts[threads] = cut_rows(steps.lengths, threads)
        return steps.cuts[threads]
