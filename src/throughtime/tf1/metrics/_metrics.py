"""The measures of `tf.metrics`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from throughtime.tf1._namespace import export, exported
from throughtime.tf1.graph._dtypes import float64
from throughtime.tf1.losses._weighted import quotient
from throughtime.tf1.metrics._streaming import spread, streaming

_MEAN = {"total": (), "count": ()}


def _mean_of(
    values: Callable[..., Tensor], default: str, inputs: list[Any], weights: Any, name: Any, *collections: Any,
    last: Callable[[Tensor], Tensor] = lambda mean: mean,
) -> Any:  # fmt: skip
    """The mean of `values(*inputs)`, each with its weight; `last` is applied to the mean."""
    count = len(inputs)

    def increments(*given: Tensor) -> tuple[Tensor, Tensor]:
        found = values(*given[:count]).to(torch.float32)
        scale = spread(given[count] if len(given) > count else None, found)
        return (found * scale).sum(), scale.sum()

    def result(total: Tensor, number: Tensor) -> Tensor:
        return last(quotient(total, number))

    given = [*inputs, *([] if weights is None else [weights])]
    return streaming(name, default, _MEAN, given, increments, result, *collections)


@exported("metrics.mean", "contrib.metrics.streaming_mean")
def mean(
    values: Any, weights: Any = None, metrics_collections: Any = None, updates_collections: Any = None, name: Any = None
) -> Any:
    """The mean."""
    collections = (metrics_collections, updates_collections)
    return _mean_of(lambda values: values, "mean", [values], weights, name, *collections)


@exported("metrics.accuracy")
def accuracy(
    labels: Any, predictions: Any, weights: Any = None, metrics_collections: Any = None,
    updates_collections: Any = None, name: Any = None,
) -> Any:  # fmt: skip
    """How often predictions equal labels."""

    def is_right(labels: Tensor, predictions: Tensor) -> Tensor:
        if labels.ndim == predictions.ndim + 1:
            labels = labels.squeeze(-1)
        elif predictions.ndim == labels.ndim + 1:
            predictions = predictions.squeeze(-1)
        return predictions.to(labels.dtype) == labels

    collections = (metrics_collections, updates_collections)
    return _mean_of(is_right, "accuracy", [labels, predictions], weights, name, *collections)


def _error_metric(default: str, values: Callable[..., Tensor], last: Callable[[Tensor], Tensor] | None = None) -> Any:
    def metric(
        labels: Any, predictions: Any, weights: Any = None, metrics_collections: Any = None,
        updates_collections: Any = None, name: Any = None,
    ) -> Any:  # fmt: skip
        def as_floats(labels: Tensor, predictions: Tensor) -> Tensor:
            return values(labels.to(torch.float32), predictions.to(torch.float32))

        collections = (metrics_collections, updates_collections)
        extra = {} if last is None else {"last": last}
        return _mean_of(as_floats, default, [labels, predictions], weights, name, *collections, **extra)

    metric.__doc__ = f"The {default.replace('_', ' ')}."
    export(f"metrics.{default}", metric)
    return metric


mean_squared_error = _error_metric("mean_squared_error", lambda labels, found: (labels - found).square())
mean_absolute_error = _error_metric("mean_absolute_error", lambda labels, found: (labels - found).abs())
root_mean_squared_error = _error_metric(
    "root_mean_squared_error", lambda labels, found: (labels - found).square(), torch.sqrt
)


@exported("metrics.mean_relative_error")
def mean_relative_error(
    labels: Any, predictions: Any, normalizer: Any, weights: Any = None, metrics_collections: Any = None,
    updates_collections: Any = None, name: Any = None,
) -> Any:  # fmt: skip
    """The mean of `|labels - predictions| / normalizer`."""

    def values(labels: Tensor, predictions: Tensor, normalizer: Tensor) -> Tensor:
        return quotient((labels - predictions).abs(), normalizer)

    inputs = [labels, predictions, normalizer]
    return _mean_of(values, "mean_relative_error", inputs, weights, name, metrics_collections, updates_collections)


@exported("metrics.percentage_below")
def percentage_below(
    values: Any, threshold: float, weights: Any = None, metrics_collections: Any = None,
    updates_collections: Any = None, name: Any = None,
) -> Any:  # fmt: skip
    """How often values are below a threshold."""

    def kernel(values: Tensor) -> Tensor:
        return values < threshold

    return _mean_of(
        kernel, "percentage_below_threshold", [values], weights, name, metrics_collections, updates_collections
    )


@exported("metrics.mean_tensor")
def mean_tensor(
    values: Any, weights: Any = None, metrics_collections: Any = None, updates_collections: Any = None, name: Any = None
) -> Any:
    """The mean of each element over batches."""
    shape = values.shape.as_list()

    def increments(values: Tensor, *weights: Tensor) -> tuple[Tensor, Tensor]:
        scale = spread(weights[0] if weights else None, values)
        return values * scale, scale

    sizes = {"total_tensor": shape, "count_tensor": shape}
    inputs = [values] if weights is None else [values, weights]
    return streaming(name, "mean", sizes, inputs, increments, quotient, metrics_collections, updates_collections)


@exported("metrics.mean_iou")
def mean_iou(
    labels: Any, predictions: Any, num_classes: int, weights: Any = None, metrics_collections: Any = None,
    updates_collections: Any = None, name: Any = None,
) -> Any:  # fmt: skip
    """The mean over classes of intersection over union."""

    def increments(labels: Tensor, predictions: Tensor, *weights: Tensor) -> tuple[Tensor]:
        cells = labels.reshape(-1).long() * num_classes + predictions.reshape(-1).long()
        scale = weights[0].reshape(-1).to(torch.float32) if weights else torch.ones(len(cells))
        return (torch.bincount(cells, scale, num_classes**2).reshape(num_classes, num_classes),)

    def result(matrix: Tensor) -> Tensor:
        both, either = matrix.diagonal(), matrix.sum(0) + matrix.sum(1) - matrix.diagonal()
        valid = (either != 0).sum().to(torch.float32)
        return quotient(quotient(both, either).sum().to(torch.float32), valid)

    sizes = {"total_confusion_matrix": (num_classes, num_classes)}
    inputs = [labels, predictions, *([] if weights is None else [weights])]
    collections = (metrics_collections, updates_collections)
    return streaming(name, "mean_iou", sizes, inputs, increments, result, *collections, lambda matrix: matrix, float64)


@exported("metrics.mean_per_class_accuracy")
def mean_per_class_accuracy(
    labels: Any, predictions: Any, num_classes: int, weights: Any = None, metrics_collections: Any = None,
    updates_collections: Any = None, name: Any = None,
) -> Any:  # fmt: skip
    """The mean over classes of how often a class is found."""

    def increments(labels: Tensor, predictions: Tensor, *weights: Tensor) -> tuple[Tensor, Tensor]:
        flat = labels.reshape(-1).long()
        scale = weights[0].reshape(-1).to(torch.float32) if weights else torch.ones(len(flat))
        right = (predictions.reshape(-1).long() == flat).to(torch.float32)
        return torch.bincount(flat, scale, num_classes), torch.bincount(flat, scale * right, num_classes)

    def by_class(total: Tensor, count: Tensor) -> Tensor:
        return quotient(count, total)

    def result(total: Tensor, count: Tensor) -> Tensor:
        return by_class(total, count).mean()

    sizes = {"total": (num_classes,), "count": (num_classes,)}
    inputs = [labels, predictions, *([] if weights is None else [weights])]
    collections = (metrics_collections, updates_collections)
    return streaming(name, "mean_accuracy", sizes, inputs, increments, result, *collections, by_class)
