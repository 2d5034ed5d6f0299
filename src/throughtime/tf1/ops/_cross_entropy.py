"""Cross-entropies and other losses of `tf.nn`."""

from __future__ import annotations

from typing import Any

import torch

from throughtime.tf1._namespace import exported
from throughtime.tf1.ops._table import Static, Tensor, operation


def _dense(labels: Tensor, logits: Tensor, axis: int) -> Tensor:
    """`-sum(labels log_softmax(logits))`.

    The gradient by the logits is `softmax - labels` whatever the labels sum to, as TensorFlow's: the rest of the sum
    has no gradient by the logits.
    """
    labels, logits = torch.broadcast_tensors(labels, logits)
    normaliser = torch.logsumexp(logits, axis)
    rest = (labels.sum(axis) - 1) * normaliser.detach()
    return normaliser - (labels * logits).sum(axis) + rest


@operation(
    "nn.softmax_cross_entropy_with_logits_v2",
    op_name="softmax_cross_entropy_with_logits",
    spellings={"dim": "axis"},
    positional=("labels", "logits", "axis", "name", "dim"),
    same_dtype=("logits", "labels"),
)
def softmax_cross_entropy_with_logits_v2(labels: Tensor, logits: Tensor, axis: Static = -1) -> Tensor:
    """The cross-entropy of probabilities and logits, with gradients by both."""
    return _dense(labels, logits, int(axis))


@operation(
    "nn.softmax_cross_entropy_with_logits",
    op_name="softmax_cross_entropy_with_logits_sg",
    same_dtype=("logits", "labels"),
)
def _softmax_cross_entropy(labels: Tensor, logits: Tensor, axis: Static = -1) -> Tensor:
    """The cross-entropy of probabilities and logits, with a gradient by the logits."""
    return _dense(labels.detach(), logits, int(axis))


def _named(sentinel: Any, labels: Any, logits: Any) -> tuple[Any, Any]:
    """Labels and logits; by position, logits come first, as in TensorFlow 0.x."""
    if sentinel is not None:
        labels, logits = labels if logits is None else logits, sentinel
    if labels is None or logits is None:
        raise ValueError("Both labels and logits must be provided.")
    return labels, logits


def _stopped(labels: Any) -> Any:
    from throughtime.tf1._namespace import lookup  # noqa: PLC0415

    return lookup("stop_gradient")(labels)


@exported("nn.softmax_cross_entropy_with_logits")
def softmax_cross_entropy_with_logits(
    _sentinel: Any = None,
    labels: Any = None,
    logits: Any = None,
    dim: int = -1,
    name: str | None = None,
    axis: int | None = None,
) -> Any:
    """The cross-entropy of probabilities and logits, with a gradient by the logits."""
    given, scores = _named(_sentinel, labels, logits)
    return _softmax_cross_entropy(_stopped(given), scores, dim if axis is None else axis, name=name)


@operation("nn.sparse_softmax_cross_entropy_with_logits", op_name="SparseSoftmaxCrossEntropyWithLogits")
def _sparse(labels: Tensor, logits: Tensor) -> Tensor:
    """The cross-entropy of class numbers and logits."""
    if logits.shape[:-1] != labels.shape:
        wanted, got = tuple(logits.shape[:-1]), tuple(labels.shape)
        raise ValueError(f"labels need shape {wanted} for logits of shape {tuple(logits.shape)}, got {got}")
    chosen = torch.gather(logits, -1, labels.long().unsqueeze(-1)).squeeze(-1)
    return torch.logsumexp(logits, -1) - chosen


@exported("nn.sparse_softmax_cross_entropy_with_logits")
def sparse_softmax_cross_entropy_with_logits(
    _sentinel: Any = None, labels: Any = None, logits: Any = None, name: str | None = None
) -> Any:
    """The cross-entropy of class numbers and logits."""
    given, scores = _named(_sentinel, labels, logits)
    return _sparse(given, scores, name=name)


