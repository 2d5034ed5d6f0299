"""How good a model is, without learning from it."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from throughtime._errors import problem, type_name
from throughtime.train._accumulate import Measure, Sums, autocast, measured_by, model_device, sums_of, windows_of
from throughtime.train._arguments import check_model, check_precision, check_truncate
from throughtime.train._distributed import Worker, this_worker
from throughtime.train.data._batches import brought
from throughtime.train.data._buckets import filler_from


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
    worker, device = this_worker(), model_device(model)
    alone = Worker(0, 1, device)
    # The caller may have frozen a part of it.
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    sums, seen = Sums({}), False
    try:
        with torch.no_grad():
            lent = filler_from(batches)
            for batch, is_lent in zip(batches, lent, strict=False):
                seen, state = True, None
                for window in windows_of(brought(batch, device, lent=is_lent), truncate, alone):
                    with autocast(device, precision):
                        measured, state = measured_by(measure, model, window, state, carry=truncate is not None)
                    sums = sums.plus(sums_of(measured, window))
    finally:
        for module, was_training in modes:
            module.training = was_training
    if not seen:
        fix = "Check that the data is there, and that an iterator was not used up before."
        raise ValueError(problem("`batches` is empty", got="0 batches", expected="at least one", fix=fix))
    return sums.over_all(worker).means()
