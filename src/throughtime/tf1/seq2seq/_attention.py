"""Attention mechanisms: how much a query looks at each place of a memory."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from throughtime import _pytree
from throughtime import tf1 as tf
from throughtime.decode.attention import _monotonic
from throughtime.tf1._namespace import exported
from throughtime.tf1.graph._dtypes import as_dtype, float32
from throughtime.tf1.graph._operation import Tensor
from throughtime.tf1.graph._variable_scope import get_variable, variable_scope
from throughtime.tf1.layers._core_layers import Dense
from throughtime.tf1.ops._convert import convert_to_tensor
from throughtime.tf1.seq2seq._nodes import node, size_of, zeros


@exported("contrib.seq2seq.AttentionMechanism")
class AttentionMechanism:
    """`alignments, next_state = mechanism(query, state)`."""

    @property
    def alignments_size(self) -> Any:
        """The number of places."""
        raise NotImplementedError

    @property
    def state_size(self) -> Any:
        """The size of the mechanism's state."""
        raise NotImplementedError


@exported("contrib.seq2seq.hardmax")
def hardmax(logits: Any, name: str | None = None) -> Tensor:
    """1 at the largest element of each row, 0 elsewhere."""
    tensor = convert_to_tensor(logits)
    return tf.one_hot(tf.argmax(tensor, -1), size_of(tensor, -1), dtype=tensor.dtype)  # type: ignore[no-any-return]


@exported("contrib.seq2seq.safe_cumprod")
def safe_cumprod(x: Any, axis: int = 0, exclusive: bool = False, reverse: bool = False, name: Any = None) -> Tensor:
    """The cumulative product of numbers in [0, 1], by logarithms."""
    return node("Exp", lambda value: _monotonic.safe_cumprod(value, axis, exclusive, reverse), [x])


@exported("contrib.seq2seq.monotonic_attention")
def monotonic_attention(p_choose_i: Any, previous_attention: Any, mode: str) -> Tensor:
    """Where attention moves if each place is chosen with a probability."""
    _monotonic.check_mode(mode)
    chosen = convert_to_tensor(p_choose_i, name="p_choose_i")
    kernel = lambda p, previous: _monotonic.monotonic_attention(p, previous, mode)  # noqa: E731
    return node("Mul", kernel, [chosen, previous_attention], like=chosen)


