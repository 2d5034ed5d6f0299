"""What `test_workers.py` runs under torchrun: three runs, all of which must end like that of one process."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from _task import measure_from, parts

import throughtime as tt

EPOCHS = 3


def run(folder: Path, epochs: int, **options: Any) -> dict[str, Any]:
    """Train, from wherever the folder stands; how it ended."""
    setup = parts()
    history = tt.train.fit(
        **setup | options, epochs=epochs, folder=folder, checkpoint_every=2, resume=True, clip_norm=1.0
    )
    last = history.epochs[-1]
    weights = [weight.detach().flatten() for weight in setup["model"].parameters()]
    return {
        "train": last.train,
        "valid": last.valid,
        "weights": torch.cat(weights).tolist(),
        "steps": [(step.rows, step.steps) for step in history.steps],
    }


def truncated(folder: Path) -> dict[str, Any]:
    return run(folder, 1, truncate=4, measure=measure_from)


def main() -> None:
    torch.set_num_threads(1)
    folder = Path(sys.argv[1])
    with tt.train.workers() as worker:
        assert worker.size == 2
        found = {
            "whole": run(folder / "two", EPOCHS),
            "begun by one": run(folder / "begun by one", EPOCHS),
            "begun by two": run(folder / "begun by two", 1),
            "truncated": truncated(folder / "truncated by two"),
        }
        shares = [sum(batch.steps for batch in parts()["train"])]
        (folder / f"worker-{worker.rank}.json").write_text(json.dumps({**found, "steps": shares}))


if __name__ == "__main__":
    main()
