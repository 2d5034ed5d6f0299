"""What `test_lost_workers.py` runs under torchrun: a training in which one of two workers dies."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import torch
from _task import measure, parts

import throughtime as tt

VICTIM, STEP = 1, 3


def main(how: str, folder: Path) -> None:
    torch.set_num_threads(1)
    with tt.train.workers() as worker:
        steps = iter(range(10_000))

        def measure_and_die(model: Any, batch: tt.train.Batch) -> dict[str, tt.train.Mean]:
            if next(steps) == STEP:
                die(how, worker.rank)
            return measure(model, batch)

        tt.train.fit(**parts() | {"measure": measure_and_die}, epochs=50, folder=folder, checkpoint_every=1)


def die(how: str, rank: int) -> None:
    if how.startswith("ended from outside"):
        # torchrun forwards SIGTERM to its workers.
        if rank == VICTIM:
            os.kill(os.getppid(), signal.SIGTERM)
        elif how.endswith("while others wait"):
            # In a collective, where no handler of Python runs until the connection is lost.
            return
        time.sleep(60)
    if rank != VICTIM:
        if how == "killed while others compute":
            time.sleep(60)
        return
    if how == "fails":
        raise ValueError("a row\nthat is wrong")
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
