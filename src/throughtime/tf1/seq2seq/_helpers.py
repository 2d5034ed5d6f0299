"""Helpers: where the inputs of each step of a decoder come from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from throughtime import _pytree
from throughtime import tf1 as tf
from throughtime.tf1._namespace import exported
from throughtime.tf1.graph._dtypes import int32
from throughtime.tf1.graph._operation import Tensor
from throughtime.tf1.graph._shapes import TensorShape
from throughtime.tf1.ops._convert import convert_to_tensor
from throughtime.tf1.seq2seq._nodes import node, size_of, swapped


@exported("contrib.seq2seq.Helper")
class Helper:
    """Samples from the outputs of a step, and the inputs of the next one."""

    @property
    def batch_size(self) -> Any:
        """The number of sequences."""
        raise NotImplementedError("batch_size has not been implemented")

    @property
    def sample_ids_shape(self) -> Any:
        """The shape of a sample, without the batch."""
        raise NotImplementedError("sample_ids_shape has not been implemented")

    @property
    def sample_ids_dtype(self) -> Any:
        """The dtype of a sample."""
        raise NotImplementedError("sample_ids_dtype has not been implemented")

    def initialize(self, name: str | None = None) -> Any:
        """`(finished, inputs)` before the first step."""
        raise NotImplementedError

    def sample(self, time: Any, outputs: Any, state: Any, name: str | None = None) -> Any:
        """Samples from outputs."""
        raise NotImplementedError

    def next_inputs(self, time: Any, outputs: Any, state: Any, sample_ids: Any, name: str | None = None) -> Any:
        """`(finished, next_inputs, next_state)`."""
        raise NotImplementedError


@exported("contrib.seq2seq.CustomHelper")
class CustomHelper(Helper):
    """A helper of three functions."""

    def __init__(
        self,
        initialize_fn: Callable[[], Any],
        sample_fn: Callable[..., Any],
        next_inputs_fn: Callable[..., Any],
        sample_ids_shape: Any = None,
        sample_ids_dtype: Any = None,
    ):
        self._initialize_fn, self._sample_fn, self._next_inputs_fn = initialize_fn, sample_fn, next_inputs_fn
        self._batch_size: Any = None
        self._sample_ids_shape = TensorShape(sample_ids_shape or [])
        self._sample_ids_dtype = sample_ids_dtype or int32

    @property
    def batch_size(self) -> Any:
        """The number of sequences; known after `initialize`."""
        if self._batch_size is None:
            raise ValueError("batch_size accessed before initialize was called")
        return self._batch_size

    @property
    def sample_ids_shape(self) -> Any:
        """As given."""
        return self._sample_ids_shape

    @property
    def sample_ids_dtype(self) -> Any:
        """As given."""
        return self._sample_ids_dtype

    def initialize(self, name: str | None = None) -> Any:
        """What `initialize_fn` gives."""
        finished, inputs = self._initialize_fn()
        if self._batch_size is None:
            self._batch_size = size_of(convert_to_tensor(finished), 0)
        return finished, inputs

    def sample(self, time: Any, outputs: Any, state: Any, name: str | None = None) -> Any:
        """What `sample_fn` gives."""
        return self._sample_fn(time=time, outputs=outputs, state=state)

    def next_inputs(self, time: Any, outputs: Any, state: Any, sample_ids: Any, name: str | None = None) -> Any:
        """What `next_inputs_fn` gives."""
        return self._next_inputs_fn(time=time, outputs=outputs, state=state, sample_ids=sample_ids)


class _OfTokens(Helper):
    """A helper with one token for each sequence."""

    _batch_size: Any = None

    @property
    def batch_size(self) -> Any:
        """The number of sequences."""
        return self._batch_size

    @property
    def sample_ids_shape(self) -> Any:
        """One token."""
        return TensorShape([])

    @property
    def sample_ids_dtype(self) -> Any:
        """Tokens are int32."""
        return int32


def _row_or_zeros(rows: torch.Tensor, lengths: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
    """The inputs of a step; zeros when all sequences have ended, since the loop does not use them."""
    at = int(time)
    return torch.zeros_like(rows[0]) if bool((lengths <= at).all()) else rows[at]


@exported("contrib.seq2seq.TrainingHelper")
class TrainingHelper(_OfTokens):
    """Inputs of each step from a tensor: what the network should have said (teacher forcing)."""

    def __init__(self, inputs: Any, sequence_length: Any, time_major: bool = False, name: str | None = None):
        self._inputs = _pytree.map_leaves(lambda leaf: convert_to_tensor(leaf, name="inputs"), inputs)
        self._time_major = time_major
        self._rows = self._inputs if time_major else _pytree.map_leaves(swapped, self._inputs)
        self._sequence_length = convert_to_tensor(sequence_length, name="sequence_length")
        if self._sequence_length.shape.ndims != 1:
            raise ValueError(
                f"Expected sequence_length to be a vector, but received shape: {self._sequence_length.shape}; "
                "give one length for each sequence"
            )
        self._zero_inputs = _pytree.map_leaves(lambda leaf: tf.zeros_like(leaf[0]), self._rows)
        self._batch_size = size_of(self._sequence_length, 0)

    @property
    def inputs(self) -> Any:
        """As given."""
        return self._inputs

    @property
    def sequence_length(self) -> Tensor:
        """As given."""
        return self._sequence_length

    def _at(self, time: Any) -> Any:
        def read(rows: Tensor, zeros: Tensor) -> Tensor:
            return node("TensorArrayReadV3", _row_or_zeros, [rows, self._sequence_length, time], like=zeros)

        return _pytree.map_leaves(read, self._rows, self._zero_inputs)

    def initialize(self, name: str | None = None) -> Any:
        """The first inputs."""
        return tf.equal(self._sequence_length, 0), self._at(tf.constant(0))

    def sample(self, time: Any, outputs: Any, state: Any = None, name: str | None = None, **_: Any) -> Any:
        """The most probable token."""
        return tf.cast(tf.argmax(outputs, axis=-1), int32)

    def next_inputs(
        self, time: Any, outputs: Any, state: Any, sample_ids: Any = None, name: str | None = None, **_: Any
    ) -> Any:
        """The inputs of the next step, whatever was sampled."""
        following = time + 1
        return tf.greater_equal(following, tf.cast(self._sequence_length, int32)), self._at(following), state


def embedding_function(embedding: Any) -> Callable[[Any], Any]:
    """Tokens to inputs: a function as given, or a lookup in a table."""
    if callable(embedding):
        return embedding  # type: ignore[no-any-return]
    return lambda ids: tf.nn.embedding_lookup(embedding, ids)


@exported("contrib.seq2seq.GreedyEmbeddingHelper")
class GreedyEmbeddingHelper(_OfTokens):
    """The embedding of the most probable token is the next input."""

    def __init__(self, embedding: Any, start_tokens: Any, end_token: Any):
        self._embedding_fn = embedding_function(embedding)
        self._start_tokens = convert_to_tensor(start_tokens, int32, name="start_tokens")
        self._end_token = convert_to_tensor(end_token, int32, name="end_token")
        if self._start_tokens.shape.ndims != 1:
            raise ValueError(
                f"start_tokens must be a vector, got shape {self._start_tokens.shape}; give one a sequence"
            )
        if self._end_token.shape.ndims != 0:
            raise ValueError(f"end_token must be a scalar, got shape {self._end_token.shape}; give one number")
        self._batch_size = size_of(self._start_tokens, 0)
        self._start_inputs = self._embedding_fn(self._start_tokens)

    def initialize(self, name: str | None = None) -> Any:
        """The embeddings of the start tokens."""
        return tf.zeros_like(self._start_tokens, dtype="bool"), self._start_inputs

    def sample(self, time: Any, outputs: Any, state: Any, name: str | None = None) -> Any:
        """The most probable token."""
        _check_single(outputs)
        return tf.argmax(outputs, axis=-1, output_type=int32)

    def next_inputs(self, time: Any, outputs: Any, state: Any, sample_ids: Any, name: str | None = None) -> Any:
        """The embeddings of the samples; a sequence ends with the end token."""
        return tf.equal(sample_ids, self._end_token), self._embedding_fn(sample_ids), state


def _check_single(outputs: Any) -> None:
    if not isinstance(outputs, Tensor):
        raise TypeError(f"Expected outputs to be a single Tensor, got: {type(outputs)}; use an output_layer")


def draw_tokens(logits: Any, seed: Any) -> Tensor:
    """A random token for each row of logits."""
    drawn = tf.multinomial(logits, 1, seed=seed)
    tokens: Tensor = tf.cast(drawn[:, 0], int32)
    return tokens


@exported("contrib.seq2seq.SampleEmbeddingHelper")
class SampleEmbeddingHelper(GreedyEmbeddingHelper):
    """The embedding of a token that is drawn from the outputs is the next input."""

    def __init__(
        self, embedding: Any, start_tokens: Any, end_token: Any, softmax_temperature: Any = None, seed: Any = None
    ):
        super().__init__(embedding, start_tokens, end_token)
        self._softmax_temperature, self._seed = softmax_temperature, seed

    def sample(self, time: Any, outputs: Any, state: Any, name: str | None = None) -> Any:
        """A drawn token."""
        _check_single(outputs)
        logits = outputs if self._softmax_temperature is None else outputs / self._softmax_temperature
        return draw_tokens(logits, self._seed)


@exported("contrib.seq2seq.InferenceHelper")
class InferenceHelper(Helper):
    """Functions say what is sampled, when a sequence ends and what the next inputs are."""

    def __init__(
        self,
        sample_fn: Callable[[Any], Any],
        sample_shape: Any,
        sample_dtype: Any,
        start_inputs: Any,
        end_fn: Callable[[Any], Any],
        next_inputs_fn: Callable[[Any], Any] | None = None,
    ):
        self._sample_fn, self._end_fn, self._next_inputs_fn = sample_fn, end_fn, next_inputs_fn
        self._sample_shape, self._sample_dtype = TensorShape(sample_shape), sample_dtype
        self._start_inputs = convert_to_tensor(start_inputs, name="start_inputs")
        self._batch_size = size_of(self._start_inputs, 0)

    @property
    def batch_size(self) -> Any:
        """The number of sequences."""
        return self._batch_size

    @property
    def sample_ids_shape(self) -> Any:
        """As given."""
        return self._sample_shape

    @property
    def sample_ids_dtype(self) -> Any:
        """As given."""
        return self._sample_dtype

    def initialize(self, name: str | None = None) -> Any:
        """The first inputs."""
        kernel = lambda rows: torch.zeros(rows.shape[0], dtype=torch.bool, device=rows.device)  # noqa: E731
        return node("Tile", kernel, [self._start_inputs]), self._start_inputs

    def sample(self, time: Any, outputs: Any, state: Any, name: str | None = None) -> Any:
        """What `sample_fn` gives."""
        return self._sample_fn(outputs)

    def next_inputs(self, time: Any, outputs: Any, state: Any, sample_ids: Any, name: str | None = None) -> Any:
        """What the functions give for the samples."""
        inputs = sample_ids if self._next_inputs_fn is None else self._next_inputs_fn(sample_ids)
        return self._end_fn(sample_ids), inputs, state
