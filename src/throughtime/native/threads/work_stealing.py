"""Work stealing: an idle thread takes half of the rows that another thread has not finished (`work_stealing.ll`).

Processors are rarely equal: another program uses one of them, a virtual machine has noisy neighbours, a laptop has slow
cores beside fast ones. With one shard for each thread, all would wait for the slowest. So a loop runs in pieces of
steps, and between two pieces its thread checks whether another one is idle. If so, the rest of the loop becomes two
loops with half of the rows each, and the idle thread takes one. Where all threads are equally fast, none is idle, and
nothing is split. A loop's state is what its last piece has written, so no locks are needed.
"""

from __future__ import annotations

import functools
from array import array
from collections.abc import Sequence
from typing import NamedTuple

from throughtime.native.threads.calls import HEAD, Threads, work_of
from throughtime.native.threads.mailbox import mailbox_code
from throughtime.native.toolchain.ir_files import read_ir
from throughtime.native.toolchain.llvm import NativeModule
from throughtime.native.toolchain.module_loader import load

_IR = read_ir(__package__, "work_stealing.ll")
_LOOPS = _IR.fields("work_stealing")["loops"]
_LOOP_WORDS = _IR.fields("stealable_loop")["end"]


class StealableLoop(NamedTuple):
    """The address of a frame, its pieces (two steps each), and the number of the first of two halves, or 0."""

    frame: int
    pieces: array[int]
    half: int


@functools.cache
def _library() -> NativeModule:
    return load(_IR.text)


class WorkStealing:
    """Loops for several threads: the function at an address is called for all their pieces, in order within each.

    The two steps of a piece are written to the field `slot` of the frame and to the next one. The first `owned` loops
    exist from the beginning, the others are halves of loops before them. The object must live as long as they run.
    """

    def __init__(self, function: int, slot: int, loops: Sequence[StealableLoop], owned: int) -> None:
        self._loops, self._owned = loops, owned
        head = [function, slot, len(loops), mailbox_code().yield_function, 0, owned]
        words = head + [0] * (_LOOPS - HEAD - len(head))
        for number, (frame, pieces, half) in enumerate(loops):
            count = len(pieces) // 2
            state = 2 * count if number < owned else 0
            record = (state, count, frame, pieces.buffer_info()[0], half)
            words += (*record, *[0] * (_LOOP_WORDS - len(record)))
        self._initial = work_of(_library().address("run_stealable_loops"), words)
        self._words = self._initial[:]

    def run(self, threads: Threads) -> None:
        self._words[:] = self._initial
        threads.call_all(self._words, self._owned)
