"""The checks at the door of `fit` and `evaluate`: nothing runs before they pass."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim.lr_scheduler import LRScheduler

from throughtime._errors import check_callable, check_number, check_positive_int, problem, type_name
from throughtime.train._callbacks import Callback
from throughtime.train._checkpoint import latest_checkpoint
from throughtime.train._distributed import this_worker
from throughtime.train._history import History

PRECISIONS = (None, torch.bfloat16, torch.float16)


def check_model(model: Any, measure: Any) -> None:
    """A model, and what measures it."""
    if not isinstance(model, nn.Module):
        fix = "Inherit from torch.nn.Module."
        raise TypeError(problem("`model` is no module", got=type_name(model), expected="a torch.nn.Module", fix=fix))
    check_callable("measure", measure, expected="a function", fix="Pass measure(model, batch).")


def check_optimizer(optimizer: Any, model: nn.Module) -> None:
    """An optimiser of this model."""
    _check_kind("optimizer", optimizer, torch.optim.Optimizer)
    own = set(map(id, model.parameters()))
    if own.isdisjoint(id(parameter) for group in optimizer.param_groups for parameter in group["params"]):
        what, fix = "`optimizer` has none of the model's parameters", "Make it with `model.parameters()`."
        raise ValueError(problem(what, got="others", expected="at least one of the model's", fix=fix))


def check_schedule(schedule: Any, schedule_every: Any) -> None:
    """A schedule, if there is one, and when it advances."""
    if schedule is not None:
        _check_kind("schedule", schedule, LRScheduler)
    if schedule_every not in ("step", "epoch"):
        expected, fix = "'step' or 'epoch'", "Say when the schedule advances."
        raise ValueError(problem("`schedule_every` is unknown", got=repr(schedule_every), expected=expected, fix=fix))


def check_batches(name: str, batches: Any) -> None:
    """Batches for every epoch anew, at least one."""
    if not hasattr(batches, "__iter__") or not hasattr(batches, "__len__") or hasattr(batches, "__next__"):
        expected, fix = "batches with a length, for every epoch anew", "Pass a list, or tt.train.loader(...)."
        raise TypeError(problem(f"`{name}` are no batches", got=type_name(batches), expected=expected, fix=fix))
    if not len(batches):
        fix = "Check that the data is there."
        raise ValueError(problem(f"`{name}` is empty", got="0 batches", expected="at least one", fix=fix))


def check_positive(name: str, value: Any) -> float:
    """`value` as a number above 0."""
    if not check_number(name, value, minimum=0) > 0:
        fix = "Pass a larger one, or leave it out."
        raise ValueError(problem(f"`{name}` is out of range", got=value, expected="a number above 0", fix=fix))
    return float(value)


def check_truncate(truncate: Any) -> int | None:
    """The steps of a window; None for batches as they are."""
    return None if truncate is None else check_positive_int("truncate", truncate)


def check_precision(precision: Any) -> torch.dtype | None:
    """The dtype of mixed precision; None for that of the model."""
    if not any(precision is known for known in PRECISIONS):
        expected, fix = "torch.bfloat16, torch.float16 or None", "Leave it out for the dtype of the model."
        raise ValueError(problem("`precision` is unknown", got=repr(precision), expected=expected, fix=fix))
    return precision  # type: ignore[no-any-return]


def check_callbacks(callbacks: Any) -> list[Callback]:
    """Those who are told, each of them made already."""
    told = list(callbacks) if isinstance(callbacks, Iterable) else [callbacks]
    if not isinstance(callbacks, Iterable) or any(isinstance(one, type) or not hasattr(one, "begin") for one in told):
        got, fix = ", ".join(map(type_name, told)), "Pass `callbacks=[tt.train.Progress()]`, or leave it out."
        expected = "a list of tt.train.Callback"
        raise TypeError(problem("`callbacks` must be callbacks", got=got, expected=expected, fix=fix))
    return told


def check_folder(folder: Path | str | None, checkpoint_every: int | None, resume: bool) -> Path | None:
    """The folder, made if it is not there."""
    if checkpoint_every is not None:
        check_positive_int("checkpoint_every", checkpoint_every)
    if folder is None:
        if resume or checkpoint_every is not None:
            what, fix = "checkpoints need a folder", "Pass `folder=`, the same as for the run to go on with."
            raise ValueError(problem(what, got="folder=None", expected="a path", fix=fix))
        return None
    path = Path(folder)
    if this_worker().is_first:
        path.mkdir(parents=True, exist_ok=True)
    return path


def check_unused(folder: Path | None, resume: bool) -> None:
    """A folder that holds a run is for going on only; to be asked while the folder is locked."""
    if folder is None or resume or not this_worker().is_first:
        return
    if latest_checkpoint(folder) or (folder / History.FILE).exists():
        what, fix = "`folder` holds a run already", "Pass `resume=True` to go on with it, or another folder."
        raise ValueError(problem(what, got=folder, expected="a new or an empty folder", fix=fix))


def _check_kind(name: str, value: Any, kind: type) -> None:
    if not isinstance(value, kind):
        expected, fix = f"a torch.optim {kind.__name__}", "Make one for the model's parameters and pass it."
        raise TypeError(problem(f"`{name}` is none", got=type_name(value), expected=expected, fix=fix))
