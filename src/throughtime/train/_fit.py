"""Training a model on sequences."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn
from torch.optim.lr_scheduler import LRScheduler

from throughtime._errors import check_flag, check_positive_int
from throughtime.train._accumulate import Measure
from throughtime.train._arguments import (
    check_batches,
    check_callbacks,
    check_folder,
    check_model,
    check_optimizer,
    check_positive,
    check_precision,
    check_schedule,
    check_truncate,
    check_unused,
)
from throughtime.train._callbacks import Callback
from throughtime.train._checkpoint import set_weights
from throughtime.train._distributed import this_worker
from throughtime.train._folder_lock import locked
from throughtime.train._history import History
from throughtime.train._trainer import Trainer


def fit(  # noqa: PLR0913 (public)
    model: nn.Module,
    measure: Measure,
    train: Any,
    valid: Any = None,
    *,
    optimizer: torch.optim.Optimizer,
    epochs: int,
    schedule: LRScheduler | None = None,
    schedule_every: Literal["step", "epoch"] = "step",
    clip_norm: float | None = None,
    truncate: int | None = None,
    precision: torch.dtype | None = None,
    monitor: str = "loss",
    higher_is_better: bool = False,
    patience: int | None = None,
    keep_best: bool = False,
    folder: Path | str | None = None,
    checkpoint_every: int | None = None,
    keep: int = 2,
    resume: bool = False,
    callbacks: Sequence[Callback] = (),
) -> History:
    """Train a model on batches of sequences: a thin loop over torch's own parts, which a plain loop can do as well.

    `measure(model, batch)` runs the model on a `Batch` and returns metrics by name, each a `Mean`; `"loss"` is what
    the optimiser makes small. `train` and `valid` are batches that can be gone through once an epoch: a
    `loader`, any `DataLoader` of batches, a list. The model stays where it is, and batches are brought to it.

    * `schedule`, any of `torch.optim.lr_scheduler`, advances every step or `schedule_every="epoch"`;
      `ReduceLROnPlateau` always looks at `monitor` once an epoch. `clip_norm` bounds the norm of the gradient.
    * `truncate=k` cuts batches into windows of k steps, one step of the optimiser each; the state goes on from window
      to window, gradients do not. Then it is `measure(model, batch, state)`, which returns the metrics and the next
      state; `state` is None at the beginning of a batch.
    * `precision=torch.bfloat16` (or float16, whose loss is scaled) computes in mixed precision.
    * `monitor` is the metric of the validation (or of training, if there is none) that says which epoch is best.
      `patience` stops after that number of epochs without a better one; `keep_best` leaves the best weights in the
      model.
    * `folder` gets `history.jsonl` and checkpoints: every `checkpoint_every` steps or every epoch, and at the end; the
      last `keep` stay. With `resume=True` a run goes on from the newest checkpoint, if there is one, to exactly the
      numbers it would have come to without the interruption. One training at a time writes to a folder: it is locked.
    * Under `torchrun`, within `tt.train.workers()`, gradients are averaged by `DistributedDataParallel`.

    >>> import torch, throughtime as tt
    >>> class Counter(torch.nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.rnn = tt.RNN(tt.BasicRNNCell(1, input_size=1))
    ...     def forward(self, batch):
    ...         return self.rnn(batch.inputs, batch.lengths)[1][:, 0]
    >>> def measure(model, batch):
    ...     return {"loss": tt.train.squared_error(model(batch), batch.targets)}
    >>> examples = [(torch.ones(n, 1), n / 10) for n in range(1, 9)]
    >>> model = Counter()
    >>> optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    >>> history = tt.train.fit(model, measure, tt.train.loader(examples, 4), optimizer=optimizer, epochs=3)
    >>> len(history.steps), history.epochs[2].train["loss"] < history.epochs[0].train["loss"]
    (6, True)
    """
    check_model(model, measure)
    check_optimizer(optimizer, model)
    check_schedule(schedule, schedule_every)
    check_batches("train", train)
    if valid is not None:
        check_batches("valid", valid)
    keep_best, resume = check_flag("keep_best", keep_best), check_flag("resume", resume)
    begin = partial(
        Trainer,
        model=model,
        measure=measure,
        train=train,
        valid=valid,
        optimizer=optimizer,
        epochs=check_positive_int("epochs", epochs),
        schedule=schedule,
        schedule_every=schedule_every,
        clip_norm=None if clip_norm is None else check_positive("clip_norm", clip_norm),
        truncate=check_truncate(truncate),
        precision=check_precision(precision),
        monitor=monitor,
        higher_is_better=check_flag("higher_is_better", higher_is_better),
        patience=None if patience is None else check_positive_int("patience", patience),
        keep=check_positive_int("keep", keep),
        callbacks=check_callbacks(callbacks),
        checkpoint_every=checkpoint_every,
    )
    # The last of the checks: it makes the folder.
    path = check_folder(folder, checkpoint_every, resume)
    with _held(path):
        check_unused(path, resume)
        run = begin(folder=path)
        if resume:
            run.restore()
        history = run.go()
    if keep_best and run.best is not None:
        set_weights(model, run.best)
    return history


def _held(folder: Path | None) -> AbstractContextManager[None]:
    """The lock of a folder, held by the worker that writes to it."""
    return nullcontext() if folder is None or not this_worker().is_first else locked(folder)
