"""How good a model is, without learning from it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from throughtime._errors import problem, type_name
from throughtime.train._arguments import check_model, check_precision, check_truncate
from throughtime.train._batches import Batch, brought
from throughtime.train._step import Measure, Sums, autocast, device_of, measured_by, together
from throughtime.train._workers import Worker, largest, this_worker


def evaluate(
    model: nn.Module,
    measure: Measure,
    batches: Any,
    *,
    precision: torch.dtype | None = None,
    truncate: int | None = None,
) -> dict[str, float]:
    """The metrics of a model over all batches, and all workers, in evaluation mode and without gradients.

    `measure`, `precision` and `truncate` are those of `fit`.

    >>> import torch, throughtime as tt
    >>> def measure(model, batch):
    ...     return {"loss": tt.train.squared_error(model(batch.inputs)[:, -1, 0], batch.targets)}
    >>> batch = tt.train.pad([(torch.ones(2, 1), 3.0), (torch.ones(2, 1), 1.0)])
    >>> tt.train.evaluate(torch.nn.Identity(), measure, [batch])
    {'loss': 2.0}
    """
    check_model(model, measure)
    precision, truncate = check_precision(precision), check_truncate(truncate)
    if not hasattr(batches, "__iter__"):
        expected, fix = "batches to go through once", "Pass a list, or tt.train.loader(...)."
        raise TypeError(problem("`batches` are no batches", got=type_name(batches), expected=expected, fix=fix))
    worker, device = this_worker(), device_of(model)
    alone = Worker(0, 1, device)
    # Somebody may have frozen a part of it.
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    sums = Sums({})
    try:
        with torch.no_grad():
            for batch in batches:
                state = None
                for window in windows_of(brought(batch, device), truncate, alone):
                    with autocast(device, precision):
                        measured, state = measured_by(measure, model, window, state, carry=truncate is not None)
                    sums = sums.plus(together(measured, window, alone))
    finally:
        for module, was_training in modes:
            module.training = was_training
    return sums.over_all(worker).means()


def windows_of(batch: Batch, truncate: int | None, worker: Worker) -> list[Batch]:
    """The pieces of a batch for truncated backpropagation, as many on every worker; all of it if there is none."""
    if truncate is None:
        return [batch]
    missing = largest(batch.inputs.shape[1], worker) - batch.inputs.shape[1]
    if missing:
        targets = None if batch.targets is None else _lengthened(batch.targets, missing)
        batch = batch._replace(inputs=_lengthened(batch.inputs, missing), targets=targets)
    return list(batch.windows(truncate))


def _lengthened(sequences: Tensor, steps: int) -> Tensor:
    """`sequences` [B, T, ...] with so many more steps of padding."""
    return functional.pad(sequences, (0, 0) * (sequences.ndim - 2) + (0, steps))