def _past_the_end(values: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """True [batch, time] for places past the lengths."""
    return torch.arange(values.shape[1], device=values.device) >= lengths.unsqueeze(1)


def _masked_memory(values: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    past = _past_the_end(values, lengths)
    return values * (~past).to(values.dtype).reshape([*past.shape, *[1] * (values.ndim - 2)])


class _Mechanism(AttentionMechanism):
    """Keys and values of a memory, and probabilities of scores."""

    def __init__(
        self,
        query_layer: Any,
        memory: Any,
        probability_fn: Callable[[Any, Any], Any],
        memory_sequence_length: Any = None,
        memory_layer: Any = None,
        check_inner_dims_defined: bool = True,
        score_mask_value: Any = None,
        custom_key_value_fn: Callable[..., Any] | None = None,
        name: str | None = None,
    ):
        if not callable(probability_fn):
            raise TypeError(f"probability_fn must be callable, saw type: {type(probability_fn).__name__}")
        self._query_layer, self._memory_layer = query_layer, memory_layer
        self.dtype = getattr(memory_layer, "dtype", None) or float32
        self._lengths = memory_sequence_length
        if memory_sequence_length is not None:
            self._lengths = convert_to_tensor(memory_sequence_length, name="memory_sequence_length")
        self._mask_value = -math.inf if score_mask_value is None else score_mask_value
        self._of_scores = probability_fn
        self._values = _pytree.map_leaves(lambda leaf: self._prepared(leaf, check_inner_dims_defined), memory)
        self._keys = self._values if memory_layer is None else memory_layer(self._values)
        if custom_key_value_fn is not None:
            self._keys, self._values = custom_key_value_fn(self._keys, self._values)
        self._batch_size, self._alignments_size = size_of(self._keys, 0), size_of(self._keys, 1)

    def _prepared(self, memory: Any, check: bool) -> Tensor:
        tensor = convert_to_tensor(memory, name="memory")
        if check and not tensor.shape[2:].is_fully_defined():
            raise ValueError(
                f"Expected memory {tensor.name} to have fully defined inner dims, but saw shape: {tensor.shape}; "
                "use set_shape"
            )
        return tensor if self._lengths is None else node("Mul", _masked_memory, [tensor, self._lengths], like=tensor)

    def _probability_fn(self, score: Any, state: Any) -> Any:
        """Probabilities of scores, in which places past the ends of memories are masked."""
        if self._lengths is not None:
            value = self._mask_value
            kernel = lambda one, lengths: one.masked_fill(_past_the_end(one, lengths), value)  # noqa: E731
            score = node("Select", kernel, [score, self._lengths], like=score)
        return self._of_scores(score, state)

    @property
    def memory_layer(self) -> Any:
        """The layer that makes keys of values."""
        return self._memory_layer

    @property
    def query_layer(self) -> Any:
        """The layer on queries."""
        return self._query_layer

    @property
    def values(self) -> Any:
        """The memory, zero past the lengths."""
        return self._values

    @property
    def keys(self) -> Any:
        """What queries are compared with."""
        return self._keys

    @property
    def batch_size(self) -> Any:
        """The number of memories."""
        return self._batch_size

    @property
    def alignments_size(self) -> Any:
        """The number of places."""
        return self._alignments_size

    @property
    def state_size(self) -> Any:
        """The state is the alignments."""
        return self._alignments_size

    def initial_alignments(self, batch_size: Any, dtype: Any) -> Any:
        """Zeros."""
        return zeros(batch_size, self._alignments_size, dtype)

    def initial_state(self, batch_size: Any, dtype: Any) -> Any:
        """The initial alignments."""
        return self.initial_alignments(batch_size, dtype)


exported(
    "contrib.seq2seq._BaseAttentionMechanism", "contrib.seq2seq.python.ops.attention_wrapper._BaseAttentionMechanism"
)(_Mechanism)


def _dense(units: int, name: str, dtype: Any) -> Dense:
    return Dense(units, name=name, use_bias=False, dtype=dtype)


def _bahdanau(query: torch.Tensor, keys: torch.Tensor, v: torch.Tensor, *normal: torch.Tensor) -> torch.Tensor:
    joined = keys + query.unsqueeze(1)
    if normal:
        scale, bias = normal
        joined, v = joined + bias, scale * v * torch.rsqrt((v * v).sum())
    return torch.tanh(joined) @ v


def _bahdanau_score(units: int, normalize: bool, query: Tensor, keys: Tensor) -> Tensor:
    """The additive score, with variables of the open scope."""
    inputs: list[Any] = [query, keys, get_variable("attention_v", [units], dtype=query.dtype)]
    if normalize:
        first = tf.constant_initializer(math.sqrt(1.0 / units))
        inputs.append(get_variable("attention_g", [], dtype=query.dtype, initializer=first))
        inputs.append(get_variable("attention_b", [units], dtype=query.dtype, initializer=tf.zeros_initializer()))
    return node("Sum", _bahdanau, inputs)


def _luong_score(scale: bool, query: Tensor, keys: Tensor) -> Tensor:
    """The multiplicative score, with variables of the open scope."""
    depth, units = query.shape.as_list()[-1], keys.shape.as_list()[-1]
    if depth != units:
        raise ValueError(
            "Incompatible or unknown inner dimensions between query and keys. "
            f"Query ({query}) has units: {depth}. Keys ({keys}) have units: {units}. "
            f"Perhaps you need to set num_units to the query's dimension ({depth})?"
        )
    score = node("Squeeze", lambda one, all_keys: torch.matmul(all_keys, one.unsqueeze(2)).squeeze(2), [query, keys])
    if not scale:
        return score
    factor = get_variable("attention_g", [], dtype=query.dtype, initializer=tf.ones_initializer())
    return node("Mul", torch.mul, [factor, score])


@exported("contrib.seq2seq.BahdanauAttention")
class BahdanauAttention(_Mechanism):
    """Additive attention (Bahdanau et al. 2015)."""

    _scope = "bahdanau_attention"

    def __init__(
        self,
        num_units: int,
        memory: Any,
        memory_sequence_length: Any = None,
        normalize: bool = False,
        probability_fn: Any = None,
        score_mask_value: Any = None,
        dtype: Any = None,
        custom_key_value_fn: Any = None,
        name: str = "BahdanauAttention",
    ):
        self._num_units, self._normalize = num_units, normalize
        kind, function = as_dtype(dtype or float32), probability_fn or tf.nn.softmax
        super().__init__(
            _dense(num_units, "query_layer", kind),
            memory,
            lambda score, _: function(score),
            memory_sequence_length,
            _dense(num_units, "memory_layer", kind),
            True,
            score_mask_value,
            custom_key_value_fn,
            name,
        )

    def __call__(self, query: Any, state: Any) -> tuple[Any, Any]:
        """Alignments of a query; they are the next state."""
        with variable_scope(None, self._scope):
            score = _bahdanau_score(self._num_units, self._normalize, self._query_layer(query), self._keys)
        alignments = self._probability_fn(score, state)
        return alignments, alignments


@exported("contrib.seq2seq.LuongAttention")
class LuongAttention(_Mechanism):
    """Multiplicative attention (Luong et al. 2015)."""

    def __init__(
        self,
        num_units: int,
        memory: Any,
        memory_sequence_length: Any = None,
        scale: bool = False,
        probability_fn: Any = None,
        score_mask_value: Any = None,
        dtype: Any = None,
        custom_key_value_fn: Any = None,
        name: str = "LuongAttention",
    ):
        self._num_units, self._scale = num_units, scale
        function = probability_fn or tf.nn.softmax
        super().__init__(
            None,
            memory,
            lambda score, _: function(score),
            memory_sequence_length,
            _dense(num_units, "memory_layer", as_dtype(dtype or float32)),
            True,
            score_mask_value,
            custom_key_value_fn,
            name,
        )

    def __call__(self, query: Any, state: Any) -> tuple[Any, Any]:
        """Alignments of a query; they are the next state."""
        with variable_scope(None, "luong_attention"):
            score = _luong_score(self._scale, query, self._keys)
        alignments = self._probability_fn(score, state)
        return alignments, alignments


def _monotonic_probability(score: Any, previous: Any, noise: float, mode: str, seed: Any) -> Tensor:
    if noise > 0:
        score = score + noise * tf.random_normal(tf.shape(score), dtype=score.dtype, seed=seed)
    chosen = tf.cast(score > 0, score.dtype) if mode == "hard" else tf.sigmoid(score)
    return monotonic_attention(chosen, previous, mode)


def _first_place(alignments: torch.Tensor) -> torch.Tensor:
    first = torch.zeros_like(alignments)
    first[:, 0] = 1
    return first


class _MonotonicMechanism(_Mechanism):
    """Attention that starts at the first place and moves forward."""

    def initial_alignments(self, batch_size: Any, dtype: Any) -> Any:
        """All attention at the first place."""
        return node("OneHot", _first_place, [zeros(batch_size, self._alignments_size, dtype)])

    def _biased(self, score: Any, start: Any) -> Any:
        bias = get_variable("attention_score_bias", [], dtype=score.dtype, initializer=tf.constant_initializer(start))
        return score + bias


@exported("contrib.seq2seq.BahdanauMonotonicAttention")
class BahdanauMonotonicAttention(_MonotonicMechanism):
    """Monotonic attention (Raffel et al. 2017) with the additive score."""

    def __init__(
        self,
        num_units: int,
        memory: Any,
        memory_sequence_length: Any = None,
        normalize: bool = False,
        score_mask_value: Any = None,
        sigmoid_noise: float = 0.0,
        sigmoid_noise_seed: Any = None,
        score_bias_init: float = 0.0,
        mode: str = "parallel",
        dtype: Any = None,
        name: str = "BahdanauMonotonicAttention",
    ):
        self._num_units, self._normalize, self._score_bias_init = num_units, normalize, score_bias_init
        kind = as_dtype(dtype or float32)
        super().__init__(
            _dense(num_units, "query_layer", kind),
            memory,
            lambda score, state: _monotonic_probability(score, state, sigmoid_noise, mode, sigmoid_noise_seed),
            memory_sequence_length,
            _dense(num_units, "memory_layer", kind),
            score_mask_value=score_mask_value,
            name=name,
        )

    def __call__(self, query: Any, state: Any) -> tuple[Any, Any]:
        """Alignments of a query; they are the next state."""
        with variable_scope(None, "bahdanau_monotonic_attention"):
            score = _bahdanau_score(self._num_units, self._normalize, self._query_layer(query), self._keys)
            score = self._biased(score, self._score_bias_init)
        alignments = self._probability_fn(score, state)
        return alignments, alignments


@exported("contrib.seq2seq.LuongMonotonicAttention")
class LuongMonotonicAttention(_MonotonicMechanism):
    """Monotonic attention (Raffel et al. 2017) with the multiplicative score."""

    def __init__(
        self,
        num_units: int,
        memory: Any,
        memory_sequence_length: Any = None,
        scale: bool = False,
        score_mask_value: Any = None,
        sigmoid_noise: float = 0.0,
        sigmoid_noise_seed: Any = None,
        score_bias_init: float = 0.0,
        mode: str = "parallel",
        dtype: Any = None,
        name: str = "LuongMonotonicAttention",
    ):
        self._num_units, self._scale, self._score_bias_init = num_units, scale, score_bias_init
        super().__init__(
            None,
            memory,
            lambda score, state: _monotonic_probability(score, state, sigmoid_noise, mode, sigmoid_noise_seed),
            memory_sequence_length,
            _dense(num_units, "memory_layer", as_dtype(dtype or float32)),
            score_mask_value=score_mask_value,
            name=name,
        )

    def __call__(self, query: Any, state: Any) -> tuple[Any, Any]:
        """Alignments of a query; they are the next state."""
        with variable_scope(None, "luong_monotonic_attention"):
            score = self._biased(_luong_score(self._scale, query, self._keys), self._score_bias_init)
        alignments = self._probability_fn(score, state)
        return alignments, alignments
