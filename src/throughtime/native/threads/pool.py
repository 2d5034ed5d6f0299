"""Threads of our own, for where torch's cannot be had: started when they are first needed."""

from __future__ import annotations

import threading
from array import array

import torch

from throughtime.native.threads.calls import ARRIVED, COUNT, Threads, calls_at_once
from throughtime.native.threads.mailbox import ASLEEP, BOX, waiting


class _Worker:
    """A thread, the mailbox it looks into, and the lock it sleeps on when there is nothing in it."""

    def __init__(self, name: str) -> None:
        self._box = array("q", [ASLEEP, *[0] * (BOX - 1)])
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


class Pool(Threads):
    """As many workers as were ever needed at once; one caller has them at a time.

    The calling thread is the first. What a worker has not begun with when that is done, or if all are busy for another
    caller, it does itself, in order.
    """

    def __init__(self) -> None:
        self.workers: list[_Worker] = []
        self.lock = threading.Lock()

    def call_all(self, work: array[int], useful: int) -> None:
        if useful < 2 or self.lock.locked():
            waiting().alone(work.buffer_info()[0], useful)
            return
        with self.lock:
            while len(self.workers) < useful - 1:
                self.workers.append(_Worker(f"throughtime-{len(self.workers)}"))
            boxes = [worker.wake() for worker in self.workers[: useful - 1]]
            waiting().together(work.buffer_info()[0], boxes)

    def run_at_once(self, calls: array[int]) -> bool:
        count = calls[COUNT]
        if count > torch.get_num_threads() or self.lock.locked():
            return False
        at_once = calls_at_once(calls)
        self.call_all(at_once, count)
        return at_once[ARRIVED] == count
