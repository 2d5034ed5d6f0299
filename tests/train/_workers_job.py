"""What `test_workers.py` runs under torchrun: runs that all must end like those of one process."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from _task import Counter, examples, measure, measure_from, parts
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import throughtime as tt

EPOCHS = 3


def run(folder: Path, epochs: int, **options: Any) -> dict[str, Any]:
    """Train, from wherever the folder stands; how it ended."""
    setup = parts()
    history = tt.train.fit(
        **setup | options, epochs=epochs, folder=folder, checkpoint_every=2, resume=True, clip_norm=1.0
    )
    last = history.epochs[-1]
    model = options.get("model", setup["model"])
    weights = [weight.detach().flatten() for weight in model.parameters()]
    return {
        "train": last.train,
        "valid": last.valid,
        "weights": torch.cat(weights).tolist(),
        "steps": [(step.rows, step.steps) for step in history.steps],
    }


def truncated(folder: Path) -> dict[str, Any]:
    return run(folder, 1, truncate=4, measure=measure_from)


def few_rows(folder: Path, **options: Any) -> dict[str, Any]:
    """Seven sequences in batches of two or one, and a single one to validate with."""
    train = tt.train.loader(examples(7), 2)
    return run(folder, EPOCHS, train=train, valid=tt.train.loader(examples(1, seed=1), 30), **options)


def few_rows_truncated(folder: Path) -> dict[str, Any]:
    return few_rows(folder, truncate=4, measure=measure_from)


class Sparing(Counter):
    """Has a layer that is never used, one for long sequences alone, and one for every other batch."""

    def __init__(self) -> None:
        super().__init__()
        self.unused, self.long, self.odd = nn.Linear(3, 3), nn.Linear(1, 4), nn.Linear(1, 4)
        # What DistributedDataParallel has under the same name.
        self.device, self.module = "a name", "another"

    def score(self, inputs: Tensor, lengths: Tensor, number: int) -> Tensor:
        scores, _ = self(inputs, lengths)
        is_long = lengths > 9
        if is_long.any():
            scores = scores + self.long(inputs) * is_long[:, None, None]
        return scores + self.odd(inputs) if number % 2 else scores


def sparing(folder: Path) -> dict[str, Any]:
    """A model that does not use all it has in every step, by more than its `forward`."""
    torch.manual_seed(0)
    model, calls = Sparing(), iter(range(1_000))

    def measure_scores(given: Any, batch: tt.train.Batch) -> dict[str, tt.train.Mean]:
        assert (given.device, given.module) == ("a name", "another")
        scores = given.score(batch.inputs, batch.lengths, next(calls) if given.training else 0)
        return {"loss": tt.train.cross_entropy(scores, batch.targets, batch.lengths)}

    adam = torch.optim.AdamW(model.parameters(), 0.02, weight_decay=0.1)
    return run(folder, EPOCHS, model=model, measure=measure_scores, optimizer=adam)


class Again(Counter):
    """Computes once more in the backward pass, where the graph of the forward pass does not show it."""

    def forward(self, inputs: Tensor, lengths: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        whole = super().forward
        scores = checkpoint(lambda x: whole(x, lengths)[0], inputs.requires_grad_(), use_reentrant=True)
        return scores, None


def computed_again(folder: Path) -> dict[str, Any]:
    torch.manual_seed(0)
    model = Again()
    return run(folder, 1, model=model, optimizer=torch.optim.Adam(model.parameters(), 0.02))


def without_a_gradient(folder: Path) -> str:
    """What is said of a loss that nothing can be learned from."""

    def detached(model: nn.Module, batch: tt.train.Batch) -> dict[str, tt.train.Mean]:
        return {name: mean._replace(total=mean.total.detach()) for name, mean in measure(model, batch).items()}

    try:
        run(folder, 1, measure=detached)
    except tt.InvalidArgumentError as error:
        return str(error)
    return ""


def in_a_loop_of_ones_own() -> str:
    """What is said of batches that cannot be shared."""
    try:
        list(tt.train.loader(examples(3), 1))
    except ValueError as error:
        return str(error)
    return ""


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
            "few rows": few_rows(folder / "few rows by two"),
            "few rows, truncated": few_rows_truncated(folder / "few rows by two, truncated"),
            "sparing": sparing(folder / "sparing by two"),
            "computed again": computed_again(folder / "computed again by two"),
            "without a gradient": without_a_gradient(folder / "nothing"),
            "a loop of one's own": in_a_loop_of_ones_own(),
        }
        shares = [sum(batch.steps for batch in parts()["train"])]
        (folder / f"worker-{worker.rank}.json").write_text(json.dumps({**found, "steps": shares}))


if __name__ == "__main__":
    main()
