"""Layer by layer, direction by direction."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout
from torch.nn.utils.rnn import PackedSequence

from throughtime._pytree import Nest
from throughtime.nn._cells import STEPS, TorchCell, named_weights
from throughtime.unroll._functional import functional_unroll, number_of, tensor_spec
from throughtime.unroll._options import UnrollOptions
from throughtime.unroll.torch_compile._routing import call_operator

State = tuple[Tensor, ...]
"""The leaves of the state of one layer and direction: `(h, c)` of an LSTM, `(h,)` of the others."""


def through_layers(
    module: nn.RNNBase, weights: list[Tensor], inputs: Any, states: list[State] | None, lengths: Any
) -> tuple[Any, list[State]]:
    """The outputs of the last layer and the final states of all, for inputs with a batch axis or packed ones."""
    step, directions = STEPS[module.mode], 2 if module.bidirectional else 1
    size = len(weights) // (module.num_layers * directions)
    final: list[State] = []
    for layer in range(module.num_layers):
        outputs = []
        for reverse in (False, True)[:directions]:
            place = len(final)
            given = None if states is None else states[place]
            own = weights[place * size : (place + 1) * size]
            there, state = _unroll(
                step, own, inputs, lengths, given, time_major=not module.batch_first, reverse=reverse
            )
            outputs.append(there)
            final.append(state)
        inputs = outputs[0] if directions == 1 else _joined(outputs)
        if module.training and module.dropout and layer < module.num_layers - 1:
            inputs = _dropped(inputs, module.dropout)
    return inputs, final


def _unroll(
    step: type[TorchCell],
    weights: list[Tensor],
    inputs: Any,
    lengths: Any,
    given: State | None,
    *,
    time_major: bool,
    reverse: bool,
) -> tuple[Any, State]:
    if torch.compiler.is_dynamo_compiling():
        return _as_operator(step, weights, inputs, lengths, given, time_major=time_major, reverse=reverse)
    dtype = (inputs.data if isinstance(inputs, PackedSequence) else inputs).dtype
    start: Nest = given if given is None or len(given) > 1 else given[0]
    outputs, state = functional_unroll(step, weights, inputs, lengths, start, _options(dtype, time_major, reverse))
    return outputs, state if isinstance(state, tuple) else (state,)


@functools.lru_cache(maxsize=64)
def _options(dtype: torch.dtype, time_major: bool, reverse: bool) -> UnrollOptions:
    """One object for equal options: small calls are frequent."""
    return UnrollOptions(dtype, time_major, reverse)


def _as_operator(
    step: type[TorchCell],
    weights: list[Tensor],
    inputs: Tensor,
    lengths: Tensor | None,
    given: State | None,
    *,
    time_major: bool,
    reverse: bool,
) -> tuple[Tensor, State]:
    """The same while torch.compile looks on: one operator."""
    named = named_weights(weights)
    if given is None:
        batch = inputs.shape[1 if time_major else 0]
        widths = [named["weight_hh"].shape[1]]
        if step is STEPS["LSTM"]:
            widths.append(named["weight_hh"].shape[0] // 4)
        given = tuple(inputs.new_zeros(batch, width) for width in widths)
    number = number_of(step, tuple(tensor_spec(weight) for weight in weights))
    options = UnrollOptions(inputs.dtype, time_major, reverse)
    outputs, *rest = call_operator(number, named, inputs, list(given), lengths, options)
    return outputs, tuple(rest[: len(given)])


def _joined(outputs: list[Any]) -> Any:
    """The outputs of both directions, side by side."""
    first = outputs[0]
    if isinstance(first, PackedSequence):
        return first._replace(data=torch.cat([part.data for part in outputs], -1))
    return torch.cat(outputs, -1)


def _dropped(inputs: Any, probability: float) -> Any:
    if isinstance(inputs, PackedSequence):
        return inputs._replace(data=dropout(inputs.data, probability))
    return dropout(inputs, probability)
