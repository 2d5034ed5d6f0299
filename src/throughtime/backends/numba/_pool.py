"""Threads that wait for shards: started once, started again in a forked child."""

from __future__ import annotations

import threading
from array import array
from collections.abc import Callable, Sequence

from throughtime._fork import after_fork
from throughtime.backends.numba._waiting import ASLEEP, waiting


class _Worker:
    """A thread, the mailbox it looks into, and the lock it sleeps on when there is nothing in it."""

    def __init__(self, name: str) -> None:
        self._box = array("q", [ASLEEP, 0, 0])
        self._bell = threading.Semaphore(0)
        threading.Thread(target=self._work, name=name, daemon=True).start()

    def give(self, function: int, argument: int) -> None:
        if waiting().post(self._box.buffer_info()[0], function, argument) == ASLEEP:
            self._bell.release()

    def retract(self) -> bool:
        """Take back what was given, if it was not begun."""
        return bool(waiting().retract(self._box.buffer_info()[0]))

    def _work(self) -> None:
        box = self._box.buffer_info()[0]
        while True:
            self._bell.acquire()
            waiting().serve(box)


class _Pool:
    """As many workers as were ever needed at once; one caller has them at a time."""

    def __init__(self) -> None:
        self.workers: list[_Worker] = []
        self.lock = threading.Lock()


_pool = _Pool()


@after_fork
def _renew() -> None:
    global _pool  # noqa: PLW0603
    _pool = _Pool()


def run_together(function: int, call: Callable[[int], None], arguments: Sequence[int], flags: Sequence[int]) -> None:
    """Call a function once for each argument, on a thread each; the last call is on this thread.

    `function` is its address, `call` calls it from Python, and `flags` are addresses of numbers that each call changes
    from zero at its end. Where the threads are busy for somebody else, this thread does it all.
    """
    pool = _pool
    if not pool.lock.acquire(blocking=False):
        for argument in arguments:
            call(argument)
        return
    given: list[int] = []
    try:
        while len(pool.workers) < len(arguments) - 1:
            pool.workers.append(_Worker(f"throughtime-{len(pool.workers)}"))
        for worker, argument, flag in zip(pool.workers, arguments[:-1], flags, strict=False):
            worker.give(function, argument)
            given.append(flag)
        call(arguments[-1])
    finally:
        # Not even an interruption ends this before the last: the workers use memory that belongs to the caller.
        _wait_for_all(given)
        pool.lock.release()


def run_assisted(function: int, call: Callable[[int], None], walk: int, assist: int, flag: int) -> None:
    """Call a function for `walk` on this thread and, as far as another is free and in time, for `assist` on that.

    `flag` is the address of a number that the second call changes from zero at its end.
    """
    pool = _pool
    if not pool.lock.acquire(blocking=False):
        call(walk)
        return
    try:
        if not pool.workers:
            pool.workers.append(_Worker("throughtime-0"))
        worker = pool.workers[0]
        worker.give(function, assist)
        try:
            call(walk)
        finally:
            if not worker.retract():
                _wait_for_all([flag])
    finally:
        pool.lock.release()


def _wait_for_all(flags: Sequence[int]) -> None:
    interruption: BaseException | None = None
    for flag in flags:
        ended = False
        while not ended:
            try:
                waiting().wait(flag)
                ended = True
            except BaseException as error:
                interruption = error
    if interruption is not None:
        raise interruption
