"""What a run records: a line for each step and each epoch, in memory and on disk."""

from __future__ import annotations

import json
import math
import os
import sys
from pathlib import Path
from typing import IO, Any, NamedTuple

import torch

from throughtime import _html
from throughtime._atomic_files import whole
from throughtime._errors import InvalidArgumentError, problem
from throughtime._json_files import read_json_lines

# As many fit on a screen.
SHOWN_EPOCHS = 30


class Step(NamedTuple):
    """One step of the optimiser, over all workers.

    `number` and `epoch` count from 1; `metrics` are those of this batch, before the step; `gradient_norm` is that
    before clipping; `steps` of its `padded_steps` are real; `memory` is the most bytes this process (or its GPU) has
    held so far, as seen a few times a second.
    """

    number: int
    epoch: int
    metrics: dict[str, float]
    gradient_norm: float
    learning_rate: float
    rows: int
    steps: int
    padded_steps: int
    seconds: float
    memory: int


class Epoch(NamedTuple):
    """One pass over the training data: `step` optimiser steps so far, metrics while training and of the validation."""

    number: int
    step: int
    train: dict[str, float]
    valid: dict[str, float]
    learning_rate: float
    seconds: float
    best: bool


class History:
    """All records of a run.

    >>> import throughtime as tt
    >>> history = tt.train.History()
    >>> history.steps, history.epochs, history.best, history.stopped_early
    ([], [], None, False)
    """

    FILE = "history.jsonl"

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.epochs: list[Epoch] = []
        self.stopped_early = False

    def __repr__(self) -> str:
        return f"History of {len(self.epochs)} epochs, {len(self.steps)} steps"

    def _repr_html_(self) -> str:
        """In a notebook: a table of the epochs, the best one in bold; of many, the last."""
        shown = self.epochs[-SHOWN_EPOCHS:]
        names = list(dict.fromkeys(name for epoch in shown for name in (*epoch.train, *epoch.valid)))
        columns = [f"{part} {name}" for name in names for part in ("train", "valid")]
        rows = [
            [str(epoch.number), f"{epoch.step:,}"]
            + [_digits(part.get(name)) for name in names for part in (epoch.train, epoch.valid)]
            + [_digits(epoch.learning_rate), f"{epoch.seconds:.1f}"]
            for epoch in shown
        ]
        best = next((place for place, epoch in enumerate(shown) if epoch is self.best), None)
        table = _html.table(["epoch", "steps", *columns, "learning rate", "seconds"], rows, best)
        title = f"{self!r}{', stopped early' if self.stopped_early else ''}"
        if len(shown) < len(self.epochs):
            title += f"; the last {len(shown)} epochs"
        return _html.card(title, table if shown else "")

    @property
    def best(self) -> Epoch | None:
        """The best epoch so far."""
        return next((epoch for epoch in reversed(self.epochs) if epoch.best), None)

    @classmethod
    def read(cls, folder: Path | str, *, before: tuple[int, int] | None = None) -> History:
        """The records in the folder of a run, before a step and an epoch if given; a line cut off is left out."""
        history = cls()
        path = Path(folder) / cls.FILE
        if not path.parent.is_dir():
            fix = "Pass the `folder` of `tt.train.fit`."
            raise InvalidArgumentError(problem("there is no such run", got=path.parent, expected="a folder", fix=fix))
        for number, record in enumerate(read_json_lines(path) if path.exists() else (), 1):
            try:
                history._add(record, *(before or (math.inf, math.inf)))
            except (TypeError, KeyError, AttributeError):
                what, expected, fix = f"{path}, line {number} is no record", "what a run wrote", "Remove the line."
                got = repr(record)
                raise InvalidArgumentError(problem(what, got=got[:80], expected=expected, fix=fix)) from None
        return history

    def _add(self, record: dict[str, Any], step: float, epoch: float) -> None:
        kind = record.pop("kind")
        if kind == "end":
            self.stopped_early = record["stopped_early"]
        elif kind == "step" and record["number"] < step:
            self.steps.append(Step(**record))
        elif kind == "epoch" and record["number"] < epoch:
            self.epochs.append(Epoch(**record))


def _digits(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"


class Log:
    """The file that a history grows in; nothing without a folder."""

    def __init__(self, folder: Path | None, history: History) -> None:
        self._file: IO[str] | None = None
        if folder is not None:
            # Records after the checkpoint that a run goes on from are written again, by the run.
            records: list[Step | Epoch] = [*history.steps, *history.epochs]
            lines = [_line(record) for record in sorted(records, key=_place)]
            with whole(folder / History.FILE) as new:
                new.write_text("".join(lines), encoding="utf-8")
            self._file = (folder / History.FILE).open("a", encoding="utf-8")

    def write(self, record: Step | Epoch) -> None:
        """Append a record, and flush it to readers of the file."""
        if self._file is not None:
            self._file.write(_line(record))
            self._file.flush()

    def sync(self) -> None:
        """Return when everything is on disk."""
        if self._file is not None:
            os.fsync(self._file.fileno())

    def end(self, history: History) -> None:
        """Note how the run came to its end."""
        if self._file is not None:
            self._file.write(json.dumps({"kind": "end", "stopped_early": history.stopped_early}) + "\n")

    def close(self) -> None:
        """Nothing more will be written."""
        if self._file is not None:
            self._file.close()


def memory_used(device: torch.device) -> int:
    """The most bytes that a GPU, or this process, has held so far; 0 where it is unknown."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    try:
        import resource  # noqa: PLC0415
    except ImportError:
        return 0
    # In bytes on a Mac, in units of 1024 elsewhere.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _line(record: Step | Epoch) -> str:
    return json.dumps({"kind": type(record).__name__.lower(), **record._asdict()}) + "\n"


def _place(record: Step | Epoch) -> tuple[int, bool]:
    """Steps in order, an epoch after its last step."""
    return (record.step, True) if isinstance(record, Epoch) else (record.number, False)
