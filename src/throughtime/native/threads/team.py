"""The threads that run kernels: those of torch's OpenMP runtime, or a pool where that runtime cannot be used.

Torch's threads spin for the next parallel region for a while, before a loop and after it: a second pool would compete
with them for the cores. Every region uses all of them, as torch's own do: the runtime ends the threads that a smaller
region leaves out, and the next larger one has to create them again.
"""

from __future__ import annotations

import contextlib
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch

from throughtime._fork_safety import after_fork
from throughtime.native.threads.calls import COUNT, Threads
from throughtime.native.threads.openmp import Parallel, torch_runtime
from throughtime.native.threads.pool import Pool
from throughtime.native.toolchain.ir_files import read_ir
from throughtime.native.toolchain.module_loader import load


@dataclass(frozen=True)
class Team(Threads):
    """The threads of torch's OpenMP runtime (`openmp_team.ll`)."""

    library: object
    run_in_team: int
    run_in_team_concurrently: int
    parallel: Parallel

    def call_all(self, work: array[int], useful: int) -> None:
        self.parallel(self.run_in_team, work.buffer_info()[0], torch.get_num_threads(), 0)

    def run_concurrently(self, calls: array[int]) -> bool:
        count = calls[COUNT]
        self.parallel(self.run_in_team_concurrently, calls.buffer_info()[0], torch.get_num_threads(), 0)
        was_run, calls[COUNT] = calls[COUNT] == count, count
        return was_run


_pool = Pool()
_team: Threads | None = None
_forked = False


def team() -> Threads:
    """The threads of torch; a pool where its runtime cannot be used (`openmp.torch_runtime` says why)."""
    return _team or _choose()


@contextlib.contextmanager
def use_threads(threads: Threads | None = None) -> Iterator[Threads]:
    """Run kernels of this process on other threads inside the `with` statement: by default a new pool."""
    global _team  # noqa: PLW0603
    before, _team = _team, threads or Pool()
    try:
        yield _team
    finally:
        _team = before


def is_usable() -> bool:
    """Whether torch's threads can be used: OpenMP's do not survive a fork, and the runtime does not notice."""
    return not _forked


def _choose() -> Threads:
    global _team  # noqa: PLW0603
    runtime = torch_runtime()
    if _forked or isinstance(runtime, str):
        _team = _pool
    else:
        library = load(read_ir(__package__, "openmp_team.ll").text)
        _team = Team(
            library, library.address("run_in_team"), library.address("run_in_team_concurrently"), runtime.parallel
        )
    return _team


@after_fork
def _renew() -> None:
    global _forked, _pool, _team
    # A child has none of the threads of a pool, but its lock, which may be held.
    _forked, _pool, _team = True, Pool(), None


def run_frames(call: Callable[[int], None], address: int, frames: Sequence[array[int]], threads: int) -> None:
    """Call a function once for each frame, in several threads if there is more than one."""
    starts = [frame.buffer_info()[0] for frame in frames]
    if threads > 1:
        team().run(address, starts)
        return
    for start in starts:
        call(start)
