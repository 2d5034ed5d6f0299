"""What tests of CPU kernels share: comparisons, threads that record, and policies for the smallest of work."""

from __future__ import annotations

import contextlib
import os
from array import array
from collections.abc import Iterator

import torch
from torch import Tensor

import throughtime as tt
from throughtime.backends.cpu.threads.policy import ThreadPolicy
from throughtime.native.threads.calls import Threads
from throughtime.native.threads.team import team, use_threads

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12}
KINDS_OF_THREADS = ("torch's threads", "a pool")


def many_shards(**fields: object) -> ThreadPolicy:
    """A thread of its own for the smallest of work."""
    return ThreadPolicy(**{"shard_nanoseconds": 1, **fields})  # type: ignore[arg-type]


def many_pieces() -> ThreadPolicy:
    """Work stealing for the smallest of work."""
    return many_shards(stealing_nanoseconds=0, ragged_stealing_nanoseconds=0, half_rows=1, members=1)


@contextlib.contextmanager
def threads_of(kind: str) -> Iterator[Threads]:
    """Either of `KINDS_OF_THREADS`."""
    if kind == "a pool":
        with use_threads() as pool:
            yield pool
    else:
        yield team()


@contextlib.contextmanager
def thread_count(count: int) -> Iterator[None]:
    """Let torch, and with it kernels, use a number of threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class Recording(Threads):
    """Other threads, with a record of their calls: the useful threads, and the answers of `run_concurrently`."""

    def __init__(self, threads: Threads, *, refuses: bool = False) -> None:
        self._threads, self._refuses = threads, refuses
        self.useful: list[int] = []
        self.answers: list[bool] = []

    def call_all(self, work: array[int], useful: int) -> None:
        self.useful.append(useful)
        self._threads.call_all(work, useful)

    def run_concurrently(self, calls: array[int]) -> bool:
        self.answers.append(not self._refuses and self._threads.run_concurrently(calls))
        return self.answers[-1]


def check_same(got: list[Tensor], expected: list[Tensor]) -> None:
    """Fail unless results are equal up to rounding, NaN included."""
    for result, truth in zip(got, expected, strict=True):
        if not truth.dtype.is_floating_point:
            assert torch.equal(result, truth)
            continue
        assert torch.equal(result.isnan(), truth.isnan())
        scale = 1 + max(truth.nan_to_num().abs().flatten().tolist(), default=0)
        assert bool(((result - truth).nan_to_num().abs() <= TOLERANCE[truth.dtype] * scale).all())


def check_forked(cell: tt.RNNCell, inputs: Tensor) -> None:
    """Fail unless a forked process has the same outputs from a cell that was run before."""
    with torch.no_grad():
        for _ in range(3):
            expected, _ = tt.dynamic_rnn(cell, inputs, dtype=torch.float32)
        child = os.fork()
        if child == 0:
            outputs, _ = tt.dynamic_rnn(cell, inputs, dtype=torch.float32)
            os._exit(0 if torch.equal(outputs, expected) else 1)
    assert os.waitpid(child, 0)[1] == 0
