"""Junk in every argument of everything public in `tt.decode`: taken, or refused in the house form."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest
import torch
from _error_rows import junk, refusal

import throughtime as tt
from throughtime import decode

pytestmark = pytest.mark.covers("errors")

B, S, D, U, V = 2, 3, 4, 5, 6
EYE, MEMORY, WIDE = torch.eye(V), torch.randn(B, S, D), torch.randn(B, S, V)
IDS, NO_ROW_HAS_ENDED = torch.zeros(2, 1, 2, dtype=torch.int64), torch.zeros(B, dtype=torch.bool)
TOKENS = {"embedding": EYE, "start_tokens": [1, 1], "end_token": 0}


def greedy() -> decode.Helper:
    return decode.GreedyEmbeddingHelper(**TOKENS)


# Arguments that work, for everything that can be called; its signature says what else there is.
RIGHT: dict[Callable[..., Any], Callable[[], dict[str, Any]]] = {
    decode.dynamic_decode: lambda: {
        "decoder": decode.BasicDecoder(tt.GRUCell(V), greedy(), torch.zeros(B, V)),
        "maximum_iterations": 2,
    },
    decode.BasicDecoder: lambda: {"cell": tt.GRUCell(V), "helper": greedy(), "initial_state": torch.zeros(B, V)},
    decode.BeamSearchDecoder: lambda: {
        **TOKENS, "cell": tt.GRUCell(V), "initial_state": torch.zeros(4, V), "beam_width": 2,
    },
    decode.TrainingHelper: lambda: {"inputs": WIDE, "sequence_length": [3, 1]},
    decode.GreedyEmbeddingHelper: lambda: dict(TOKENS),
    decode.SampleEmbeddingHelper: lambda: dict(TOKENS),
    decode.ScheduledEmbeddingTrainingHelper: lambda: {
        "inputs": WIDE, "sequence_length": [3, 1], "embedding": EYE, "sampling_probability": 0.5,
    },
    decode.ScheduledOutputTrainingHelper: lambda: {
        "inputs": WIDE, "sequence_length": [3, 1], "sampling_probability": 0.5,
    },
    decode.InferenceHelper: lambda: {
        "sample_fn": lambda outputs: outputs, "sample_shape": [V], "sample_dtype": torch.float32,
        "start_inputs": torch.zeros(B, V), "end_fn": lambda samples: samples[:, 0] > 9,
    },
    decode.CustomHelper: lambda: {
        "initialize_fn": lambda: (NO_ROW_HAS_ENDED, torch.zeros(B, V)),
        "sample_fn": lambda time, outputs, state: outputs.argmax(1),
        "next_inputs_fn": lambda time, outputs, state, sample_ids: (NO_ROW_HAS_ENDED, outputs, state),
    },
    decode.AttentionWrapper: lambda: {
        "cell": tt.GRUCell(U), "attention_mechanism": decode.LuongAttention(U, MEMORY),
    },
    decode.AttentionMechanism: lambda: {"num_units": U, "memory": MEMORY},
    decode.BahdanauAttention: lambda: {"num_units": U, "memory": MEMORY},
    decode.LuongAttention: lambda: {"num_units": U, "memory": MEMORY},
    decode.BahdanauMonotonicAttention: lambda: {"num_units": U, "memory": MEMORY},
    decode.LuongMonotonicAttention: lambda: {"num_units": U, "memory": MEMORY},
    decode.Dense: lambda: {"units": 3},
    decode.tile_batch: lambda: {"t": MEMORY, "multiplier": 2},
    decode.gather_tree: lambda: {
        "step_ids": IDS, "parent_ids": IDS, "max_sequence_lengths": [2], "end_token": 0,
    },
    decode.gather_tree_from_array: lambda: {
        "t": torch.zeros(2, 1, 2), "parent_ids": IDS, "sequence_length": torch.tensor([[2, 2]]),
    },
    decode.sequence_loss: lambda: {
        "logits": torch.zeros(2, 3, 4), "targets": torch.zeros(2, 3).long(), "weights": torch.ones(2, 3),
    },
    decode.SequenceLoss: dict,
    decode.monotonic_attention: lambda: {
        "p_choose_i": torch.rand(2, 3), "previous_attention": torch.rand(2, 3), "mode": "hard",
    },
    decode.safe_cumprod: lambda: {"x": torch.rand(3)},
    decode.hardmax: lambda: {"logits": torch.rand(3)},
}  # fmt: skip
PLACES = [(function, name) for function in RIGHT for name in inspect.signature(function).parameters]


def use(function: Callable[..., Any], arguments: dict[str, Any]) -> None:
    """Call a function; what can run then runs, so that junk it has kept is met."""
    made = function(**arguments)
    if isinstance(made, decode.Helper):
        made = decode.BasicDecoder(tt.GRUCell(V), made, torch.zeros(made.batch_size, V))
    if isinstance(made, decode.Decoder):
        decode.dynamic_decode(made, maximum_iterations=2)
    if isinstance(made, decode.AttentionMechanism) and type(made) is not decode.AttentionMechanism:
        made = decode.AttentionWrapper(tt.GRUCell(U), made)
    if isinstance(made, decode.AttentionWrapper):
        made(torch.zeros(B, D), made.zero_state(B, torch.float32))
    if isinstance(made, decode.Dense):
        made(torch.zeros(2, 3))
    if isinstance(made, decode.SequenceLoss):
        made(torch.zeros(2, 3).long(), torch.zeros(2, 3, 4), torch.ones(2, 3))


@pytest.mark.parametrize("function", RIGHT, ids=lambda function: function.__name__)
def test_right_arguments_work(function: Callable[..., Any]) -> None:
    use(function, RIGHT[function]())


@pytest.mark.parametrize(("function", "name"), PLACES, ids=[f"{function.__name__}-{name}" for function, name in PLACES])
def test_junk(function: Callable[..., Any], name: str) -> None:
    for value in junk():
        if name == "maximum_iterations" and value is None:
            # No limit is no mistake, but this decoder would never end.
            continue
        try:
            use(function, {**RIGHT[function](), name: value})
        except Exception as error:
            complaint = refusal(error)
            assert complaint is None, f"{name}={value!r}: {complaint}"


def test_everything_public_is_here() -> None:
    public = {value for value in map(decode.__dict__.get, decode.__all__) if callable(value)}
    states = {value for value in public if isinstance(value, type) and issubclass(value, tuple)}
    assert public - set(RIGHT) - states == {decode.Decoder, decode.Helper}
    assert {name for name in vars(decode) if name[0].isalpha() and callable(getattr(decode, name))} == set(
        decode.__all__
    )
