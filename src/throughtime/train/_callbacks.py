"""Watching a run: what is called with every record, and a progress bar."""

from __future__ import annotations

import math
from typing import Any

from throughtime._errors import check_flag
from throughtime.train._history import Epoch, History, Step

MOST_LINES = 100


class Callback:
    """What `fit` calls while it trains; a subclass defines what it needs. Only the first worker has callbacks.

    >>> import throughtime as tt
    >>> class Losses(tt.train.Callback):
    ...     def epoch(self, epoch):
    ...         print(f"epoch {epoch.number}: loss {epoch.train['loss']:.3f}")
    """

    def begin(self, epochs: int, steps: int, history: History) -> None:
        """Before the first step: epochs of about `steps` steps each; `history` has records if a run goes on."""

    def step(self, step: Step) -> None:
        """After a step of the optimiser."""

    def epoch(self, epoch: Epoch) -> None:
        """After an epoch and its validation."""

    def end(self, history: History) -> None:
        """After the last epoch, or when training stops by an error."""


class Progress(Callback):
    """A bar with rate (of sequences' own steps) and remaining time on a terminal, and a line an epoch that stays.

    Of more than a hundred epochs, only some have a line, so that they stay readable. `console` is that of rich; by
    default, standard output. An epoch better than all before is marked, unless with `mark_best=False`.

    >>> import throughtime as tt
    >>> progress = tt.train.Progress()
    """

    def __init__(self, console: Any = None, *, mark_best: bool = True) -> None:
        # Rich is slow to import, and most programs never show a bar.
        from rich.console import Console  # noqa: PLC0415

        self._console = console or Console(highlight=False)
        self._mark_best = check_flag("mark_best", mark_best)
        self._bar: Any = None
        self._task: Any = None
        self._epochs = self._steps = 0

    def begin(self, epochs: int, steps: int, history: History) -> None:
        """Show the bar, as far as an earlier run has come."""
        from rich.progress import (  # noqa: PLC0415
            BarColumn,
            MofNCompleteColumn,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )
        from rich.progress import Progress as Bar  # noqa: PLC0415

        self._epochs = epochs
        columns = [
            TextColumn("{task.description}"),
            MofNCompleteColumn(),
            BarColumn(),
            TextColumn("{task.fields[now]}"),
        ]
        self._bar = Bar(
            *columns,
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=self._console,
            disable=not self._console.is_interactive,
        )
        self._task = self._bar.add_task("step", total=epochs * steps, completed=len(history.steps), now="")
        self._bar.start()

    def step(self, step: Step) -> None:
        """Advance, and say how fast it goes."""
        self._steps += step.steps
        seconds = self._bar.tasks[self._task].elapsed or 0
        rate = f"{self._steps / seconds:,.0f} steps/s" if seconds else ""
        now = f"epoch {step.epoch}/{self._epochs}  loss {step.metrics['loss']:.3f}  {rate}"
        self._bar.update(self._task, advance=1, now=now)

    def epoch(self, epoch: Epoch) -> None:
        """One line that stays; and by now it is known how many steps an epoch has."""
        self._bar.update(self._task, total=round(epoch.step / epoch.number * self._epochs))
        parts = {"train": epoch.train, "valid": epoch.valid}
        found = {f"{part} {name}": value for part, values in parts.items() for name, value in values.items()}
        if epoch.number % math.ceil(self._epochs / MOST_LINES) and epoch.number not in (1, self._epochs):
            return
        values = "  ".join(f"{name} {value:.4g}" for name, value in found.items())
        width = len(str(self._epochs))
        line = f"epoch {epoch.number:{width}}/{self._epochs}  {values}  {epoch.seconds:.1f} s"
        mark = "  best" if self._mark_best and epoch.best and epoch.valid else ""
        self._console.print(line + mark, markup=False, highlight=False, soft_wrap=True)

    def end(self, history: History) -> None:
        """Take the bar away."""
        self._bar.stop()
        if history.stopped_early:
            self._console.print(f"stopped: no better epoch than {history.best.number}", markup=False, highlight=False)  # type: ignore[union-attr]
