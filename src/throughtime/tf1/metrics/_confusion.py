"""Measures of binary predictions: counts, precision, recall, and the area under a curve."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from throughtime.tf1._namespace import export, exported
from throughtime.tf1.losses._weighted import quotient
from throughtime.tf1.metrics._streaming import spread, streaming

_KINDS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "true_positives": lambda labels, found: labels & found,
    "false_positives": lambda labels, found: ~labels & found,
    "true_negatives": lambda labels, found: ~labels & ~found,
    "false_negatives": lambda labels, found: labels & ~found,
}


def _count(kind: str, labels: Any, predictions: Any, weights: Any, name: Any, *collections: Any) -> Any:
    """How often predictions and labels agree or differ in one of four ways."""

    def increments(labels: Tensor, predictions: Tensor, *weights: Tensor) -> tuple[Tensor]:
        found = _KINDS[kind](labels.bool(), predictions.bool()).to(torch.float32)
        return ((found * spread(weights[0] if weights else None, found)).sum(),)

    inputs = [labels, predictions, *([] if weights is None else [weights])]
    return streaming(name, kind, {"count": ()}, inputs, increments, lambda count: count, *collections)


def _counter(kind: str) -> Callable[..., Any]:
    def count(
        labels: Any, predictions: Any, weights: Any = None, metrics_collections: Any = None,
        updates_collections: Any = None, name: Any = None,
    ) -> Any:  # fmt: skip
        return _count(kind, labels, predictions, weights, name, metrics_collections, updates_collections)

    count.__doc__ = f"The number of {kind.replace('_', ' ')}."
    return count


for _kind in _KINDS:
    export(f"metrics.{_kind}", _counter(_kind))


def _ratio(default: str, wrong: str) -> Callable[..., Any]:
    """A measure `true_positives / (true_positives + wrong)`."""

    def metric(
        labels: Any, predictions: Any, weights: Any = None, metrics_collections: Any = None,
        updates_collections: Any = None, name: Any = None,
    ) -> Any:  # fmt: skip
        sizes: dict[str, Any] = {"true_positives/count": (), f"{wrong}/count": ()}

        def increments(labels: Tensor, predictions: Tensor, *weights: Tensor) -> list[Tensor]:
            truth, found = labels.bool(), predictions.bool()
            kinds = [_KINDS[kind](truth, found).to(torch.float32) for kind in ("true_positives", wrong)]
            scale = spread(weights[0] if weights else None, kinds[0])
            return [(kind * scale).sum() for kind in kinds]

        def result(right: Tensor, wrong: Tensor) -> Tensor:
            return quotient(right, right + wrong)

        inputs = [labels, predictions, *([] if weights is None else [weights])]
        return streaming(name, default, sizes, inputs, increments, result, metrics_collections, updates_collections)

    metric.__doc__ = f"The {default}."
    export(f"metrics.{default}", metric)
    return metric


precision = _ratio("precision", "false_positives")
recall = _ratio("recall", "false_negatives")
_NEAR_ZERO = 1e-7


def _thresholds(count: int) -> Tensor:
    inner = [(place + 1) / (count - 1) for place in range(count - 2)]
    return torch.tensor([-_NEAR_ZERO, *inner, 1.0 + _NEAR_ZERO])


@exported("metrics.auc")
def auc(
    labels: Any, predictions: Any, weights: Any = None, num_thresholds: int = 200, metrics_collections: Any = None,
    updates_collections: Any = None, curve: str = "ROC", name: Any = None, summation_method: str = "trapezoidal",
    thresholds: Any = None,
) -> Any:  # fmt: skip
    """The area under the ROC or precision-recall curve, as a sum of trapezoids between thresholds."""
    if curve not in {"ROC", "PR"}:
        raise ValueError(f"curve must be either ROC or PR, {curve} unknown")
    if summation_method != "trapezoidal" or thresholds is not None:
        raise NotImplementedError(
            "metrics.auc: got another summation or thresholds, expected the defaults. Leave them out."
        )
    limits = _thresholds(num_thresholds)

    def increments(labels: Tensor, predictions: Tensor, *weights: Tensor) -> list[Tensor]:
        truth = labels.reshape(-1).bool()[None]
        found = predictions.reshape(-1)[None] > limits.to(predictions.device)[:, None]
        scale = spread(weights[0] if weights else None, predictions).reshape(-1)
        return [(_KINDS[kind](truth, found).to(torch.float32) * scale).sum(1) for kind in _ORDER]

    def result(tp: Tensor, fn: Tensor, tn: Tensor, fp: Tensor) -> Tensor:
        epsilon = 1e-6
        recalls = (tp + epsilon) / (tp + fn + epsilon)
        if curve == "ROC":
            x, y = fp / (fp + tn + epsilon), recalls
        else:
            x, y = recalls, (tp + epsilon) / (tp + fp + epsilon)
        return ((x[:-1] - x[1:]) * (y[:-1] + y[1:]) / 2).sum()

    sizes = dict.fromkeys(_ORDER, (num_thresholds,))
    inputs = [labels, predictions, *([] if weights is None else [weights])]
    return streaming(name, "auc", sizes, inputs, increments, result, metrics_collections, updates_collections)


_ORDER = ("true_positives", "false_negatives", "true_negatives", "false_positives")


@exported("metrics.recall_at_k", "metrics.sparse_recall_at_k")
def recall_at_k(
    labels: Any, predictions: Any, k: int, class_id: Any = None, weights: Any = None, metrics_collections: Any = None,
    updates_collections: Any = None, name: Any = None,
) -> Any:  # fmt: skip
    """How many of the labels are among the `k` highest scores."""
    return _at_k(
        f"recall_at_{k}",
        "false_negatives",
        labels,
        predictions,
        k,
        class_id,
        weights,
        name,
        metrics_collections,
        updates_collections,
    )


@exported("metrics.precision_at_k", "metrics.sparse_precision_at_k")
def precision_at_k(
    labels: Any, predictions: Any, k: int, class_id: Any = None, weights: Any = None, metrics_collections: Any = None,
    updates_collections: Any = None, name: Any = None,
) -> Any:  # fmt: skip
    """How many of the `k` highest scores are labels."""
    return _at_k(
        f"precision_at_{k}",
        "false_positives",
        labels,
        predictions,
        k,
        class_id,
        weights,
        name,
        metrics_collections,
        updates_collections,
    )


def _at_k(
    default: str,
    wrong: str,
    labels: Any,
    predictions: Any,
    k: int,
    class_id: Any,
    weights: Any,
    name: Any,
    *collections: Any,
) -> Any:
    if class_id is not None or weights is not None:
        raise NotImplementedError(f"{default}: got class_id or weights, expected none. Leave them out.")

    def increments(labels: Tensor, predictions: Tensor) -> tuple[Tensor, Tensor]:
        wanted = labels.reshape(-1, labels.shape[-1] if labels.ndim == predictions.ndim else 1)
        best = predictions.reshape(-1, predictions.shape[-1]).topk(k).indices
        hits = (wanted[:, :, None] == best[:, None, :]).any(1 if wrong == "false_positives" else 2)
        right = hits.to(torch.float32).sum()
        return right, hits.numel() - right

    def result(right: Tensor, wrong: Tensor) -> Tensor:
        return quotient(right, right + wrong)

    sizes: dict[str, Any] = {"true_positive_at_k": (), f"{wrong.removesuffix('s')}_at_k": ()}
    return streaming(name, default, sizes, [labels, predictions], increments, result, *collections)
