"""The threads that run kernels: those of torch itself, where they can be had, or else a pool.

Torch's belong to the OpenMP runtime that it is bound to. They wait for the next piece of work by looking out for it,
before a loop and after it. Threads of our own have to share the cores with them. All of them are called every time, as
torch does it: those that are left out once, the library ends, and the next who wants them waits until they are made
again.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from throughtime._fork_safety import after_fork
from throughtime.native.threads.calls import COUNT, Threads
from throughtime.native.threads.openmp import Parallel, torch_runtime
from throughtime.native.threads.pool import Pool
from throughtime.native.toolchain.module_loader import load

# OpenMP gives a thread the list alone: the two numbers after the function are the functions that tell the rest.
_ASSEMBLY = f"""
define void @enter(ptr %list) {{
  %number_slot = getelementptr ptr, ptr %list, i64 1
  %size_slot = getelementptr ptr, ptr %list, i64 2
  %function = load ptr, ptr %list, align 8
  %number = load ptr, ptr %number_slot, align 8
  %size = load ptr, ptr %size_slot, align 8
  %me_small = call i32 %number()
  %threads_small = call i32 %size()
  %me = sext i32 %me_small to i64
  %threads = sext i32 %threads_small to i64
  call void %function(ptr %list, i64 %me, i64 %threads)
  ret void
}}

; The same for calls that wait for each other. With too few threads for that nothing is called, and the number of calls
; becomes 0.
define void @enter_at_once(ptr %list) {{
entry:
  %size_slot = getelementptr ptr, ptr %list, i64 2
  %count_slot = getelementptr i64, ptr %list, i64 {COUNT}
  %size = load ptr, ptr %size_slot, align 8
  %count = load atomic i64, ptr %count_slot monotonic, align 8
  %threads_small = call i32 %size()
  %threads = sext i32 %threads_small to i64
  %few = icmp slt i64 %threads, %count
  br i1 %few, label %refuse, label %run
refuse:
  store atomic i64 0, ptr %count_slot monotonic, align 8
  ret void
run:
  call void @enter(ptr %list)
  ret void
}}
"""


@dataclass(frozen=True)
class Team(Threads):
    """The OpenMP runtime of torch."""

    library: object
    enter: int
    enter_at_once: int
    parallel: Parallel

    def call_all(self, work: array[int], useful: int) -> None:
        self.parallel(self.enter, work.buffer_info()[0], torch.get_num_threads(), 0)

    def run_at_once(self, calls: array[int]) -> bool:
        count = calls[COUNT]
        self.parallel(self.enter_at_once, calls.buffer_info()[0], torch.get_num_threads(), 0)
        was_run, calls[COUNT] = calls[COUNT] == count, count
        return was_run


_pool = Pool()
_team: Threads | None = None
_forked = False


def team() -> Threads:
    """The threads of torch; a pool where its runtime cannot be used (`_openmp.torch_runtime` says why)."""
    return _team or _choose()


def is_usable() -> bool:
    """Whether torch's threads can be used: OpenMP's do not survive a fork, and it does not notice."""
    return not _forked


def _choose() -> Threads:
    global _team  # noqa: PLW0603
    runtime = torch_runtime()
    if _forked or isinstance(runtime, str):
        _team = _pool
    else:
        library = load(_ASSEMBLY)
        _team = Team(library, library.address("enter"), library.address("enter_at_once"), runtime.parallel)
    return _team


@after_fork
def _left_behind() -> None:
    global _forked, _pool, _team
    # The threads of a pool stay behind as well, with a lock that one of them may hold.
    _forked, _pool, _team = True, Pool(), None


def run_frames(call: Callable[[int], None], address: int, frames: Sequence[array[int]], threads: int) -> None:
    """Call a function once for each frame: by its address in several threads, if those are worth it."""
    starts = [frame.buffer_info()[0] for frame in frames]
    if threads > 1:
        team().run(address, starts)
        return
    for start in starts:
        call(start)
