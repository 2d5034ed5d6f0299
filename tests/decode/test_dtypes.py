"""Layers that wait for their first call are of the dtype of what they see first; what does not fit is named."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from torch import nn

import throughtime as tt
from throughtime import decode

pytestmark = pytest.mark.covers("decoding")

B, T, S, U, V = 3, 4, 6, 5, 7
MECHANISMS = [
    decode.BahdanauAttention,
    decode.LuongAttention,
    decode.BahdanauMonotonicAttention,
    decode.LuongMonotonicAttention,
]
DTYPES = [torch.float16, torch.bfloat16, torch.float64]


def mechanism(kind: Any, dtype: torch.dtype, how: str) -> Any:
    """A mechanism that learns its dtype in one of four ways."""
    given = {"dtype": dtype} if "dtype" in how else {}
    memory = torch.randn(B, S, 8).to(dtype), [6, 2, 3]
    at_once = "at once" in how
    # True: with every weight of its own that it can have.
    attention = kind(U, *(memory if at_once else (None, None)), True, **given)
    if not at_once:
        attention.setup_memory(*memory)
    return attention


@pytest.mark.parametrize("how", ["at once", "at once, dtype", "later", "later, dtype"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", MECHANISMS)
def test_attention_is_of_the_dtype_of_its_memory(kind: Any, dtype: torch.dtype, how: str) -> None:
    cell = decode.AttentionWrapper(tt.BasicLSTMCell(U), mechanism(kind, dtype, how), attention_layer_size=U)
    helper = decode.TrainingHelper(torch.randn(B, T, 4).to(dtype), torch.tensor([4, 0, 2]))
    layer = decode.Dense(V, use_bias=True)
    decoder = decode.BasicDecoder(cell, helper, cell.zero_state(B, dtype), layer)
    outputs, _, _ = decode.dynamic_decode(decoder)
    assert outputs.rnn_output.dtype == dtype
    assert {weight.dtype for weight in (*cell.parameters(), *layer.parameters())} == {dtype}
    outputs.rnn_output.sum().backward()
    assert all(weight.grad is not None for weight in cell.parameters())


@pytest.mark.parametrize("dtype", DTYPES)
def test_steps_that_feed_themselves_too(dtype: torch.dtype) -> None:
    memory = decode.tile_batch(torch.randn(B, S, 8).to(dtype), 2)
    cell = decode.AttentionWrapper(tt.GRUCell(U), decode.BahdanauAttention(U, memory), attention_layer_size=U)
    table, start = torch.randn(V, 4).to(dtype), cell.zero_state(2 * B, dtype)
    decoder = decode.BeamSearchDecoder(cell, table, [1] * B, 0, start, 2, decode.Dense(V))
    outputs, _, _ = decode.dynamic_decode(decoder, maximum_iterations=3)
    assert outputs.beam_search_decoder_output.scores.dtype == dtype


@pytest.mark.parametrize("dtype", DTYPES)
def test_all_weights_at_once_are_of_the_dtype_of_the_memory(dtype: torch.dtype) -> None:
    attention = decode.LuongAttention(U, torch.randn(B, S, 8).to(dtype))
    cell = decode.AttentionWrapper(tt.BasicLSTMCell(U), attention, attention_layer_size=U, input_size=4)
    assert {weight.dtype for weight in cell.parameters()} == {dtype}


def test_what_was_said_comes_before_what_is_seen() -> None:
    layer = decode.Dense(V, use_bias=True).double()
    with pytest.raises(TypeError, match=r"another dtype than its kernel: got torch\.float32, expected torch\.float64"):
        layer(torch.ones(1, 2))
    held = decode.Dense(V, use_bias=True)
    bias = held.bias
    held(torch.ones(1, 2).bfloat16())
    assert held.bias is bias
    assert bias is not None
    assert bias.dtype == held.kernel.dtype == torch.bfloat16


def test_autocast_lowers_no_weight() -> None:
    layer, attention = decode.Dense(V), decode.BahdanauAttention(U, torch.randn(B, S, 8))
    cell = decode.AttentionWrapper(tt.BasicLSTMCell(U), attention, attention_layer_size=U)
    helper = decode.TrainingHelper(torch.randn(B, T, 4), [4, 1, 2])
    with torch.autocast("cpu", torch.bfloat16):
        layer(torch.ones(1, 2).bfloat16())
        decode.dynamic_decode(decode.BasicDecoder(cell, helper, cell.zero_state(B, torch.float32)))
    assert {weight.dtype for weight in (*cell.parameters(), *layer.parameters())} == {torch.float32}


def decoded(layer: nn.Module, dtype: torch.dtype, *, at_once: bool) -> None:
    cell = tt.GRUCell(U)
    helper: Any = decode.TrainingHelper(torch.randn(B, T, 4).to(dtype), [4, 1, 2])
    if not at_once:
        helper = decode.GreedyEmbeddingHelper(torch.randn(V, 4).to(dtype), [1] * B, 0)
    decode.dynamic_decode(decode.BasicDecoder(cell, helper, cell.zero_state(B, dtype), layer), maximum_iterations=2)


def test_layers_that_do_not_fit_are_named() -> None:
    half, memory = torch.bfloat16, torch.randn(B, S, 8).bfloat16()
    attention = decode.LuongAttention(U, memory)
    cell = decode.AttentionWrapper(tt.GRUCell(U), attention, U, dtype=torch.float32)
    clash = " another dtype than its kernel: got torch.bfloat16, expected torch.float32. Convert what it is given, "
    clash += "`.to(torch.float32)`, or `{}.to(torch.bfloat16)`."
    linear = (
        "the outputs of the cell have another dtype than `output_layer`: got torch.bfloat16, expected torch.float32."
    )
    said = [
        (
            lambda: decode.BahdanauAttention(U, memory, dtype=torch.float32),
            "the inputs of the memory layer of BahdanauAttention have" + clash.format("mechanism"),
        ),
        (
            lambda: cell(torch.zeros(B, 4, dtype=half), cell.zero_state(B, half)),
            "the inputs of the attention layer of AttentionWrapper have" + clash.format("cell"),
        ),
        *(
            (
                lambda at_once=at_once: decoded(nn.Linear(U, V), half, at_once=at_once),
                linear + " Convert one: `output_layer.to(torch.bfloat16)`",
            )
            for at_once in (True, False)
        ),
    ]
    for call, words in said:
        with pytest.raises(TypeError, match=re.escape(words)):
            call()
