"""Threads that wait for shards: started once, started again in a forked child."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue

from throughtime.backends.numba._waiting import is_raised

Job = Callable[[], None]
_Done = SimpleQueue[BaseException | None]


class _Pool:
    """Worker threads with a queue each, so that handing over a job wakes exactly one."""

    def __init__(self) -> None:
        self._queues: list[SimpleQueue[tuple[Job, _Done]]] = []
        self._lock = threading.Lock()

    def queues(self, count: int) -> list[SimpleQueue[tuple[Job, _Done]]]:
        if len(self._queues) < count:
            with self._lock:
                while len(self._queues) < count:
                    queue: SimpleQueue[tuple[Job, _Done]] = SimpleQueue()
                    name = f"throughtime-{len(self._queues)}"
                    threading.Thread(target=_work, args=(queue,), name=name, daemon=True).start()
                    self._queues.append(queue)
        return self._queues[:count]


def _work(queue: SimpleQueue[tuple[Job, _Done]]) -> None:
    while True:
        job, done = queue.get()
        try:
            job()
        except BaseException as error:
            done.put(error)
        else:
            done.put(None)
        del job, done


_pool = _Pool()


def _after_fork() -> None:
    # Threads do not survive a fork; their queues must not be trusted either.
    global _pool  # noqa: PLW0603
    _pool = _Pool()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def run_jobs(jobs: Sequence[Job], flags: Sequence[int] = ()) -> None:
    """Run all jobs at the same time, the first on this thread; the first error is raised when all have ended.

    `flags` are addresses of numbers that the other jobs change at their end, where they do: looking at them is the
    fastest way to hear of it.
    """
    own, *others = jobs
    done: _Done = SimpleQueue()
    for queue, job in zip(_pool.queues(len(others)), others, strict=True):
        queue.put((job, done))
    errors: list[BaseException | None] = []
    try:
        own()
    finally:
        # Their memory belongs to this call: nobody leaves before the last.
        if not flags or not all(map(is_raised, flags)):
            errors += [done.get() for _ in others]
    for error in errors:
        if error is not None:
            raise error
