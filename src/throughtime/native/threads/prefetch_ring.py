"""A ring buffer between the thread that computes ahead of a loop and the one that runs the loop (`prefetch_ring.ll`).

One row of a batch cannot be shared among threads, but the work ahead of its loop can. The producer packs the matrices
of blocks and computes blocks of steps as far ahead as there are slots. The consumer runs the loop, and computes itself
every block that the producer has not begun: it never waits for a thread that has not started. The thread that packs
computes the first block too, because the packed matrices are in the cache of its processor. The split changes no
result.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from throughtime.native.gemm.pack_panels import Job, job_list
from throughtime.native.threads.mailbox import mailbox_code
from throughtime.native.toolchain.ir_files import read_ir

RING_IR = read_ir(__package__, "prefetch_ring.ll")
RING_SLOTS = RING_IR.constants["ring_slots"]
"""Blocks that are computed and not yet used, at most."""
_FIELDS = RING_IR.fields("prefetch_ring")


class PrefetchRing:
    """The record of both threads, with the matrices that they pack. It must live as long as they use it."""

    def __init__(self, loop_matrices: Sequence[Job], block_matrices: Sequence[Job]) -> None:
        self._jobs = job_list(loop_matrices), job_list(block_matrices)
        addresses = [jobs.buffer_info()[0] for jobs in self._jobs]
        # The first block is claimed: it belongs to the thread that packs.
        head = (1, 0, 0, *addresses, mailbox_code().yield_function)
        self._initial = array("q", (*head, *[0] * (_FIELDS["end"] - len(head))))
        self._words = self._initial[:]
        self.address = self._words.buffer_info()[0]

    def begin(self) -> None:
        """Reset it."""
        self._words[:] = self._initial