@operation("nn.sigmoid_cross_entropy_with_logits", op_name="logistic_loss", same_dtype=("logits", "labels"))
def _sigmoid(labels: Tensor, logits: Tensor) -> Tensor:
    """The cross-entropy of probabilities and logits of single events."""
    if labels.shape != logits.shape:
        raise ValueError(f"logits and labels must have the same shape ({tuple(logits.shape)} vs {tuple(labels.shape)})")
    return torch.relu(logits) - logits * labels + torch.log1p(torch.exp(-torch.abs(logits)))


@exported("nn.sigmoid_cross_entropy_with_logits")
def sigmoid_cross_entropy_with_logits(
    _sentinel: Any = None, labels: Any = None, logits: Any = None, name: str | None = None
) -> Any:
    """The cross-entropy of probabilities and logits of single events."""
    given, scores = _named(_sentinel, labels, logits)
    return _sigmoid(given, scores, name=name)


@operation(
    "nn.weighted_cross_entropy_with_logits",
    op_name="logistic_loss",
    spellings={"targets": "labels"},
    positional=("labels", "logits", "pos_weight", "name", "targets"),
    same_dtype=("logits", "labels", "pos_weight"),
)
def weighted_cross_entropy_with_logits(labels: Tensor, logits: Tensor, pos_weight: Tensor) -> Tensor:
    """The sigmoid cross-entropy with another weight for positive events."""
    weight = 1 + (pos_weight - 1) * labels
    return (1 - labels) * logits + weight * (torch.log1p(torch.exp(-torch.abs(logits))) + torch.relu(-logits))


@operation("nn.log_poisson_loss", op_name="log_poisson_loss", same_dtype=("log_input", "targets"))
def log_poisson_loss(targets: Tensor, log_input: Tensor, compute_full_loss: Static = False) -> Tensor:
    """The negative log-likelihood of a Poisson distribution, without the constant term unless it is asked for."""
    loss = torch.exp(log_input) - log_input * targets
    if not compute_full_loss:
        return loss
    constant = targets * torch.log(targets) - targets + 0.5 * torch.log(2 * torch.pi * targets)
    return loss + torch.where((targets >= 0) & (targets <= 1), torch.zeros_like(targets), constant)


@operation(
    "nn.ctc_loss",
    op_name="CTCLoss",
    dtypes=lambda **given: [given["logits"].dtype.base_dtype],
    shape_rule=lambda **given: [(given["logits"].shape.sizes or (None, None))[1:2]],
)
def _ctc(logits: Tensor, indices: Tensor, values: Tensor, lengths: Tensor, merge_repeated: Static = True) -> Tensor:
    """Connectionist temporal classification of logits `[time, batch, classes]`; the last class is the blank."""
    rows = [values[indices[:, 0] == row].long() for row in range(logits.shape[1])]
    return torch.nn.functional.ctc_loss(
        torch.log_softmax(logits, -1),
        torch.cat(rows),
        lengths.long(),
        torch.tensor([len(row) for row in rows]),
        blank=logits.shape[2] - 1,
        reduction="none",
    )


@exported("nn.ctc_loss")
def ctc_loss(
    labels: Any,
    inputs: Any = None,
    sequence_length: Any = None,
    preprocess_collapse_repeated: bool = False,
    ctc_merge_repeated: bool = True,
    ignore_longer_outputs_than_inputs: bool = False,
    time_major: bool = True,
    logits: Any = None,
) -> Any:
    """Connectionist temporal classification; `labels` is a `SparseTensor`."""
    if preprocess_collapse_repeated or not ctc_merge_repeated:
        raise NotImplementedError("tf.nn.ctc_loss: only preprocess_collapse_repeated=False and ctc_merge_repeated=True")
    from throughtime.tf1._namespace import lookup  # noqa: PLC0415

    scores = inputs if logits is None else logits
    scores = scores if time_major else lookup("transpose")(scores, [1, 0, 2])
    return _ctc(scores, labels.indices, labels.values, sequence_length)
