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
        # A plain lock: those that are written in Python do not stand an interruption.
        self._bell = threading.Lock()
        self._bell.acquire()
        threading.Thread(target=self._work, name=name, daemon=True).start()

    def wake(self) -> int:
        """The address of the mailbox, into which it will soon look if it does not now."""
        if self._box[0] == ASLEEP and self._bell.locked():
            self._bell.release()
        return self._box.buffer_info()[0]

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
    """Call a function once for each argument: for the first on this thread, for the others on a thread each.

    `function` is its address, `call` calls it from Python, and `flags` are addresses of numbers that each call changes
    from zero at its end. What a thread has not begun with when the first call is over, or if the threads are busy for
    somebody else, this thread does itself, in order.
    """
    pool = _pool
    if pool.lock.locked():
        for argument in arguments:
            call(argument)
        return
    with pool.lock:
        own, *others = arguments
        while len(pool.workers) < len(others):
            pool.workers.append(_Worker(f"throughtime-{len(pool.workers)}"))
        workers = pool.workers[: len(others)]
        jobs = [(worker.wake(), *job) for worker, job in zip(workers, zip(others, flags[1:], strict=True), strict=True)]
        waiting().together(function, own, jobs)
