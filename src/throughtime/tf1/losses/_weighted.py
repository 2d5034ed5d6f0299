"""Weights, reductions and the collection of losses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from throughtime._errors import problem
from throughtime.tf1._namespace import exported, lookup
from throughtime.tf1.graph._collections import GraphKeys
from throughtime.tf1.graph._dtypes import float32
from throughtime.tf1.graph._graph import create_op, get_default_graph
from throughtime.tf1.graph._operation import Tensor
from throughtime.tf1.graph._scopes import name_scope
from throughtime.tf1.ops._convert import constant, convert_to_tensor


@exported("losses.Reduction")
class Reduction:
    """How a loss of many elements becomes one number."""

    NONE = "none"
    SUM = "weighted_sum"
    SUM_OVER_BATCH_SIZE = "weighted_sum_over_batch_size"
    MEAN = "weighted_mean"
    SUM_BY_NONZERO_WEIGHTS = "weighted_sum_by_nonzero_weights"
    SUM_OVER_NONZERO_WEIGHTS = SUM_BY_NONZERO_WEIGHTS

    @classmethod
    def all(cls) -> tuple[str, ...]:
        """All reductions."""
        sums = (cls.SUM_OVER_BATCH_SIZE, cls.SUM_OVER_NONZERO_WEIGHTS, cls.SUM_BY_NONZERO_WEIGHTS)
        return cls.NONE, cls.SUM, cls.MEAN, *sums

    @classmethod
    def validate(cls, key: str) -> None:
        """Raise unless it is one."""
        if key not in cls.all():
            raise ValueError(f"Invalid ReductionKey {key}.")


@exported("losses.compute_weighted_loss", "contrib.losses.compute_weighted_loss")
def compute_weighted_loss(
    losses: Any,
    weights: Any = 1.0,
    scope: str | None = None,
    loss_collection: Any = GraphKeys.LOSSES,
    reduction: str = Reduction.SUM_BY_NONZERO_WEIGHTS,
) -> Tensor:
    """Losses times weights, reduced to one number and added to a collection."""
    Reduction.validate(reduction)
    with name_scope(scope, "weighted_loss"):
        values, scale = convert_to_tensor(losses), convert_to_tensor(weights)
        _check_weights(values, scale)
        dtype = values.dtype if values.dtype.is_floating else float32
        shape = values.shape if reduction == Reduction.NONE else ()

        def kernel(values: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
            return _reduced(values.to(torch.float32), weights.to(torch.float32), reduction).to(dtype.torch_dtype)

        made = create_op("WeightedLoss", kernel, [values, scale], name="value", dtypes=[dtype], shapes=[shape])
    return collected(made.outputs[0], loss_collection)


def _check_weights(values: Tensor, weights: Tensor) -> None:
    """Weights are a scalar, or have every axis of the losses, of their size or of one."""
    theirs, ours = weights.shape.sizes, values.shape.sizes
    if not theirs or ours is None:
        return
    fits = len(theirs) == len(ours) and all(a in {b, 1, None} or b is None for a, b in zip(theirs, ours, strict=True))
    if not fits:
        fix = "Add axes of size one to the weights."
        what = "weights can not be broadcast to values"
        raise ValueError(problem(what, got=f"weights {weights.shape}", expected=f"a scalar or {values.shape}", fix=fix))


def _reduced(values: torch.Tensor, weights: torch.Tensor, reduction: str) -> torch.Tensor:
    weighted = values * weights
    if reduction == Reduction.NONE:
        return weighted
    total = weighted.sum()
    if reduction == Reduction.SUM:
        return total
    spread = weights.expand_as(weighted)
    counts: dict[str, Callable[[], torch.Tensor]] = {
        Reduction.MEAN: spread.sum,
        Reduction.SUM_OVER_BATCH_SIZE: lambda: total.new_tensor(float(weighted.numel())),
        Reduction.SUM_BY_NONZERO_WEIGHTS: lambda: (spread != 0).sum().to(total.dtype),
    }
    return quotient(total, counts[reduction]())


def quotient(total: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
    """A division in which anything divided by zero is zero, and so is its gradient."""
    is_zero = count == 0
    return torch.where(is_zero, torch.zeros_like(total), total / torch.where(is_zero, torch.ones_like(count), count))


def collected(loss: Tensor, loss_collection: Any) -> Tensor:
    """The loss, once it is in a collection."""
    if loss_collection:
        get_default_graph().add_to_collection(loss_collection, loss)
    return loss


@exported("losses.add_loss", "contrib.losses.add_loss")
def add_loss(loss: Any, loss_collection: Any = GraphKeys.LOSSES) -> None:
    """Add a loss of the program's own to the collection."""
    collected(loss, loss_collection)


@exported("losses.get_losses", "contrib.losses.get_losses")
def get_losses(scope: str | None = None, loss_collection: Any = GraphKeys.LOSSES) -> list[Any]:
    """The losses of a collection."""
    return get_default_graph().get_collection(loss_collection, scope)


@exported("losses.get_regularization_losses", "contrib.losses.get_regularization_losses")
def get_regularization_losses(scope: str | None = None) -> list[Any]:
    """The losses of regularisers."""
    return get_default_graph().get_collection(GraphKeys.REGULARIZATION_LOSSES, scope)


@exported("losses.get_regularization_loss")
def get_regularization_loss(scope: str | None = None, name: str = "total_regularization_loss") -> Tensor:
    """The sum of the losses of regularisers."""
    found = get_regularization_losses(scope)
    return lookup("add_n")(found, name=name) if found else constant(0.0)


@exported("losses.get_total_loss", "contrib.losses.get_total_loss")
def get_total_loss(
    add_regularization_losses: bool = True, name: str = "total_loss", scope: str | None = None
) -> Tensor:
    """The sum of all losses of the collection, and of regularisers."""
    found = get_losses(scope)
    if add_regularization_losses:
        found += get_regularization_losses(scope)
    return lookup("add_n")(found, name=name)  # type: ignore[no-any-return]
