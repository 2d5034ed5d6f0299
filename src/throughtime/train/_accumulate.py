"""What a model is measured by: the metrics of batches and of their windows, as sums that add up, over workers too."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from throughtime._errors import problem, type_name
from throughtime.train._distributed import Worker, largest, summed
from throughtime.train._metrics import Mean
from throughtime.train.data._batches import Batch, StandIn

Measure = Callable[..., Any]
"""`measure(model, batch)` gives metrics by name, `"loss"` among them. With truncation, `measure(model, batch, state)`
gives those and the next state."""


class Sums(NamedTuple):
    """Metrics by name as (sum, count), and the size of what was measured, over all workers. Parts add up."""

    metrics: dict[str, tuple[float, float]]
    rows: int = 0
    steps: int = 0
    padded_steps: int = 0

    def plus(self, other: Sums) -> Sums:
        """Both together."""
        joined = dict(self.metrics)
        for name, (total, count) in other.metrics.items():
            before = joined.get(name, (0.0, 0.0))
            joined[name] = (before[0] + total, before[1] + count)
        return Sums(joined, *(mine + theirs for mine, theirs in zip(self[1:], other[1:], strict=True)))

    def over_all(self, worker: Worker) -> Sums:
        """Those of all workers."""
        return self.over_all_with([], worker)[0]

    def over_all_with(self, more: list[float], worker: Worker) -> tuple[Sums, list[float]]:
        """Those of all workers, and more numbers summed on the same way: that workers meet is what takes time."""
        if worker.size == 1:
            return self, more
        mine = [*(part for pair in self.metrics.values() for part in pair), *self[1:], *more]
        found = summed(torch.tensor(mine, dtype=torch.float64).to(worker.device), worker).tolist()
        numbers, sizes = found[: 2 * len(self.metrics)], found[2 * len(self.metrics) :]
        metrics = dict(zip(self.metrics, zip(numbers[::2], numbers[1::2], strict=True), strict=True))
        return Sums(metrics, *map(int, sizes[:3])), sizes[3:]

    def means(self) -> dict[str, float]:
        """The metrics."""
        return {name: total / count if count else 0.0 for name, (total, count) in self.metrics.items()}


def measured_by(measure: Measure, model: Any, batch: Batch, state: Any, *, carry: bool) -> tuple[dict[str, Mean], Any]:
    """What `measure` says of a batch, and the next state if one is carried."""
    answer = measure(model, batch, state) if carry else (measure(model, batch), None)
    if not isinstance(answer, tuple) or len(answer) != 2:
        what, fix = "`measure` gave no state to carry on", "With `truncate`, return the metrics and the next state."
        raise TypeError(problem(what, got=type_name(answer), expected="a pair", fix=fix))
    measured, state = answer
    if not isinstance(measured, dict):
        what, fix = "`measure` gave no metrics", 'Return `{"loss": tt.train.cross_entropy(...)}` or the like.'
        raise TypeError(problem(what, got=type_name(measured), expected="a dict of tt.train.Mean by name", fix=fix))
    for name, part in measured.items():
        if not isinstance(part, Mean):
            what, fix = f"the metric {name!r} is no mean", "Write `tt.train.Mean(loss * n, n)` for a mean of n things."
            raise TypeError(problem(what, got=type_name(part), expected="a tt.train.Mean", fix=fix))
    if "loss" not in measured:
        what, fix = "`measure` gave no loss", 'Call what is to be made small "loss".'
        raise ValueError(problem(what, got=sorted(measured), expected='"loss" among them', fix=fix))
    if isinstance(batch, StandIn):
        # Another worker counts it; here it is known what the metrics are called, and no more.
        measured = {name: Mean(torch.zeros(()), 0) for name in measured}
    return measured, state


def sums_of(measured: dict[str, Mean], batch: Batch) -> Sums:
    """What a batch was measured by, in plain numbers, for which a GPU has to finish its work."""
    metrics = {name: (_number(mean.total), _number(mean.count)) for name, mean in measured.items()}
    if isinstance(batch, StandIn):
        return Sums(metrics)
    return Sums(metrics, len(batch.lengths), batch.steps, batch.padded_steps)


def windows_of(batch: Batch, truncate: int | None, worker: Worker) -> list[Batch]:
    """The pieces of a batch for truncated backpropagation, as many on every worker; all of it if there is none."""
    if truncate is None:
        return [batch]
    missing = largest(batch.inputs.shape[1], worker) - batch.inputs.shape[1]
    if missing:
        targets = None if batch.targets is None else _lengthened(batch.targets, missing)
        batch = batch._replace(inputs=_lengthened(batch.inputs, missing), targets=targets)
    return list(batch.windows(truncate))


def autocast(device: torch.device, precision: torch.dtype | None) -> AbstractContextManager[Any]:
    """torch's mixed precision, if one is asked for."""
    return nullcontext() if precision is None else torch.autocast(device.type, precision)


def model_device(model: nn.Module) -> torch.device:
    """Where a model computes."""
    return next((parameter.device for parameter in model.parameters()), torch.device("cpu"))


def _lengthened(sequences: Tensor, steps: int) -> Tensor:
    """`sequences` [B, T, ...] with more steps of padding."""
    return functional.pad(sequences, (0, 0) * (sequences.ndim - 2) + (0, steps))


def _number(part: Tensor | int) -> float:
    return float(part.item() if isinstance(part, Tensor) else part)
