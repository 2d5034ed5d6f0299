"""The losses: each is a function of labels and predictions, element by element, then weighted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from throughtime.tf1._namespace import exported, lookup
from throughtime.tf1.graph._collections import GraphKeys
from throughtime.tf1.graph._dtypes import float32
from throughtime.tf1.graph._graph import create_op
from throughtime.tf1.graph._scopes import name_scope
from throughtime.tf1.losses._weighted import Reduction, collected, compute_weighted_loss, quotient
from throughtime.tf1.ops._convert import convert_to_tensor

_MEAN = Reduction.SUM_BY_NONZERO_WEIGHTS
Kernel = Callable[[Tensor, Tensor], Tensor]


def _weighted(
    kernel: Kernel, default: str, labels: Any, predictions: Any, weights: Any, scope: Any, collection: Any, how: str
) -> Any:
    """The weighted loss `kernel(labels, predictions)`, both as floats and of one shape."""
    if labels is None or predictions is None:
        raise ValueError("labels and predictions must not be None.")
    with name_scope(scope, default) as place:
        found = [convert_to_tensor(each) for each in (labels, predictions)]
        found[1].shape.assert_is_compatible_with(found[0].shape)
        dtype = found[1].dtype if found[1].dtype.is_floating else float32

        def cast(labels: Tensor, predictions: Tensor) -> Tensor:
            return kernel(labels.to(dtype.torch_dtype), predictions.to(dtype.torch_dtype))

        losses = create_op(default, cast, found, name="loss").outputs[0]
        return compute_weighted_loss(losses, weights, place, collection, how)


@exported("losses.absolute_difference", "contrib.losses.absolute_difference")
def absolute_difference(
    labels: Any, predictions: Any, weights: Any = 1.0, scope: Any = None, loss_collection: Any = GraphKeys.LOSSES,
    reduction: str = _MEAN,
) -> Any:  # fmt: skip
    """`|predictions - labels|`."""

    def kernel(labels: Tensor, predictions: Tensor) -> Tensor:
        return (predictions - labels).abs()

    return _weighted(kernel, "absolute_difference", labels, predictions, weights, scope, loss_collection, reduction)


@exported("losses.mean_squared_error", "contrib.losses.mean_squared_error")
def mean_squared_error(
    labels: Any, predictions: Any, weights: Any = 1.0, scope: Any = None, loss_collection: Any = GraphKeys.LOSSES,
    reduction: str = _MEAN,
) -> Any:  # fmt: skip
    """`(predictions - labels)^2`."""

    def kernel(labels: Tensor, predictions: Tensor) -> Tensor:
        return (predictions - labels).square()

    return _weighted(kernel, "mean_squared_error", labels, predictions, weights, scope, loss_collection, reduction)


@exported("losses.huber_loss")
def huber_loss(
    labels: Any, predictions: Any, weights: Any = 1.0, delta: float = 1.0, scope: Any = None,
    loss_collection: Any = GraphKeys.LOSSES, reduction: str = _MEAN,
) -> Any:  # fmt: skip
    """Squares of small differences, magnitudes of large ones."""

    def kernel(labels: Tensor, predictions: Tensor) -> Tensor:
        error = (predictions - labels).abs()
        near = error.clamp_max(delta)
        return 0.5 * near.square() + delta * (error - near)

    return _weighted(kernel, "huber_loss", labels, predictions, weights, scope, loss_collection, reduction)


@exported("losses.log_loss", "contrib.losses.log_loss")
def log_loss(
    labels: Any, predictions: Any, weights: Any = 1.0, epsilon: float = 1e-7, scope: Any = None,
    loss_collection: Any = GraphKeys.LOSSES, reduction: str = _MEAN,
) -> Any:  # fmt: skip
    """Cross entropy of probabilities."""

    def kernel(labels: Tensor, predictions: Tensor) -> Tensor:
        return -labels * torch.log(predictions + epsilon) - (1 - labels) * torch.log(1 - predictions + epsilon)

    return _weighted(kernel, "log_loss", labels, predictions, weights, scope, loss_collection, reduction)


@exported("losses.hinge_loss", "contrib.losses.hinge_loss")
def hinge_loss(
    labels: Any, logits: Any, weights: Any = 1.0, scope: Any = None, loss_collection: Any = GraphKeys.LOSSES,
    reduction: str = _MEAN,
) -> Any:  # fmt: skip
    """`max(0, 1 - label * logit)` with labels of 0 and 1 as -1 and 1."""

    def kernel(labels: Tensor, logits: Tensor) -> Tensor:
        return torch.relu(1 - (2 * labels - 1) * logits)

    return _weighted(kernel, "hinge_loss", labels, logits, weights, scope, loss_collection, reduction)


@exported("losses.cosine_distance", "contrib.losses.cosine_distance")
def cosine_distance(
    labels: Any, predictions: Any, axis: Any = None, weights: Any = 1.0, scope: Any = None,
    loss_collection: Any = GraphKeys.LOSSES, reduction: str = _MEAN, dim: Any = None,
) -> Any:  # fmt: skip
    """`1 - labels . predictions` of unit vectors."""
    place = dim if axis is None else axis
    if place is None:
        raise ValueError("You must specify 'axis'.")

    def kernel(labels: Tensor, predictions: Tensor) -> Tensor:
        return 1 - (predictions * labels).sum(place, keepdim=True)

    return _weighted(kernel, "cosine_distance_loss", labels, predictions, weights, scope, loss_collection, reduction)


@exported("losses.mean_pairwise_squared_error", "contrib.losses.mean_pairwise_squared_error")
def mean_pairwise_squared_error(
    labels: Any, predictions: Any, weights: Any = 1.0, scope: Any = None, loss_collection: Any = GraphKeys.LOSSES
) -> Any:
    """Squares of differences between differences, over all pairs of elements of each example, summed."""
    with name_scope(scope, "mean_pairwise_squared_error"):
        inputs = [convert_to_tensor(each) for each in (labels, predictions, weights)]
        inputs[1].shape.assert_is_compatible_with(inputs[0].shape)
        loss = create_op("mean_pairwise_squared_error", _pairwise, inputs, name="value").outputs[0]
    return collected(loss, loss_collection)


def _pairwise(labels: Tensor, predictions: Tensor, weights: Tensor) -> Tensor:
    differences = predictions.to(torch.float32) - labels.to(torch.float32)
    over = list(range(1, differences.ndim))
    present = (weights.to(torch.float32).expand_as(differences) != 0).sum(over, keepdim=True).to(torch.float32)
    others = (present - 1).clamp_min(0)
    squares, total = differences.square().sum(over, keepdim=True), differences.sum(over, keepdim=True)
    pairs = 2 * quotient(squares, others) - 2 * quotient(total.square(), present * others)
    return (pairs * weights.to(torch.float32)).sum()


@exported("losses.sigmoid_cross_entropy")
def sigmoid_cross_entropy(
    multi_class_labels: Any, logits: Any, weights: Any = 1.0, label_smoothing: float = 0, scope: Any = None,
    loss_collection: Any = GraphKeys.LOSSES, reduction: str = _MEAN,
) -> Any:  # fmt: skip
    """Cross entropy of each logit with its label."""

    def kernel(labels: Tensor, logits: Tensor) -> Tensor:
        smooth = labels * (1 - label_smoothing) + 0.5 * label_smoothing if label_smoothing > 0 else labels
        return functional.binary_cross_entropy_with_logits(logits, smooth, reduction="none")

    return _weighted(
        kernel, "sigmoid_cross_entropy_loss", multi_class_labels, logits, weights, scope, loss_collection, reduction
    )


@exported("losses.softmax_cross_entropy")
def softmax_cross_entropy(
    onehot_labels: Any, logits: Any, weights: Any = 1.0, label_smoothing: float = 0, scope: Any = None,
    loss_collection: Any = GraphKeys.LOSSES, reduction: str = _MEAN,
) -> Any:  # fmt: skip
    """Cross entropy of a softmax with probabilities."""

    def kernel(labels: Tensor, logits: Tensor) -> Tensor:
        if label_smoothing > 0:
            labels = labels * (1 - label_smoothing) + label_smoothing / labels.shape[-1]
        return -(labels * torch.log_softmax(logits, -1)).sum(-1)

    return _weighted(
        kernel, "softmax_cross_entropy_loss", lookup("stop_gradient")(onehot_labels), logits, weights, scope,
        loss_collection, reduction,
    )  # fmt: skip


@exported("losses.sparse_softmax_cross_entropy")
def sparse_softmax_cross_entropy(
    labels: Any, logits: Any, weights: Any = 1.0, scope: Any = None, loss_collection: Any = GraphKeys.LOSSES,
    reduction: str = _MEAN,
) -> Any:  # fmt: skip
    """Cross entropy of a softmax with the number of a class."""
    with name_scope(scope, "sparse_softmax_cross_entropy_loss") as place:
        classes, scores = convert_to_tensor(labels), convert_to_tensor(logits)
        if classes.shape.ndims is not None and classes.shape.ndims == scores.shape.ndims:
            classes = lookup("squeeze")(classes, [-1])
        losses = lookup("nn.sparse_softmax_cross_entropy_with_logits")(labels=classes, logits=scores)
        scale = convert_to_tensor(weights)
        if scale.shape.ndims and scale.shape.ndims == (losses.shape.ndims or 0) + 1:
            scale = lookup("squeeze")(scale, [-1])
        return compute_weighted_loss(losses, scale, place, loss_collection, reduction)
