"""Training a model on sequences."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn
from torch.optim.lr_scheduler import LRScheduler

from throughtime._errors import check_callable, check_flag, check_number, check_positive_int, problem, type_name
from throughtime.train._checkpoint import latest_checkpoint, set_weights
from throughtime.train._records import History
from throughtime.train._run import Run
from throughtime.train._step import Measure
from throughtime.train._watch import Watcher
from throughtime.train._workers import this_worker


def fit(
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
    watchers: Sequence[Watcher] = (),
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
      `patience` stops after so many epochs without a better one; `keep_best` leaves the best weights in the model.
    * `folder` gets `history.jsonl` and checkpoints: every `checkpoint_every` steps or every epoch, and at the end; the
      last `keep` stay. With `resume=True` a run goes on from the newest checkpoint, if there is one, to exactly the
      numbers it would have come to without the interruption.
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
    _check_parts(model, measure, optimizer, schedule, schedule_every)
    _check_batches("train", train)
    if valid is not None:
        _check_batches("valid", valid)
    run = Run(
        model=model,
        measure=measure,
        train=train,
        valid=valid,
        optimizer=optimizer,
        epochs=check_positive_int("epochs", epochs),
        schedule=schedule,
        schedule_every=schedule_every,
        clip_norm=None if clip_norm is None else _check_positive("clip_norm", clip_norm),
        truncate=None if truncate is None else check_positive_int("truncate", truncate),
        precision=_check_precision(precision),
        monitor=monitor,
        higher_is_better=check_flag("higher_is_better", higher_is_better),
        patience=None if patience is None else check_positive_int("patience", patience),
        folder=_check_folder(folder, checkpoint_every, check_flag("resume", resume)),
        checkpoint_every=checkpoint_every,
        keep=check_positive_int("keep", keep),
        watchers=watchers,
    )
    if resume:
        run.restore()
    history = run.go()
    if check_flag("keep_best", keep_best) and run.best is not None:
        set_weights(model, run.best)
    return history


def _check_parts(model: Any, measure: Any, optimizer: Any, schedule: Any, schedule_every: Any) -> None:
    if not isinstance(model, nn.Module):
        fix = "Inherit from torch.nn.Module."
        raise TypeError(problem("`model` is no module", got=type_name(model), expected="a torch.nn.Module", fix=fix))
    check_callable("measure", measure, expected="a function", fix="Pass measure(model, batch).")
    kinds = (("optimizer", optimizer, torch.optim.Optimizer), ("schedule", schedule, LRScheduler))
    for name, value, kind in kinds:
        if not isinstance(value, kind) and not (name == "schedule" and value is None):
            expected, fix = f"a torch.optim {kind.__name__}", "Make one for the model's parameters and pass it."
            raise TypeError(problem(f"`{name}` is none", got=type_name(value), expected=expected, fix=fix))
    own = set(map(id, model.parameters()))
    if own.isdisjoint(id(parameter) for group in optimizer.param_groups for parameter in group["params"]):
        what, fix = "`optimizer` has none of the model's parameters", "Make it with `model.parameters()`."
        raise ValueError(problem(what, got="others", expected="at least one of the model's", fix=fix))
    if schedule_every not in {"step", "epoch"}:
        expected, fix = "'step' or 'epoch'", "Say when the schedule advances."
        raise ValueError(problem("`schedule_every` is unknown", got=repr(schedule_every), expected=expected, fix=fix))


def _check_batches(name: str, batches: Any) -> None:
    if not hasattr(batches, "__iter__") or not hasattr(batches, "__len__") or hasattr(batches, "__next__"):
        expected, fix = "batches with a length, for every epoch anew", "Pass a list, or tt.train.loader(...)."
        raise TypeError(problem(f"`{name}` are no batches", got=type_name(batches), expected=expected, fix=fix))
    if not len(batches):
        fix = "Check that the data is there."
        raise ValueError(problem(f"`{name}` is empty", got="0 batches", expected="at least one", fix=fix))


def _check_positive(name: str, value: Any) -> float:
    if not check_number(name, value, minimum=0) > 0:
        fix = "Pass a larger one, or leave it out."
        raise ValueError(problem(f"`{name}` is out of range", got=value, expected="a number above 0", fix=fix))
    return float(value)


def _check_precision(precision: Any) -> torch.dtype | None:
    if precision not in {None, torch.bfloat16, torch.float16}:
        expected, fix = "torch.bfloat16, torch.float16 or None", "Leave it out for the dtype of the model."
        raise ValueError(problem("`precision` is unknown", got=repr(precision), expected=expected, fix=fix))
    return precision  # type: ignore[no-any-return]


def _check_folder(folder: Path | str | None, checkpoint_every: int | None, resume: bool) -> Path | None:
    """The folder, made if it is not there; one that holds a run is for going on only."""
    if checkpoint_every is not None:
        check_positive_int("checkpoint_every", checkpoint_every)
    if folder is None:
        if resume or checkpoint_every is not None:
            what, fix = "checkpoints need a folder", "Pass `folder=`, the same as for the run to go on with."
            raise ValueError(problem(what, got="folder=None", expected="a path", fix=fix))
        return None
    path = Path(folder)
    if this_worker().is_first:
        if not resume and (latest_checkpoint(path) or (path / History.FILE).exists()):
            what, fix = "`folder` holds a run already", "Pass `resume=True` to go on with it, or another folder."
            raise ValueError(problem(what, got=path, expected="a new or an empty folder", fix=fix))
        path.mkdir(parents=True, exist_ok=True)
    return path
