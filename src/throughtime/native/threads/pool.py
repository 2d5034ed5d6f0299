"""A thread pool, for where torch's threads cannot be used; threads start when they are first needed."""

from __future__ import annotations

import threading
from array import array

import torch

from throughtime.native.threads.calls import ARRIVED, COUNT, Threads, concurrent_calls
from throughtime.native.threads.mailbox import MAILBOX_WORDS, PARKED, MailboxCode, mailbox_code


class Worker:
    """A thread, the mailbox it serves, and the lock it parks on when nothing is posted."""

    def __init__(self, name: str, code: MailboxCode) -> None:
        self._box = array("q", [PARKED, *[0] * (MAILBOX_WORDS - 1)])
        # A plain lock: locks written in Python are not safe against interruption by a signal.
        self._bell = threading.Lock()
        self._bell.acquire()
        self._code = code
        threading.Thread(target=self.serve, name=name, daemon=True).start()

    @property
    def is_parked(self) -> bool:
        return self._box[0] == PARKED

    def wake(self) -> int:
        """The address of the mailbox; the thread serves it, or is about to."""
        if self.is_parked and self._bell.locked():
            self._bell.release()
        return self._box.buffer_info()[0]

    def serve(self) -> None:
        box = self._box.buffer_info()[0]
        while True:
            self._bell.acquire()
            self._code.serve(box)


class Pool(Threads):
    """As many workers as were ever needed at the same time; one caller uses them at a time.

    The calling thread is the first. It runs the shares that workers have not begun when its own is done, and all of
    them, in order, while another caller has the workers.
    """

    def __init__(self, worker: type[Worker] = Worker, code: MailboxCode | None = None) -> None:
        self.workers: list[Worker] = []
        self.lock = threading.Lock()
        self._worker, self._own_code = worker, code

    @property
    def _code(self) -> MailboxCode:
        return self._own_code or mailbox_code()

    def call_all(self, work: array[int], useful: int) -> None:
        code = self._code
        if useful < 2 or self.lock.locked():
            code.run_serially(work.buffer_info()[0], useful)
            return
        with self.lock:
            while len(self.workers) < useful - 1:
                self.workers.append(self._worker(f"throughtime-{len(self.workers)}", code))
            boxes = [worker.wake() for worker in self.workers[: useful - 1]]
            code.run(work.buffer_info()[0], boxes)

    def run_concurrently(self, calls: array[int]) -> bool:
        count = calls[COUNT]
        if count > torch.get_num_threads() or self.lock.locked():
            return False
        concurrent = concurrent_calls(calls)
        self.call_all(concurrent, count)
        return concurrent[ARRIVED] == count
