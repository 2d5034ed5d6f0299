"""Scheduled sampling: some inputs of a training decoder come from its own outputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from throughtime import tf1 as tf
from throughtime.tf1._namespace import exported
from throughtime.tf1.graph._dtypes import int32
from throughtime.tf1.graph._operation import Tensor
from throughtime.tf1.graph._shapes import TensorShape
from throughtime.tf1.ops._convert import convert_to_tensor
from throughtime.tf1.seq2seq._helpers import TrainingHelper, _row_or_zeros, draw_tokens, embedding_function
from throughtime.tf1.seq2seq._nodes import node, swapped, unless


def _probability(value: Any) -> Tensor:
    probability = convert_to_tensor(value, name="sampling_probability")
    if probability.shape.ndims not in {0, 1}:
        raise ValueError(
            f"sampling_probability must be either a scalar or a vector. saw shape: {probability.shape}; "
            "give one for all sequences or one for each"
        )
    return probability


def _chosen(probability: Tensor, like: Tensor, seed: Any) -> Tensor:
    """For each sequence whether it takes its own output."""
    drawn = tf.random_uniform(tf.shape(like), seed=seed, dtype=probability.dtype)
    return node("Less", torch.lt, [drawn, probability])


@exported("contrib.seq2seq.ScheduledEmbeddingTrainingHelper")
class ScheduledEmbeddingTrainingHelper(TrainingHelper):
    """With a probability, the embedding of a sampled token is the next input."""

    def __init__(
        self,
        inputs: Any,
        sequence_length: Any,
        embedding: Any,
        sampling_probability: Any,
        time_major: bool = False,
        seed: Any = None,
        scheduling_seed: Any = None,
        name: str | None = None,
    ):
        self._embedding_fn = embedding_function(embedding)
        self._sampling_probability = _probability(sampling_probability)
        self._seed, self._scheduling_seed = seed, scheduling_seed
        super().__init__(inputs, sequence_length, time_major, name)

    def sample(self, time: Any, outputs: Any, state: Any = None, name: str | None = None, **_: Any) -> Any:
        """A drawn token, or -1 where the given inputs are used."""
        tokens = draw_tokens(outputs, self._seed)
        chosen = _chosen(self._sampling_probability, self._sequence_length, self._scheduling_seed)
        return tf.where(chosen, tokens, tf.zeros_like(tokens) - 1)

    def next_inputs(
        self, time: Any, outputs: Any, state: Any, sample_ids: Any = None, name: str | None = None, **_: Any
    ) -> Any:
        """Embeddings of the tokens that were drawn, given inputs else."""
        finished, given, state = super().next_inputs(time, outputs, state)
        own = self._embedding_fn(tf.maximum(sample_ids, 0))
        return finished, unless(tf.logical_or(tf.less(sample_ids, 0), tf.reduce_all(finished)), given, own), state


@exported("contrib.seq2seq.ScheduledOutputTrainingHelper")
class ScheduledOutputTrainingHelper(TrainingHelper):
    """With a probability, the output itself is the next input."""

    def __init__(
        self,
        inputs: Any,
        sequence_length: Any,
        sampling_probability: Any,
        time_major: bool = False,
        seed: Any = None,
        next_inputs_fn: Callable[[Any], Any] | None = None,
        auxiliary_inputs: Any = None,
        name: str | None = None,
    ):
        self._sampling_probability = _probability(sampling_probability)
        self._seed, self._next_inputs_fn = seed, next_inputs_fn
        self._auxiliary: Tensor | None = None
        if auxiliary_inputs is not None:
            auxiliary = convert_to_tensor(auxiliary_inputs, name="auxiliary_inputs")
            inputs = tf.concat((inputs, auxiliary), -1)
            self._auxiliary = auxiliary if time_major else swapped(auxiliary)
        super().__init__(inputs, sequence_length, time_major, name)

    @property
    def sample_ids_shape(self) -> Any:
        """One choice."""
        return TensorShape([])

    def sample(self, time: Any, outputs: Any, state: Any = None, name: str | None = None, **_: Any) -> Any:
        """1 where the output is used."""
        return tf.cast(_chosen(self._sampling_probability, self._sequence_length, self._seed), int32)

    def _own(self, time: Any, outputs: Any) -> Any:
        own = outputs if self._next_inputs_fn is None else self._next_inputs_fn(outputs)
        if self._auxiliary is None:
            return own
        zeros = tf.zeros_like(self._auxiliary[0])
        lengths = [self._auxiliary, self._sequence_length, time + 1]
        return tf.concat((own, node("TensorArrayReadV3", _row_or_zeros, lengths, like=zeros)), -1)

    def next_inputs(
        self, time: Any, outputs: Any, state: Any, sample_ids: Any = None, name: str | None = None, **_: Any
    ) -> Any:
        """Outputs of the sequences that were chosen, given inputs else."""
        finished, given, state = super().next_inputs(time, outputs, state)
        stays = tf.logical_or(tf.equal(sample_ids, 0), tf.reduce_all(finished))
        return finished, unless(stays, given, self._own(time, outputs)), state
