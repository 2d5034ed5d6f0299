"""One step of the optimiser: forwards, backwards, clipped, on one worker or on several."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from throughtime import _nest
from throughtime._errors import InvalidArgumentError, problem, type_name
from throughtime._tensors import is_lazy
from throughtime.train._batches import Batch
from throughtime.train._means import Mean
from throughtime.train._workers import Worker, summed

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
        if worker.size == 1:
            return self
        flat = torch.tensor(
            [*(part for pair in self.metrics.values() for part in pair), *self[1:]], dtype=torch.float64
        )
        *numbers, rows, steps, padded_steps = summed(flat.to(worker.device), worker).tolist()
        metrics = dict(zip(self.metrics, zip(numbers[::2], numbers[1::2], strict=True), strict=True))
        return Sums(metrics, int(rows), int(steps), int(padded_steps))

    def means(self) -> dict[str, float]:
        """The metrics."""
        return {name: total / count if count else 0.0 for name, (total, count) in self.metrics.items()}


class Outcome(NamedTuple):
    """What a step gave: its sums, the state to carry on, the norm of the gradient before clipping."""

    sums: Sums
    state: Any
    gradient_norm: float


class Stepper:
    """A model, how it is measured, and what changes its weights."""

    def __init__(
        self,
        model: nn.Module,
        measure: Measure,
        optimizer: torch.optim.Optimizer,
        worker: Worker,
        clip_norm: float | None,
        precision: torch.dtype | None,
        *,
        carry: bool,
    ) -> None:
        self.device = device_of(model)
        # Small gradients vanish in float16 unless the loss is scaled up; the other dtypes have the range.
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=precision is torch.float16)
        self._model, self._measure, self._optimizer, self._worker = model, measure, optimizer, worker
        self._clip_norm, self._precision, self._carry = clip_norm, precision, carry
        self._net = _distributed(model, worker)

    def step(self, batch: Batch, state: Any) -> Outcome:
        """Learn from a batch."""
        with autocast(self.device, self._precision):
            measured, state = measured_by(self._measure, self._net, batch, state, carry=self._carry)
        sums = together(measured, batch, self._worker)
        self._check_finite(sums)
        loss = self.scaler.scale(self._local_loss(measured["loss"], sums))
        with backwards_here(self.device):
            loss.backward()
        self.scaler.unscale_(self._optimizer)
        norm = self._clip()
        self.scaler.step(self._optimizer)
        self.scaler.update()
        self._optimizer.zero_grad()
        return Outcome(sums, _nest.map_leaves(_detached, state), norm)

    def _clip(self) -> float:
        """The norm of the gradient; one that is too long is shortened, to the bit as `clip_grad_norm_` does it."""
        parameters = [parameter for parameter in self._model.parameters() if parameter.grad is not None]
        norm = nn.utils.get_total_norm([parameter.grad for parameter in parameters])  # type: ignore[misc]
        length = float(norm)
        # Well within the bound all would be multiplied by one; the 1e-6 is torch's own, and tells where the bound is as
        # small. What is no number counts as too long.
        if self._clip_norm is not None and not length + 1e-6 < 0.999 * self._clip_norm:
            nn.utils.clip_grads_with_norm_(parameters, self._clip_norm, norm)
        return length

    def _local_loss(self, loss: Mean, sums: Sums) -> Tensor:
        """This worker's part of the mean over all of them; DistributedDataParallel divides by their number."""
        _, count = sums.metrics["loss"]
        local = loss.total * (self._worker.size / (count or 1.0))
        if self._worker.size > 1 and not local.requires_grad:
            # A worker without real steps takes part in the sum of the gradients all the same.
            for parameter in self._net.parameters():
                local = local + 0 * parameter.sum()
        if not local.requires_grad:
            what, fix = "the loss has no gradient", "Compute it from the model, without `detach` or `no_grad`."
            got, expected = "a loss of numbers alone", "one to learn from"
            raise InvalidArgumentError(problem(what, got=got, expected=expected, fix=fix))
        return local

    def _check_finite(self, sums: Sums) -> None:
        total, _ = sums.metrics["loss"]
        if not math.isfinite(total) and not self.scaler.is_enabled():
            what, fix = "the loss is not a number any more", "Lower the learning rate"
            fix += "." if self._clip_norm else ", or pass `clip_norm`."
            raise InvalidArgumentError(problem(what, got=total, expected="a finite number", fix=fix))


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
    return measured, state


def together(measured: dict[str, Mean], batch: Batch, worker: Worker) -> Sums:
    """The sums of all workers; a look at the numbers, for which a GPU has to finish its work."""
    metrics = {name: (_number(mean.total), _number(mean.count)) for name, mean in measured.items()}
    return Sums(metrics, len(batch.lengths), batch.steps, batch.padded_steps).over_all(worker)


def autocast(device: torch.device, precision: torch.dtype | None) -> AbstractContextManager[Any]:
    """torch's mixed precision, if one is asked for."""
    return nullcontext() if precision is None else torch.autocast(device.type, precision)


def backwards_here(device: torch.device) -> AbstractContextManager[Any]:
    """Gradients of a GPU in this thread: small steps take longer to be handed to torch's own than to be made."""
    return torch.autograd.set_multithreading_enabled(False) if device.type == "cuda" else nullcontext()


def device_of(model: nn.Module) -> torch.device:
    """Where a model computes."""
    return next((parameter.device for parameter in model.parameters()), torch.device("cpu"))


def _distributed(model: nn.Module, worker: Worker) -> nn.Module:
    if worker.size == 1:
        return model
    if any(map(is_lazy, model.parameters())):
        what, fix = "several workers need a model whose parameters exist", "Make its cells with `input_size=`."
        raise ValueError(problem(what, got="parameters to be made", expected="a built model", fix=fix))
    return DistributedDataParallel(model)


def _number(part: Tensor | int) -> float:
    return float(part.item() if isinstance(part, Tensor) else part)


def _detached(leaf: Any) -> Any:
    return leaf.detach() if isinstance(leaf, Tensor) else leaf
