"""More than one process: who we are, and what all of them know together."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import NamedTuple

import torch
from torch import Tensor, distributed

from throughtime.train._lost_workers import in_the_store, lost_workers_told, sigterm_raised

START_AGAIN = "Start all of them again: with `resume=True`, `tt.train.fit` goes on from its last checkpoint."


class Worker(NamedTuple):
    """One process of a training run."""

    rank: int
    size: int
    device: torch.device

    @property
    def is_first(self) -> bool:
        """Whether this is the one that writes and reports."""
        return self.rank == 0


def this_worker() -> Worker:
    """What `torch.distributed` says of this process; alone if it says nothing."""
    connected = distributed.is_available() and distributed.is_initialized()
    on_gpu = torch.cuda.is_available() and not (connected and distributed.get_backend() == "gloo")
    device = torch.device("cuda", torch.cuda.current_device()) if on_gpu else torch.device("cpu")
    if not connected:
        return Worker(0, 1, device)
    return Worker(distributed.get_rank(), distributed.get_world_size(), device)


@contextmanager
def workers(*, device: torch.device | str | None = None) -> Iterator[Worker]:
    """The processes that `torchrun` started, connected for as long as the block lasts; otherwise one worker.

    They meet by nccl where there are GPUs, each on one of its own, and by gloo where there are none. `device="cpu"`
    leaves GPUs alone. Where one of them dies, the others raise a `WorkerLostError` that says which one.

    >>> import throughtime as tt
    >>> with tt.train.workers() as worker:
    ...     worker.rank, worker.size
    (0, 1)
    """
    on_gpu = torch.cuda.is_available() and (device is None or torch.device(device).type == "cuda")
    if "LOCAL_RANK" not in os.environ or distributed.is_initialized():
        worker = this_worker()
        yield worker if on_gpu else worker._replace(device=torch.device("cpu"))
        return
    if on_gpu:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    distributed.init_process_group("nccl" if on_gpu else "gloo")
    try:
        # A process that waits for NCCL runs no Python: there SIGTERM ends it as ever.
        with nullcontext() if on_gpu else sigterm_raised(START_AGAIN), in_the_store(), lost_workers_told(START_AGAIN):
            yield this_worker()
    finally:
        distributed.destroy_process_group()


def summed(values: Tensor, worker: Worker) -> Tensor:
    """`values`, changed to their sums over all workers."""
    if worker.size > 1:
        distributed.all_reduce(values)
    return values


def largest(value: int, worker: Worker) -> int:
    """The largest `value` of any worker."""
    if worker.size == 1:
        return value
    found = torch.tensor(value, device=worker.device)
    distributed.all_reduce(found, distributed.ReduceOp.MAX)
    return int(found)


def gathered(values: Tensor, worker: Worker) -> list[Tensor]:
    """The `values` of every worker, in order, on the CPU."""
    if worker.size == 1:
        return [values.cpu()]
    mine = values.to(worker.device)
    everyone = [torch.empty_like(mine) for _ in range(worker.size)]
    distributed.all_gather(everyone, mine)
    return [part.cpu() for part in everyone]


def wait_for_all(worker: Worker) -> None:
    """Go on when every worker has come here."""
    if worker.size > 1:
        distributed.barrier()
