"""Hand-over of work between threads in machine code: spin for a while, then park.

Waking a thread up, or waiting for Python's lock, takes longer than many shards run. So a worker spins on its mailbox
for a moment before it parks, and runs what is posted there without Python. The caller posts its work, runs its own
share, takes back what no worker has begun, and waits for the rest, all in one call that a signal does not interrupt.

The code and the records are in `mailbox.ll`.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from throughtime.native.toolchain.ir_files import read_ir
from throughtime.native.toolchain.module_loader import load

IR = read_ir(__package__, "mailbox.ll")
PARKED = 0
"""The state of a mailbox without a thread that spins on it."""
MAILBOX_WORDS = IR.fields("mailbox")["end"]

_CALLER_SPINS = 10_000
"""Some tens of microseconds, before the caller yields between two reads."""
_WORKER_SPINS = 100, 3000
"""A worker yields almost at once, and parks after about a millisecond: longer than between calls of a small network."""


@dataclass(frozen=True)
class MailboxCode:
    """The functions of `mailbox.ll`, compiled, and the address of the system's function that yields."""

    library: object
    yield_function: int
    run_with_workers: Callable[..., None]
    run_serially: Callable[[int, int], None]
    serve_mailbox: Callable[..., None]

    def run(self, work: int, boxes: Sequence[int]) -> None:
        """Call the function of an array of work in this thread and in the workers of some mailboxes, at least one.

        The share of a worker that has not begun when this thread is done with its own runs in this thread.
        """
        table = array("q", (len(boxes), work, self.yield_function))
        for box in boxes:
            table.extend((box, 0))
        self.run_with_workers(table.buffer_info()[0], _CALLER_SPINS)

    def serve(self, box: int) -> None:
        """Run what is posted to the mailbox at the address `box`, until nothing was for a moment."""
        self.serve_mailbox(box, self.yield_function, *_WORKER_SPINS)


def compile_mailbox(assembly: str = IR.text) -> MailboxCode:
    """Compile the functions of `mailbox.ll`."""
    system = ctypes.CDLL("kernel32" if sys.platform == "win32" else None)
    yields = ctypes.cast(system.SwitchToThread if sys.platform == "win32" else system.sched_yield, ctypes.c_void_p)
    library = load(assembly)
    word, address = ctypes.c_int64, ctypes.c_void_p
    return MailboxCode(
        library,
        yields.value or 0,
        library.function("run_with_workers", address, word),
        library.function("run_serially", address, word),
        library.function("serve_mailbox", address, address, word, word),
    )


@functools.cache
def mailbox_code() -> MailboxCode:
    """The functions of this process."""
    return compile_mailbox()
