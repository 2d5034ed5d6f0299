"""Attention mechanisms: how much each place of a memory has to do with a query."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from throughtime._errors import (
    InvalidArgumentError,
    check_callable,
    check_dtype,
    check_flag,
    check_name,
    check_number,
    check_positive_int,
    problem,
    shape_of,
    type_name,
)
from throughtime._tensors import is_lazy
from throughtime.cells._base import snake_case
from throughtime.cells._parameters import glorot_uniform
from throughtime.decode._dense import Dense
from throughtime.decode._graph_break import beside_graphs
from throughtime.decode.attention._memory import Memory, check_memory

KeyValueFn = Callable[["AttentionMechanism", Tensor, Tensor], tuple[Tensor, Tensor]]


class AttentionMechanism(nn.Module):
    """What every mechanism has: layers for queries and memory, a score for each place, and probabilities of them.

    A mechanism owns its parameters; the memory is another one for every batch: give it to the constructor, as in
    TensorFlow, or to `setup_memory`. With `memory_size`, the features of a memory to come, parameters are made at
    once. To write a mechanism, inherit and define `score(query, keys)`.

    >>> import torch, throughtime as tt
    >>> class Nearest(tt.decode.AttentionMechanism):
    ...     def score(self, query, keys):
    ...         return -(keys - query.unsqueeze(1)).square().sum(2)
    >>> nearest = Nearest(2, torch.tensor([[[0.0, 0.0], [9.0, 9.0]]]))
    >>> alignments, state = nearest(torch.tensor([[1.0, 0.0]]), nearest.initial_state(1, torch.float32))
    >>> alignments.round().tolist()
    [[1.0, 0.0]]
    """

    memory_layer: Dense | None
    query_layer: Dense | None
    # The memory of the moment decides nothing about a step: that has the memory of its rows in the state.
    unwatched = frozenset({"_memory", "name"})

    def __init__(
        self,
        num_units: int,
        memory: Any = None,
        memory_sequence_length: Any = None,
        *,
        query_layer: bool = False,
        memory_layer: bool = False,
        probability_fn: Callable[[Tensor], Tensor] | None = None,
        score_mask_value: float | None = None,
        dtype: torch.dtype | None = None,
        custom_key_value_fn: KeyValueFn | None = None,
        name: str | None = None,
        memory_size: int | None = None,
    ) -> None:
        super().__init__()
        self.num_units = check_positive_int("num_units", num_units)
        self.name = snake_case(check_name("name", name) or type(self).__name__)
        for argument, function in (("probability_fn", probability_fn), ("custom_key_value_fn", custom_key_value_fn)):
            if function is not None:
                check_callable(argument, function, expected="a function", fix=f"Pass {argument}=function, or None.")
        self.probability_fn = probability_fn
        self.custom_key_value_fn = custom_key_value_fn
        self.score_mask_value = (
            float("-inf") if score_mask_value is None else float(check_number("score_mask_value", score_mask_value))
        )
        if dtype is None and isinstance(memory, Tensor) and memory.is_floating_point():
            dtype = memory.dtype
        self.dtype = torch.get_default_dtype() if dtype is None else check_dtype("dtype", dtype)
        # Without a dtype, and without a memory that has one, layers wait for the first memory.
        layers = (("memory", memory_layer, memory_size), ("query", query_layer, None))
        for role, wanted, size in layers:
            layer = None
            if check_flag(f"{role}_layer", wanted):
                layer = Dense(self.num_units, dtype=dtype, input_size=size)
                layer.named(f"the {role} layer of {type(self).__name__}", "mechanism")
            setattr(self, f"{role}_layer", layer)
        self._memory: Memory | None = None
        if memory is not None:
            self.setup_memory(memory, memory_sequence_length)
        elif memory_sequence_length is not None:
            fix = "Pass `memory` as well, or give both to `setup_memory`."
            what = "`memory_sequence_length` has no memory to belong to"
            raise ValueError(problem(what, got="lengths alone", expected="`memory`", fix=fix))

    @beside_graphs
    def setup_memory(self, memory: Any, memory_sequence_length: Any = None) -> Memory:
        """Attend to `memory` [B, S, D] from now on; past `memory_sequence_length` [B] it is neither seen nor read."""
        values, mask = check_memory(memory, memory_sequence_length)
        keys = values if self.memory_layer is None else self._keyed(self.memory_layer, values)
        if self.custom_key_value_fn is not None:
            keys, values = self.custom_key_value_fn(self, keys, values)
        self._memory = Memory(keys, values, mask)
        return self._memory

    def _keyed(self, layer: Dense, values: Tensor) -> Tensor:
        """`values` through the memory layer; if that is made by this call, the rest of the weights is of its dtype."""
        first = is_lazy(layer.kernel)
        keys: Tensor = layer(values)
        if first and layer.kernel.dtype != self.dtype:
            self.dtype = layer.kernel.dtype
            for parameter in self._parameters.values():
                if parameter is not None:
                    # In place, as `.to()` does it: an optimiser may have it already.
                    parameter.data = parameter.data.to(self.dtype)
        return keys

    @property
    def memory(self) -> Memory:
        """What is attended to."""
        if self._memory is None:
            fix = "Call `setup_memory(memory, memory_sequence_length)` with the encoder's outputs first."
            what = f"{type(self).__name__} has no memory yet"
            raise ValueError(problem(what, got="nothing to attend to", expected="a memory [B, S, D]", fix=fix))
        return self._memory

    @property
    def keys(self) -> Tensor:
        """What queries are compared with, [B, S, units]."""
        return self.memory.keys

    @property
    def values(self) -> Tensor:
        """What is read, [B, S, D]."""
        return self.memory.values

    @property
    def batch_size(self) -> int:
        """B."""
        return self.memory.keys.shape[0]

    @property
    def alignments_size(self) -> int:
        """S, the number of places."""
        return self.memory.keys.shape[1]

    @property
    def depth(self) -> int:
        """D, the features of what is read; known from the memory, or from the layer that takes it."""
        if self._memory is None and self.memory_layer is not None and not is_lazy(self.memory_layer.kernel):
            return self.memory_layer.kernel.shape[0]
        return self.memory.values.shape[2]

    @property
    def state_size(self) -> int:
        """The size of what is carried from step to step: the alignments."""
        return self.alignments_size

    def initial_alignments(self, batch_size: int, dtype: torch.dtype) -> Tensor:
        """The alignments before the first step: zeros [B, S]."""
        return torch.zeros(batch_size, self.alignments_size, dtype=dtype, device=self.keys.device)

    def initial_state(self, batch_size: int, dtype: torch.dtype) -> Tensor:
        """What is carried into the first step: the initial alignments."""
        return self.initial_alignments(batch_size, dtype)

    def build(self, query_size: int) -> None:
        """Make what depends on the width of the queries."""
        if self.query_layer is not None:
            self.query_layer.build(query_size, self.dtype)

    def score(self, query: Tensor, keys: Tensor) -> Tensor:
        """How well `query` [B, units] fits each of `keys` [B, S, units]: [B, S]."""
        raise NotImplementedError(f"{type(self).__name__} must define score(query, keys) -> [B, S]")

    def probabilities(self, score: Tensor, state: Any) -> Tensor:
        """Scores as alignments, given what was carried here from the step before."""
        return torch.softmax(score, 1) if self.probability_fn is None else self.probability_fn(score)

    def read(self, alignments: Tensor, values: Tensor) -> Tensor:
        """`values` [B, S, D] weighted by `alignments` [B, S]: [B, D]."""
        return torch.bmm(alignments.unsqueeze(1), values).squeeze(1)

    def forward(self, query: Tensor, state: Any, memory: Memory | None = None) -> tuple[Tensor, Any]:
        """`(alignments, next_state)`, both [B, S], for `query` [B, Q]; without `memory`, with that of the moment."""
        keys, _, mask = self.memory if memory is None else memory
        self.check_query(query, keys)
        if self.query_layer is not None:
            query = self.query_layer(query)
        score = self.score(query, keys)
        score = torch.where(mask, score, score.new_full((), self.score_mask_value))
        alignments = self.probabilities(score, state)
        return alignments, alignments

    def check_query(self, query: Any, keys: Tensor) -> None:
        """Raise unless there is one query for each row of the memory."""
        if not isinstance(query, Tensor) or query.ndim != 2:
            fix = "Pass the output of a cell."
            raise ValueError(problem("`query` must be a matrix", got=type_name(query), expected="[B, Q]", fix=fix))
        if query.shape[0] != keys.shape[0]:
            raise InvalidArgumentError(batch_mismatch(query.shape[0], keys.shape[0]))

    def __getstate__(self) -> dict[str, Any]:
        # The memory of a batch hangs in a graph of gradients, which can be neither copied nor pickled.
        state: dict[str, Any] = super().__getstate__()  # type: ignore[no-untyped-call]
        return {**state, "_memory": None}


def batch_mismatch(batch_size: int, memory_size: int) -> str:
    """The message for a state or a query that does not belong to the memory."""
    return problem(
        "the memory has another batch size",
        got=f"{memory_size} rows of memory for {batch_size} rows",
        expected="one row of memory for each",
        fix="Set up the memory of this batch; for beam search, pass it through `tile_batch(memory, beam_width)` first.",
    )


class BahdanauAttention(AttentionMechanism):
    """Additive attention (Bahdanau et al. 2015): `score = v · tanh(key + W query)`.

    With `normalize=True`, weight-normalised (Salimans and Kingma 2016): `g v / |v| · tanh(key + W query + b)`.

    >>> import torch, throughtime as tt
    >>> attention = tt.decode.BahdanauAttention(4, torch.randn(2, 6, 3), memory_sequence_length=[6, 2])
    >>> alignments, _ = attention(torch.randn(2, 5), attention.initial_state(2, torch.float32))
    >>> alignments.shape, alignments[1, 2:].tolist()
    (torch.Size([2, 6]), [0.0, 0.0, 0.0, 0.0])
    """

    def __init__(
        self,
        num_units: int,
        memory: Any = None,
        memory_sequence_length: Any = None,
        normalize: bool = False,
        probability_fn: Callable[[Tensor], Tensor] | None = None,
        score_mask_value: float | None = None,
        dtype: torch.dtype | None = None,
        custom_key_value_fn: KeyValueFn | None = None,
        name: str | None = "BahdanauAttention",
        *,
        memory_size: int | None = None,
    ) -> None:
        super().__init__(
            num_units,
            memory,
            memory_sequence_length,
            query_layer=True,
            memory_layer=True,
            probability_fn=probability_fn,
            score_mask_value=score_mask_value,
            dtype=dtype,
            custom_key_value_fn=custom_key_value_fn,
            name=name,
            memory_size=memory_size,
        )
        self.normalize = check_flag("normalize", normalize)
        with torch.inference_mode(False):
            self.attention_v = nn.Parameter(torch.empty(self.num_units, dtype=self.dtype))
            glorot_uniform(self.attention_v)
            if self.normalize:
                self.attention_g = nn.Parameter(torch.tensor(self.num_units**-0.5, dtype=self.dtype))
                self.attention_b = nn.Parameter(torch.zeros(self.num_units, dtype=self.dtype))

    def score(self, query: Tensor, keys: Tensor) -> Tensor:
        """How well `query` [B, units] fits each of `keys` [B, S, units]: [B, S]."""
        v = self.attention_v
        if self.normalize:
            v, query = self.attention_g * v / v.norm(), query + self.attention_b
        return (torch.tanh(keys + query.unsqueeze(1)) * v).sum(2)


class LuongAttention(AttentionMechanism):
    """Multiplicative attention (Luong et al. 2015): `score = key · query`, times `attention_g` with `scale=True`.

    A query has as many features as a key: `num_units` is the output size of the cell that asks.

    >>> import torch, throughtime as tt
    >>> attention = tt.decode.LuongAttention(4, torch.randn(2, 6, 3), memory_sequence_length=[6, 2])
    >>> alignments, _ = attention(torch.randn(2, 4), attention.initial_state(2, torch.float32))
    >>> alignments.sum(1).round().tolist()
    [1.0, 1.0]
    """

    def __init__(
        self,
        num_units: int,
        memory: Any = None,
        memory_sequence_length: Any = None,
        scale: bool = False,
        probability_fn: Callable[[Tensor], Tensor] | None = None,
        score_mask_value: float | None = None,
        dtype: torch.dtype | None = None,
        custom_key_value_fn: KeyValueFn | None = None,
        name: str | None = "LuongAttention",
        *,
        memory_size: int | None = None,
    ) -> None:
        super().__init__(
            num_units,
            memory,
            memory_sequence_length,
            memory_layer=True,
            probability_fn=probability_fn,
            score_mask_value=score_mask_value,
            dtype=dtype,
            custom_key_value_fn=custom_key_value_fn,
            name=name,
            memory_size=memory_size,
        )
        self.scale = check_flag("scale", scale)
        if self.scale:
            with torch.inference_mode(False):
                self.attention_g = nn.Parameter(torch.ones((), dtype=self.dtype))

    def score(self, query: Tensor, keys: Tensor) -> Tensor:
        """How well `query` [B, units] fits each of `keys` [B, S, units]: [B, S]."""
        if query.shape[1] != keys.shape[2]:
            what = "Incompatible or unknown inner dimensions between query and keys"
            fix = "Make `num_units` the output size of the cell, or use BahdanauAttention, which projects the query."
            expected = f"a query [B, {keys.shape[2]}]"
            raise ValueError(problem(what, got=shape_of(query), expected=expected, fix=fix))
        score = torch.bmm(keys, query.unsqueeze(2)).squeeze(2)
        return self.attention_g * score if self.scale else score
