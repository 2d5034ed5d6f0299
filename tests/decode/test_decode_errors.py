"""Bad arguments of `tt.decode`: the type and the wording of what is raised."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import throughtime as tt
from throughtime import decode

pytestmark = pytest.mark.covers("errors")

B, S, D, U, V = 2, 3, 4, 5, 6
MEMORY, EYE, INPUTS = torch.randn(B, S, D), torch.eye(V), torch.randn(B, S, D)
Row = tuple[str, Callable[[], Any], type[Exception], str]


def cell() -> Any:
    return tt.GRUCell(V)


def attentive(**options: Any) -> decode.AttentionWrapper:
    return decode.AttentionWrapper(tt.GRUCell(U), decode.LuongAttention(U, MEMORY), **options)


def decoder(**options: Any) -> decode.BasicDecoder:
    helper = decode.GreedyEmbeddingHelper(EYE, [1, 1], 0)
    return decode.BasicDecoder(**{"cell": cell(), "helper": helper, "initial_state": torch.zeros(B, V), **options})


def beam(**options: Any) -> decode.BeamSearchDecoder:
    given = {"cell": cell(), "embedding": EYE, "start_tokens": [1, 1], "end_token": 0, "beam_width": 2}
    return decode.BeamSearchDecoder(**{**given, "initial_state": torch.zeros(2 * B, V), **options})


class Broken(decode.Decoder):
    """Says what it is told to."""

    batch_size, output_size, output_dtype = B, 1, torch.float32

    def __init__(self, start: Any, step: Any = None) -> None:
        self.start, self.answer = start, step

    def initialize(self, name: str | None = None) -> Any:
        return self.start

    def step(self, time: Any, inputs: Any, state: Any, name: str | None = None) -> Any:
        return self.answer


STARTED = (torch.zeros(B, dtype=torch.bool), torch.zeros(B, 1), torch.zeros(B, 1))
LOOP: list[Row] = [
    ("no decoder", lambda: decode.dynamic_decode("text"), TypeError, "`decoder` is no Decoder: got str"),
    (
        "a limit for each row",
        lambda: decode.dynamic_decode(decoder(), maximum_iterations=[3, 4]),
        ValueError,
        r"`maximum_iterations` must be a scalar: got shape \(2,\)",
    ),
    (
        "half a step",
        lambda: decode.dynamic_decode(decoder(), maximum_iterations=2.5),
        TypeError,
        "`maximum_iterations` must be whole numbers: got torch.float32",
    ),
    (
        "fewer than no steps",
        lambda: decode.dynamic_decode(decoder(), maximum_iterations=-1),
        ValueError,
        "`maximum_iterations` is negative: got -1, expected at least 0. Pass None for no limit",
    ),
    (
        "flag",
        lambda: decode.dynamic_decode(decoder(), impute_finished="yes"),
        TypeError,
        "`impute_finished` must be True",
    ),
    (
        "start of two",
        lambda: decode.dynamic_decode(Broken((1, 2))),
        ValueError,
        "`decoder.initialize` gave something else",
    ),
    (
        "finished is no bool",
        lambda: decode.dynamic_decode(Broken((torch.zeros(B), 0, 0))),
        TypeError,
        "`finished` must be a tensor of truth values",
    ),
    (
        "finished for others",
        lambda: decode.dynamic_decode(
            Broken(STARTED, (torch.zeros(B), STARTED[2], STARTED[1], torch.ones(3, dtype=torch.bool)))
        ),
        tt.InvalidArgumentError,
        r"`finished` has the wrong shape: got \(3,\), expected \(2,\)",
    ),
    ("step of three", lambda: decode.dynamic_decode(Broken(STARTED, (1, 2, 3))), ValueError, "`decoder.step` gave"),
]
DECODERS: list[Row] = [
    ("no helper", lambda: decoder(helper=3), TypeError, "`helper` is no Helper: got int"),
    ("layer is a function", lambda: decoder(output_layer=lambda x: x), TypeError, "`output_layer` is no layer"),
    ("layer is a class", lambda: decoder(output_layer=torch.nn.Linear), TypeError, "`output_layer` is no layer"),
    ("no cell", lambda: decoder(cell="cell"), TypeError, "`cell` is not an RNNCell"),
    (
        "another state",
        lambda: decoder(initial_state=(1, 2)),
        ValueError,
        "`initial_state` does not have the same nested",
    ),
    (
        "state not tiled",
        lambda: beam(initial_state=torch.zeros(B, V)),
        tt.InvalidArgumentError,
        r"a state of beam search has the wrong batch size: got \(2, 6\), expected \(4, ...\), 2 rows of 2 beams",
    ),
    ("beam of none", lambda: beam(beam_width=0), ValueError, "`beam_width` is too small"),
    (
        "coverage of nothing",
        lambda: beam(coverage_penalty_weight=0.1),
        ValueError,
        "a coverage penalty needs attention",
    ),
    (
        "end is no token",
        lambda: beam(end_token=9),
        tt.InvalidArgumentError,
        "`end_token` is no token: got 9, expected 0 to 5",
    ),
    (
        "end is none of the outputs",
        lambda: decode.dynamic_decode(beam(end_token=9, embedding=lambda tokens: EYE[tokens])),
        tt.InvalidArgumentError,
        "`end_token` is no token of the outputs: got 9, expected 0 to 5",
    ),
    (
        "no end of a beam",
        lambda: decode.dynamic_decode(beam(end_token=-1)),
        tt.InvalidArgumentError,
        "`end_token` is no token of the outputs: got -1, expected 0 to 5",
    ),
    (
        "NaN in the scores",
        lambda: decode.dynamic_decode(beam(initial_state=torch.full((2 * B, V), torch.nan))),
        tt.InvalidArgumentError,
        "the scores of beam search are not comparable: got NaN",
    ),
]
HELPERS: list[Row] = [
    (
        "start is a number",
        lambda: decode.GreedyEmbeddingHelper(EYE, 1, 0),
        ValueError,
        "`start_tokens` must be a vector",
    ),
    (
        "start is a matrix",
        lambda: decode.GreedyEmbeddingHelper(EYE, [[1]], 0),
        ValueError,
        "`start_tokens` must be a vec",
    ),
    (
        "start is text",
        lambda: decode.GreedyEmbeddingHelper(EYE, ["a"], 0),
        TypeError,
        "`start_tokens` must be whole numbers",
    ),
    (
        "start is no whole number",
        lambda: decode.GreedyEmbeddingHelper(EYE, [0.5], 0),
        TypeError,
        "must be whole numbers",
    ),
    (
        "end is a vector",
        lambda: decode.GreedyEmbeddingHelper(EYE, [1], [0]),
        ValueError,
        "`end_token` must be a scalar",
    ),
    ("no table", lambda: decode.GreedyEmbeddingHelper(3, [1], 0), TypeError, "`embedding` is neither a table nor a"),
    (
        "table of numbers",
        lambda: decode.GreedyEmbeddingHelper(torch.zeros(3), [1], 0),
        ValueError,
        "no table of vectors",
    ),
    (
        "token not in the table",
        lambda: decode.GreedyEmbeddingHelper(EYE, [6], 0),
        tt.InvalidArgumentError,
        "`start_tokens` are not in the table of embeddings: got tokens 6 to 6, expected 0 to 5",
    ),
    (
        "token not in torch's table",
        lambda: decode.GreedyEmbeddingHelper(torch.nn.Embedding(6, 2), [1, -1], 0),
        tt.InvalidArgumentError,
        "`start_tokens` are not in the table of embeddings: got tokens -1 to 1, expected 0 to 5",
    ),
    (
        "outputs wider than the table",
        lambda: decode.GreedyEmbeddingHelper(torch.nn.Embedding(6, 2), [1], 0).next_inputs(
            0, None, None, torch.tensor([6])
        ),
        tt.InvalidArgumentError,
        "a token is not in the table of embeddings: got tokens 6 to 6, expected 0 to 5",
    ),
    (
        "end not in the table",
        lambda: decode.GreedyEmbeddingHelper(EYE, [1], 6),
        tt.InvalidArgumentError,
        "`end_token` is no token: got 6, expected 0 to 5, or -1 for none",
    ),
    (
        "end below none",
        lambda: decode.SampleEmbeddingHelper(lambda tokens: EYE[tokens], [1], -2),
        tt.InvalidArgumentError,
        "`end_token` is no token: got -2, expected at least 0, or -1 for none",
    ),
    ("cold", lambda: decode.SampleEmbeddingHelper(EYE, [1], 0, 0.0), ValueError, "`softmax_temperature` is zero"),
    ("top of none", lambda: decode.SampleEmbeddingHelper(EYE, [1], 0, top_k=0), ValueError, "`top_k` is too small"),
    (
        "share of all",
        lambda: decode.SampleEmbeddingHelper(EYE, [1], 0, top_p=1.5),
        ValueError,
        "`top_p` is no probability",
    ),
    (
        "two sources",
        lambda: decode.SampleEmbeddingHelper(EYE, [1], 0, seed=1, generator=torch.Generator()),
        ValueError,
        "only one of `seed` and `generator`",
    ),
    (
        "outputs that are a pair",
        lambda: decode.GreedyEmbeddingHelper(EYE, [1], 0).sample(0, (1, 2), None),
        TypeError,
        "Expected outputs to be a single tensor",
    ),
    ("lengths missing", lambda: decode.TrainingHelper(INPUTS, None), ValueError, "`sequence_length` is missing"),
    (
        "lengths of a matrix",
        lambda: decode.TrainingHelper(INPUTS, [[1], [2]]),
        ValueError,
        "must be a vector of length",
    ),
    (
        "lengths of others",
        lambda: decode.TrainingHelper(INPUTS, [1]),
        tt.InvalidArgumentError,
        "must be a vector of length",
    ),
    (
        "inputs without time",
        lambda: decode.TrainingHelper(torch.zeros(3), [1]),
        ValueError,
        "`inputs` has no time axis",
    ),
    (
        "inputs that disagree",
        lambda: decode.TrainingHelper((INPUTS, INPUTS[:, :1]), [1, 1]),
        ValueError,
        "do not agree",
    ),
    ("too likely", lambda: decode.ScheduledOutputTrainingHelper(INPUTS, [1, 1], 1.5), ValueError, "is no probability"),
    (
        "likely for others",
        lambda: decode.ScheduledOutputTrainingHelper(INPUTS, [1, 1], torch.zeros(3)),
        ValueError,
        "`sampling_probability` must be a scalar or a vector",
    ),
    (
        "outputs that are no inputs",
        lambda: decode.ScheduledOutputTrainingHelper(INPUTS, [2, 2], 1.0).next_inputs(
            0, torch.zeros(B, 9), None, torch.ones(B).bool()
        ),
        ValueError,
        "what is sampled does not look like the inputs",
    ),
    ("no function", lambda: decode.CustomHelper(1, print, print), TypeError, "`initialize_fn` must be callable"),
    (
        "start without rows",
        lambda: decode.InferenceHelper(print, [], torch.int64, torch.tensor(1), print),
        ValueError,
        "`start_inputs` have no rows",
    ),
]
ATTENTION: list[Row] = [
    (
        "empty memory",
        lambda: decode.LuongAttention(U, MEMORY, [0, 2]),
        tt.InvalidArgumentError,
        r"All values in `memory_sequence_length` must be greater than zero: got \[0, 2\]",
    ),
    ("memory without steps", lambda: decode.LuongAttention(U, MEMORY[:, :0]), tt.InvalidArgumentError, "has no steps"),
    ("memory of numbers", lambda: decode.LuongAttention(U, MEMORY[0]), ValueError, "`memory` must hold vectors"),
    ("memory of two", lambda: decode.LuongAttention(U, [MEMORY, MEMORY]), TypeError, "`memory` must be one tensor"),
    ("lengths alone", lambda: decode.LuongAttention(U, None, [1]), ValueError, "has no memory to belong to"),
    ("lengths of others", lambda: decode.LuongAttention(U, MEMORY, [1]), tt.InvalidArgumentError, "must be a vector"),
    ("no memory yet", lambda: decode.LuongAttention(U).keys, ValueError, "LuongAttention has no memory yet"),
    (
        "mode",
        lambda: decode.LuongMonotonicAttention(U, MEMORY, mode="soft"),
        ValueError,
        "`mode` is unknown: got 'soft'",
    ),
    (
        "query of another width",
        lambda: decode.AttentionWrapper(cell(), decode.LuongAttention(U, MEMORY))(
            INPUTS[:, 0], decode.AttentionWrapper(cell(), decode.LuongAttention(U, MEMORY)).zero_state(B, torch.float32)
        ),
        ValueError,
        "Incompatible or unknown inner dimensions between query and keys",
    ),
    (
        "query of others",
        lambda: decode.BahdanauAttention(U, MEMORY)(torch.zeros(3, U), None),
        tt.InvalidArgumentError,
        "the memory has another batch size: got 2 rows of memory for 3 rows.*tile_batch",
    ),
    ("state for others", lambda: attentive().zero_state(3, torch.float32), tt.InvalidArgumentError, "tile_batch"),
    (
        "state of another dtype",
        lambda: attentive().zero_state(B, torch.float64),
        TypeError,
        "another dtype than the state",
    ),
    (
        "first state of others",
        lambda: attentive(initial_cell_state=torch.zeros(3, U)).zero_state(B, torch.float32),
        tt.InvalidArgumentError,
        "`initial_cell_state` has another batch size: got 3, expected 2",
    ),
    (
        "state of a cell",
        lambda: attentive()(INPUTS[:, 0], torch.zeros(B, U)),
        TypeError,
        "the state of an AttentionWrapper has another type.*expected an AttentionWrapperState",
    ),
    ("no mechanism", lambda: decode.AttentionWrapper(cell(), 3), TypeError, "`attention_mechanism` is no mechanism"),
    ("no mechanisms", lambda: decode.AttentionWrapper(cell(), []), TypeError, "no mechanism: got an empty list"),
    (
        "two layers",
        lambda: attentive(attention_layer_size=3, attention_layer=torch.nn.Linear(9, 3)),
        ValueError,
        "only one of `attention_layer_size` and `attention_layer`",
    ),
    (
        "too many sizes",
        lambda: attentive(attention_layer_size=[3, 4]),
        ValueError,
        "one entry for each mechanism: got 2",
    ),
    ("layer is a number", lambda: attentive(attention_layer=3), TypeError, "`attention_layer` is no layer"),
    (
        "cell of two outputs",
        lambda: decode.AttentionWrapper(
            type("Two", (tt.RNNCell,), {"state_size": 1, "output_size": (1, 1)})(), decode.LuongAttention(U)
        ),
        ValueError,
        "an AttentionWrapper asks with one vector",
    ),
    ("no function", lambda: attentive(cell_input_fn=3), TypeError, "`cell_input_fn` must be callable"),
    ("layer of another width", lambda: decode.Dense(3, input_size=4)(torch.zeros(1, 5)), ValueError, "wrong width"),
    (
        "layer of another dtype",
        lambda: decode.Dense(3, input_size=4)(torch.zeros(1, 4).double()),
        TypeError,
        "another dtype",
    ),
]
REST: list[Row] = [
    ("scalar", lambda: decode.tile_batch(torch.tensor(1.0), 2), ValueError, "`t` has no rows to repeat"),
    ("no times", lambda: decode.tile_batch(MEMORY, 0), ValueError, "`multiplier` is too small"),
    (
        "flat tree",
        lambda: decode.gather_tree(torch.zeros(2, 2), torch.zeros(2, 2), [2], 0),
        ValueError,
        r"be \[T, B, W\]",
    ),
    (
        "trees that differ",
        lambda: decode.gather_tree(np.zeros((2, 1, 2), int), np.zeros((3, 1, 2), int), [2], 0),
        ValueError,
        "differ in shape",
    ),
    (
        "lengths of others",
        lambda: decode.gather_tree(np.zeros((2, 1, 2), int), np.zeros((2, 1, 2), int), [2, 2], 0),
        ValueError,
        "`max_sequence_lengths` has the wrong",
    ),
    (
        "beams of others",
        lambda: decode.gather_tree_from_array(torch.zeros(2, 1, 2), np.zeros((2, 1, 2), int), torch.zeros(1, 3).long()),
        ValueError,
        "`sequence_length` has the wrong",
    ),
    (
        "logits",
        lambda: decode.sequence_loss(torch.zeros(2, 3), torch.zeros(2, 3), torch.ones(2, 3)),
        ValueError,
        r"`logits` must be \[B, T, V\]: got \(2, 3\)",
    ),
    (
        "targets",
        lambda: decode.sequence_loss(torch.zeros(2, 3, 4), torch.zeros(2, 2).long(), torch.ones(2, 3)),
        ValueError,
        r"`targets` does not fit `logits`: got \(2, 2\), expected \(2, 3\)",
    ),
    (
        "weights",
        lambda: decode.sequence_loss(torch.zeros(2, 3, 4), torch.zeros(2, 3).long(), torch.ones(2)),
        ValueError,
        r"`weights` must be \[B, T\]",
    ),
    (
        "real targets",
        lambda: decode.sequence_loss(torch.zeros(2, 3, 4), torch.zeros(2, 3), torch.ones(2, 3)),
        TypeError,
        "`targets` must be whole numbers",
    ),
    (
        "average and sum",
        lambda: decode.sequence_loss(
            torch.zeros(2, 3, 4), torch.zeros(2, 3).long(), torch.ones(2, 3), sum_over_batch=True
        ),
        ValueError,
        "`average_across_batch` and `sum_over_batch` cannot both be set",
    ),
    (
        "attention of others",
        lambda: decode.monotonic_attention(torch.zeros(2, 3), torch.zeros(2, 4), "hard"),
        ValueError,
        "probabilities and attention must agree",
    ),
    ("whole product", lambda: decode.safe_cumprod(torch.tensor([1])), TypeError, "`x` must be real"),
    ("largest of one", lambda: decode.hardmax(torch.tensor(1.0)), ValueError, "`logits` must have an axis"),
]
ROWS = [*LOOP, *DECODERS, *HELPERS, *ATTENTION, *REST]


@pytest.mark.parametrize(("call", "error", "wording"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_mistake(call: Callable[[], Any], error: type[Exception], wording: str) -> None:
    with pytest.raises(error, match=wording) as raised:
        call()
    assert type(raised.value) is error
    # The one form: what was got, what was expected, and how to fix it.
    assert all(part in str(raised.value) for part in (": got ", ", expected ", ". "))
