"""One run of training: where it stands, how it goes on, what it leaves behind."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from throughtime import _pytree
from throughtime._errors import problem
from throughtime.train._accumulate import Measure, Sums, measured_by, windows_of
from throughtime.train._callbacks import Callback
from throughtime.train._checkpoint import Checkpoints, weights_of
from throughtime.train._distributed import Worker, this_worker
from throughtime.train._evaluate import evaluate
from throughtime.train._history import Epoch, History, Log, Step, memory_used
from throughtime.train._optimizer_step import OptimizerStep, Outcome
from throughtime.train._rng_state import of_its_own, set_random_state
from throughtime.train._run_state import Position, Snapshot, Snapshots
from throughtime.train.data._batches import Batch, brought
from throughtime.train.data._buckets import filler_from

# Seconds between two looks at the memory.
LOOK_EVERY = 0.2


@dataclass
class Trainer:
    """A run; its fields are the arguments of `fit`."""

    model: nn.Module
    measure: Measure
    train: Any
    valid: Any
    optimizer: torch.optim.Optimizer
    epochs: int
    schedule: LRScheduler | None
    schedule_every: str
    clip_norm: float | None
    truncate: int | None
    precision: torch.dtype | None
    monitor: str
    higher_is_better: bool
    patience: int | None
    folder: Path | None
    checkpoint_every: int | None
    keep: int
    callbacks: Sequence[Callback]

    def __post_init__(self) -> None:
        self.worker: Worker = this_worker()
        self.place, self.history = Position(), History()
        # The weights of the best epoch, and the state carried from window to window.
        self.best: dict[str, Tensor] | None = None
        self.carried: Any = None
        # Once a run goes on: the random numbers to go on with, and the leaves of the state.
        self._random: dict[str, Tensor] | None = None
        self._leaves: list[Tensor] | None = None
        self._saved = 0
        # When the step began that is recorded next.
        self._mark = time.perf_counter()
        # When memory was last looked at, and what was seen.
        self._looked, self._held = -math.inf, 0
        self._log = Log(None, self.history)
        if not self.worker.is_first:
            self.callbacks = ()
            of_its_own(self.worker.rank)
        carry = self.truncate is not None
        self._stepper = OptimizerStep(
            self.model, self.measure, self.optimizer, self.worker, self.clip_norm, self.precision, carry=carry
        )
        self._snapshots = None
        if self.folder is not None:
            self._snapshots = Snapshots(
                checkpoints=Checkpoints(self.folder, self.keep),
                worker=self.worker,
                model=self.model,
                optimizer=self.optimizer,
                schedule=self.schedule,
                scaler=self._stepper.scaler,
                device=self._stepper.device,
                train=self.train,
            )

    def go(self) -> History:
        """Train to the end, from wherever the run stands."""
        self._log = Log(self.folder if self.worker.is_first else None, self.history)
        for callback in self.callbacks:
            callback.begin(self.epochs, self._steps_an_epoch(), self.history)
        try:
            while self.place.epoch <= self.epochs and not self.history.stopped_early:
                self._train_epoch()
                self._end_epoch()
            self._log.end(self.history)
        finally:
            self._log.close()
            for callback in self.callbacks:
                callback.end(self.history)
        return self.history

    def _steps_an_epoch(self) -> int:
        """How many steps an epoch has, as far as that is known before it: a loader's windows are not."""
        if self.truncate is None or not isinstance(self.train, list | tuple):
            return len(self.train)
        return sum(-(-batch.inputs.shape[1] // self.truncate) for batch in self.train)

    def _train_epoch(self) -> None:
        """Go through the batches, from the one where the run stands."""
        place, self._mark = self.place, time.perf_counter()
        self.model.train()
        for batch in self._batches():
            windows = windows_of(batch, self.truncate, self.worker)
            for index in range(place.window, len(windows)):
                outcome = self._stepper.step(windows[index], self._state_before(windows[0]))
                is_last = index + 1 == len(windows)
                place.batch, place.window = place.batch + is_last, 0 if is_last else index + 1
                self.carried = None if is_last else outcome.state
                self._record(outcome)
                if self._is_due():
                    self.save()

    def _batches(self) -> Iterator[Batch]:
        """The batches of this epoch that are still to come, with the random numbers where they were."""
        sampler: Any = getattr(self.train, "batch_sampler", None)
        parts: list[Any] = [self.train, sampler, getattr(self.train, "sampler", None)]
        for part in parts:
            if hasattr(part, "set_epoch"):
                part.set_epoch(self.place.epoch)
        gone = self.place.batch
        if not gone:
            # What draws random numbers at the start of an epoch draws now, as it did then.
            self._restore_random()
        elif hasattr(sampler, "skip"):
            sampler.skip(gone)
            gone = 0
        lent, batches = filler_from(self.train), iter(self.train)
        for _ in range(gone):
            next(batches)
        self._restore_random()
        for batch, is_lent in zip(batches, lent, strict=False):
            yield brought(batch, self._stepper.device, lent=is_lent)

    def _state_before(self, first: Batch) -> Any:
        """The state to start a window from."""
        if self._leaves is not None:
            # Checkpoints hold leaves only: one look at the first window shows how they belong together.
            buffers = [buffer.clone() for buffer in self.model.buffers()]
            with torch.no_grad():
                _, like = measured_by(self.measure, self.model, first, None, carry=True)
                # What a model counts on its way, such as the statistics of a norm, has not seen this.
                for buffer, before in zip(self.model.buffers(), buffers, strict=True):
                    buffer.copy_(before)
            leaves, self._leaves = self._leaves, None
            self.carried = _pytree.pack_as(like, [leaf.to(self._stepper.device) for leaf in leaves])
            self._restore_random()
        return self.carried

    def _record(self, outcome: Outcome) -> None:
        """Note a step, and let the schedule know."""
        place, now = self.place, time.perf_counter()
        place.step += 1
        place.sums = place.sums.plus(outcome.sums)
        place.seconds += now - self._mark
        metrics = outcome.sums.means()
        self._check_monitor(metrics)
        record = Step(
            number=place.step,
            epoch=place.epoch,
            metrics=metrics,
            gradient_norm=outcome.gradient_norm,
            learning_rate=self._learning_rate,
            rows=outcome.sums.rows,
            steps=outcome.sums.steps,
            padded_steps=outcome.sums.padded_steps,
            seconds=now - self._mark,
            memory=self._memory(now),
        )
        at_plateaus = isinstance(self.schedule, ReduceLROnPlateau)
        if self.schedule is not None and self.schedule_every == "step" and not at_plateaus:
            self.schedule.step()
        self.history.steps.append(record)
        self._log.write(record)
        for callback in self.callbacks:
            callback.step(record)
        self._mark = time.perf_counter()

    def _memory(self, now: float) -> int:
        """The memory held at most so far, looked at a few times a second: asking can take as long as a small step."""
        if now - self._looked > LOOK_EVERY:
            self._looked, self._held = now, memory_used(self._stepper.device)
        return self._held

    def _end_epoch(self) -> None:
        """Validate, see whether it got better, and go on to the next."""
        place, train = self.place, self.place.sums.means()
        valid = {} if self.valid is None else self._validate()
        value = (valid or train)[self.monitor]
        is_best = self._is_better(value)
        if is_best:
            place.best_value, self.best = value, weights_of(self.model)
        place.epochs_without_better = 0 if is_best else place.epochs_without_better + 1
        seconds = place.seconds + time.perf_counter() - self._mark
        record = Epoch(place.epoch, place.step, train, valid, self._learning_rate, seconds, is_best)
        self._end_schedule(value)
        self.history.epochs.append(record)
        self.history.stopped_early = self.patience is not None and place.epochs_without_better >= self.patience
        place.epoch, place.batch, place.sums, place.seconds = place.epoch + 1, 0, Sums({}), 0.0
        self._log.write(record)
        for callback in self.callbacks:
            callback.epoch(record)
        is_over = place.epoch > self.epochs or self.history.stopped_early
        if self.checkpoint_every is None or is_over:
            self.save("-epoch")

    def _validate(self) -> dict[str, float]:
        return evaluate(self.model, self.measure, self.valid, precision=self.precision, truncate=self.truncate)

    def _is_better(self, value: float) -> bool:
        best = self.place.best_value
        if math.isnan(value):
            return False
        return math.isnan(best) or (value > best if self.higher_is_better else value < best)

    def _end_schedule(self, value: float) -> None:
        if isinstance(self.schedule, ReduceLROnPlateau):
            self.schedule.step(value)
        elif self.schedule is not None and self.schedule_every == "epoch":
            self.schedule.step()

    def _check_monitor(self, metrics: dict[str, float]) -> None:
        if self.monitor not in metrics:
            what, fix = "`monitor` is none of the metrics", "Name one that `measure` returns."
            raise ValueError(problem(what, got=self.monitor, expected=f"one of {sorted(metrics)}", fix=fix))

    @property
    def _learning_rate(self) -> float:
        return float(self.optimizer.param_groups[0]["lr"])

    def _is_due(self) -> bool:
        """Whether it is time for a checkpoint; each worker carries states of its own, which one cannot write."""
        if self.checkpoint_every is None or (self.worker.size > 1 and self.carried is not None):
            return False
        return self.place.step - self._saved >= self.checkpoint_every

    def save(self, suffix: str = "") -> None:
        """Write a checkpoint of everything that what follows depends on."""
        self._saved = self.place.step
        if self._snapshots is None:
            return
        # Records are on disk before the checkpoint that they belong to.
        self._log.sync()
        carried = None if self.carried is None else _pytree.flatten(self.carried)
        self._snapshots.save(Snapshot(self.place, self.best, carried, self.history.stopped_early), suffix)
        self._mark = time.perf_counter()

    def restore(self) -> None:
        """Go back to the newest checkpoint, if there is one."""
        loaded = None if self._snapshots is None else self._snapshots.load()
        if loaded is None:
            return
        (self.place, self.best, self._leaves, stopped_early), self._random = loaded
        self.history = History.read(self.folder or "", before=(self.place.step + 1, self.place.epoch))
        self.history.stopped_early = stopped_early
        self._saved = self.place.step

    def _restore_random(self) -> None:
        """Put the random numbers back to where they were; until the first step, as often as needed."""
        if self._random is not None:
            set_random_state(self.model, self._random, self._stepper.device)
            if self._leaves is None:
                self._random = None
