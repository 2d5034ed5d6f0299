"""The threads of torch itself, where they can be had: those of the OpenMP runtime that it is bound to.

They wait for the next piece of work by looking out for it, before a loop and after it. Threads of our own would have to
share the cores with them, and both would be half as fast. All of them are called every time, as torch does it: those
that are left out once, the library ends, and the next who wants them waits until they are made again.
"""

from __future__ import annotations

import functools
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from throughtime._fork import after_fork
from throughtime.backends.numba._library import load
from throughtime.backends.numba._openmp import Parallel, torch_runtime

# What every thread of the team runs: its share of the calls. The list has the function to call, those that tell a
# thread's number and the size of the team, how many calls there are, and the argument of each.
_ASSEMBLY = """
define void @share(ptr %list) {
entry:
  %number_slot = getelementptr ptr, ptr %list, i64 1
  %size_slot = getelementptr ptr, ptr %list, i64 2
  %count_slot = getelementptr i64, ptr %list, i64 3
  %function = load ptr, ptr %list, align 8
  %number = load ptr, ptr %number_slot, align 8
  %size = load ptr, ptr %size_slot, align 8
  %count = load atomic i64, ptr %count_slot monotonic, align 8
  %me_small = call i32 %number()
  %team_small = call i32 %size()
  %me = sext i32 %me_small to i64
  %team = sext i32 %team_small to i64
  br label %look
look:
  %index = phi i64 [ %me, %entry ], [ %next, %run ]
  %more = icmp slt i64 %index, %count
  br i1 %more, label %run, label %end
run:
  %place = add i64 %index, 4
  %slot = getelementptr i64, ptr %list, i64 %place
  %argument = load i64, ptr %slot, align 8
  call void %function(i64 %argument)
  %next = add i64 %index, %team
  br label %look
end:
  ret void
}

; The same for calls that wait for each other: all at the same time. With too few threads for that nobody calls
; anything, and the number of calls becomes 0.
define void @share_at_once(ptr %list) {
entry:
  %size_slot = getelementptr ptr, ptr %list, i64 2
  %count_slot = getelementptr i64, ptr %list, i64 3
  %size = load ptr, ptr %size_slot, align 8
  %count = load atomic i64, ptr %count_slot monotonic, align 8
  %team_small = call i32 %size()
  %team = sext i32 %team_small to i64
  %few = icmp slt i64 %team, %count
  br i1 %few, label %refuse, label %call
refuse:
  store atomic i64 0, ptr %count_slot monotonic, align 8
  ret void
call:
  call void @share(ptr %list)
  ret void
}
"""

_COUNT = 3
"""Where a list of calls says how many there are."""


@dataclass(frozen=True)
class Team:
    """The OpenMP runtime of torch."""

    library: object
    share: int
    share_at_once: int
    number: int
    size: int
    parallel: Parallel

    def calls(self, function: int, arguments: Sequence[int]) -> array[int]:
        """Calls of the function at an address, one for each argument, for `run_calls`."""
        return array("q", (function, self.number, self.size, len(arguments), *arguments))

    def run_calls(self, calls: array[int]) -> None:
        self.call_all(self.share, calls)

    def run_at_once(self, calls: array[int]) -> bool:
        """The same for calls that wait for each other; without as many threads as calls nothing is done, and False."""
        count = calls[_COUNT]
        self.call_all(self.share_at_once, calls)
        was_run, calls[_COUNT] = calls[_COUNT] == count, count
        return was_run

    def run(self, function: int, arguments: Sequence[int]) -> None:
        """Call the function at an address once for each argument."""
        self.run_calls(self.calls(function, arguments))

    def call_all(self, function: int, numbers: array[int]) -> None:
        """Call the function at an address in every thread, with the same list of numbers."""
        self.parallel(function, numbers.buffer_info()[0], torch.get_num_threads(), 0)


@functools.cache
def team() -> Team | None:
    """The team of torch's threads; None where its runtime cannot be used (`_openmp.torch_runtime` says why)."""
    runtime = torch_runtime()
    if isinstance(runtime, str):
        return None
    library = load(_ASSEMBLY)
    share, share_at_once = map(library.address, ("share", "share_at_once"))
    return Team(library, share, share_at_once, runtime.thread_number, runtime.team_size, runtime.parallel)


_forked = False


def is_usable() -> bool:
    """Whether the team can be used: OpenMP's threads do not survive a fork, and it does not notice."""
    return not _forked


@after_fork
def _left_behind() -> None:
    global _forked  # noqa: PLW0603
    _forked = True


def run_frames(call: Callable[[int], None], address: int, frames: Sequence[array[int]], threads: int) -> None:
    """Call a function once for each frame: by its address in the threads of the team, if several are worth it."""
    starts = [frame.buffer_info()[0] for frame in frames]
    together = team() if threads > 1 and is_usable() else None
    if together is not None:
        together.run(address, starts)
        return
    for start in starts:
        call(start)
