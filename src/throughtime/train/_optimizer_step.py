"""One step of the optimiser: forwards, backwards, clipped, on one worker or on several."""

from __future__ import annotations

import math
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from throughtime import _pytree
from throughtime._errors import InvalidArgumentError, problem
from throughtime._tensors import is_lazy
from throughtime.train._accumulate import Measure, Sums, autocast, measured_by, model_device, sums_of
from throughtime.train._distributed import Worker
from throughtime.train._metrics import Mean
from throughtime.train.data._batches import Batch


class Outcome(NamedTuple):
    """What a step gave: its sums, the state to carry on, the norm of the gradient before clipping."""

    sums: Sums
    state: Any
    gradient_norm: float


class OptimizerStep:
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
        self.device = model_device(model)
        # Small gradients vanish in float16 unless the loss is scaled up; the other dtypes have the range.
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=precision is torch.float16)
        self._model, self._optimizer, self._worker = model, optimizer, worker
        self._clip_norm, self._precision = clip_norm, precision
        self._measured = _distributed(_Measured(model, measure, carry=carry), worker)
        # What workers share the gradients of.
        shared = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self._shared = shared if worker.size > 1 else []

    def step(self, batch: Batch, state: Any) -> Outcome:
        """Learn from a batch."""
        with autocast(self.device, self._precision):
            measured, state = self._measured(batch, state)
        reached = _reached_by(measured["loss"].total, self._shared)
        sums, reached_by = sums_of(measured, batch).over_all_with(reached, self._worker)
        self._check_finite(sums)
        self._check_gradient(measured["loss"], reached_by)
        loss = self.scaler.scale(self._local_loss(measured["loss"], sums, reached))
        with backwards_here(self.device):
            loss.backward()
        self._forget_unreached(reached_by)
        self.scaler.unscale_(self._optimizer)
        norm = self._clip()
        self.scaler.step(self._optimizer)
        self.scaler.update()
        self._optimizer.zero_grad()
        return Outcome(sums, _pytree.map_leaves(_detached, state), norm)

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

    def _local_loss(self, loss: Mean, sums: Sums, reached: list[float]) -> Tensor:
        """This worker's part of the mean over all of them; DistributedDataParallel divides by their number."""
        _, count = sums.metrics["loss"]
        local = loss.total * (self._worker.size / (count or 1.0))
        for parameter, is_reached in zip(self._shared, reached, strict=True):
            if not is_reached:
                # All workers wait for the gradients of all: one without a row, or without a use for a parameter,
                # gives zeros.
                local = local + 0 * parameter.sum()
        return local

    def _check_gradient(self, loss: Mean, reached_by: list[float]) -> None:
        if not (any(reached_by) if self._shared else loss.total.requires_grad):
            what, fix = "the loss has no gradient", "Compute it from the model, without `detach` or `no_grad`."
            got, expected = "a loss of numbers alone", "one to learn from"
            raise InvalidArgumentError(problem(what, got=got, expected=expected, fix=fix))

    def _forget_unreached(self, reached_by: list[float]) -> None:
        """A parameter that no worker used has no gradient, as with one worker: an optimiser leaves it alone."""
        for parameter, count in zip(self._shared, reached_by, strict=True):
            if not count:
                parameter.grad = None

    def _check_finite(self, sums: Sums) -> None:
        total, _ = sums.metrics["loss"]
        if not math.isfinite(total) and not self.scaler.is_enabled():
            what, fix = "the loss is not a number any more", "Lower the learning rate"
            fix += "." if self._clip_norm else ", or pass `clip_norm`."
            raise InvalidArgumentError(problem(what, got=total, expected="a finite number", fix=fix))


def backwards_here(device: torch.device) -> AbstractContextManager[Any]:
    """Gradients of a GPU in this thread: small steps take longer to be handed to torch's own than to be made."""
    return torch.autograd.set_multithreading_enabled(False) if device.type == "cuda" else nullcontext()


class _Measured(nn.Module):
    """A model as it is measured. This is what workers share, so that `measure` is given the model itself."""

    def __init__(self, model: nn.Module, measure: Measure, *, carry: bool) -> None:
        super().__init__()
        self._model, self._measure, self._carry = model, measure, carry

    def forward(self, batch: Batch, state: Any) -> tuple[dict[str, Mean], Any]:
        """Metrics, and the next state if one is carried."""
        return measured_by(self._measure, self._model, batch, state, carry=self._carry)


def _reached_by(loss: Tensor, parameters: list[nn.Parameter]) -> list[float]:
    """1 for each parameter that the backward pass of a loss comes to, 0 for the others."""
    left, seen, nodes = set(map(id, parameters)), set(), [loss.grad_fn]
    while nodes and left:
        node = nodes.pop()
        if type(node).__name__ == "CheckpointFunctionBackward":
            # `torch.utils.checkpoint(use_reentrant=True)`: what lies behind is made only in the backward pass.
            return [1.0] * len(parameters)
        if node is not None and node not in seen:
            seen.add(node)
            left.discard(id(getattr(node, "variable", None)))
            nodes.extend(following for following, _ in node.next_functions)
    return [float(id(parameter) not in left) for parameter in parameters]


def _distributed(measured: _Measured, worker: Worker) -> nn.Module:
    if worker.size == 1:
        return measured
    if any(map(is_lazy, measured.parameters())):
        what, fix = "several workers need a model whose parameters exist", "Make its cells with `input_size=`."
        raise ValueError(problem(what, got="parameters to be made", expected="a built model", fix=fix))
    return DistributedDataParallel(measured)


def _detached(leaf: Any) -> Any:
    return leaf.detach() if isinstance(leaf, Tensor) else leaf
