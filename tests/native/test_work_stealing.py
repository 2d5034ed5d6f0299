"""Work stealing: every piece of every row runs once and in order, whichever thread is slow."""

from __future__ import annotations

import ctypes
import time
from array import array
from collections.abc import Callable, Iterator
from threading import get_ident

import pytest
import torch

from kernel_checks import KINDS_OF_THREADS, thread_count, threads_of
from throughtime.backends.cpu.threads.partition import with_halves
from throughtime.native.threads.team import team
from throughtime.native.threads.work_stealing import StealableLoop, WorkStealing

pytestmark = pytest.mark.covers("kernels")

PIECES = 6


@pytest.fixture(autouse=True, params=KINDS_OF_THREADS)
def _threads(request: pytest.FixtureRequest) -> Iterator[None]:
    with threads_of(request.param), thread_count(3):
        yield


class Stealing:
    """Rows of some shards, and the thread that ran each of their pieces."""

    def __init__(self, shards: list[tuple[int, int]], pause: Callable[[int, int], float]) -> None:
        self.ranges, firsts = with_halves(shards, half_rows=4)
        self.pause, self.seen = pause, [list[int]() for _ in range(shards[-1][1])]
        self.calls: list[tuple[int, int, int]] = []
        self._function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self._call)
        # A frame is its number, and the two steps of a piece.
        self.frames = [array("q", (number, -1, -1)) for number in range(len(self.ranges))]
        steps = array("q", (step for piece in range(PIECES) for step in (piece, piece + 1)))
        loops = [
            StealableLoop(frame.buffer_info()[0], steps, first)
            for frame, first in zip(self.frames, firsts, strict=True)
        ]
        address = ctypes.cast(self._function, ctypes.c_void_p).value or 0
        self._stealing = WorkStealing(address, 1, loops, len(shards))

    def _call(self, frame: int) -> None:
        number, piece, following = (ctypes.c_int64 * 3).from_address(frame)
        assert following == piece + 1
        self.calls.append((number, piece, get_ident()))
        time.sleep(self.pause(number, piece))
        for row in range(*self.ranges[number]):
            self.seen[row].append(piece)

    def run(self) -> None:
        for rows in self.seen:
            rows.clear()
        self.calls.clear()
        self._stealing.run(team())
        assert all(pieces == list(range(PIECES)) for pieces in self.seen)


def test_equally_fast_threads_steal_nothing() -> None:
    stealing = Stealing([(0, 8), (8, 16), (16, 24)], lambda number, piece: 0.05)
    stealing.run()
    assert {number for number, piece, _ in stealing.calls if piece < PIECES - 2} == {0, 1, 2}
    threads = {number: thread for number, piece, thread in stealing.calls if not piece}
    assert len(set(threads.values())) == 3


def test_an_idle_thread_gets_half_of_the_rows_of_a_slow_one() -> None:
    stealing = Stealing([(0, 16), (16, 24), (24, 32)], lambda number, piece: 0.03 if number not in (1, 2) else 0.001)
    stealing.run()
    halves = {number for number, _, _ in stealing.calls} - {0, 1, 2}
    assert halves
    assert len({thread for number, _, thread in stealing.calls if number in halves}) > 1


@pytest.mark.parametrize("threads", [1, 2, 3, 5])
def test_it_ends_well_with_any_number_of_threads(threads: int) -> None:
    torch.set_num_threads(threads)
    stealing = Stealing([(0, 13), (13, 27), (27, 30)], lambda number, piece: 0.001 * ((number * 7 + piece * 3) % 5))
    for _ in range(3):
        stealing.run()
