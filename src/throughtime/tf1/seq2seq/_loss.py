"""`sequence_loss`: the weighted cross-entropy of sequences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from throughtime import tf1 as tf
from throughtime.tf1._namespace import exported
from throughtime.tf1.graph._scopes import name_scope
from throughtime.tf1.ops._convert import convert_to_tensor


def _check(rank: int, what: str, tensor: Any, expected: str) -> None:
    if tensor.shape.ndims not in {None, rank}:
        raise ValueError(f"{what} must be a {expected} tensor, got shape {tensor.shape}; use tf.reshape or tf.stack")


@exported("contrib.seq2seq.sequence_loss")
def sequence_loss(
    logits: Any,
    targets: Any,
    weights: Any,
    average_across_timesteps: bool = True,
    average_across_batch: bool = True,
    sum_over_timesteps: bool = False,
    sum_over_batch: bool = False,
    softmax_loss_function: Callable[..., Any] | None = None,
    name: str | None = None,
) -> Any:
    """The cross-entropy of logits [batch, time, classes], averaged or summed over the axes that are asked for."""
    logits, targets, weights = (convert_to_tensor(one) for one in (logits, targets, weights))
    _check(3, "Logits", logits, "[batch_size x sequence_length x logits]")
    _check(2, "Targets", targets, "[batch_size x sequence_length]")
    _check(2, "Weights", weights, "[batch_size x sequence_length]")
    for average, total, what in (
        (average_across_timesteps, sum_over_timesteps, "timesteps"),
        (average_across_batch, sum_over_batch, "batch"),
    ):
        if average and total:
            raise ValueError(f"average_across_{what} and sum_over_{what} cannot be set to True at same time.")
    with name_scope(name, "sequence_loss"):
        losses = _losses(logits, targets, softmax_loss_function) * weights
        if average_across_timesteps and average_across_batch:
            return tf.div_no_nan(tf.reduce_sum(losses), tf.reduce_sum(weights))
        if sum_over_timesteps and sum_over_batch:
            return tf.div_no_nan(tf.reduce_sum(losses), _count(weights, None, losses.dtype))
        if average_across_timesteps or average_across_batch:
            axis = [0] if average_across_batch else [1]
            return tf.div_no_nan(tf.reduce_sum(losses, axis=axis), tf.reduce_sum(weights, axis=axis))
        if sum_over_timesteps or sum_over_batch:
            axis = [0] if sum_over_batch else [1]
            return tf.div_no_nan(tf.reduce_sum(losses, axis=axis), _count(weights, axis, losses.dtype))
        return losses


def _count(weights: Any, axis: Any, dtype: Any) -> Any:
    return tf.cast(tf.count_nonzero(weights, axis=axis), dtype)


def _losses(logits: Any, targets: Any, function: Callable[..., Any] | None) -> Any:
    if function is None:
        return tf.nn.sparse_softmax_cross_entropy_with_logits(labels=targets, logits=logits)
    classes = logits.shape.as_list()[2]
    flat = tf.reshape(logits, [-1, tf.shape(logits)[2] if classes is None else classes])
    return tf.reshape(function(labels=tf.reshape(targets, [-1]), logits=flat), tf.shape(targets))
