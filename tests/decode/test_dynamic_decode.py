"""`dynamic_decode`: every row ends at its own end token, and nothing past it reaches anything."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from _parts import Table
from torch import Tensor

import throughtime as tt
from throughtime import decode

pytestmark = pytest.mark.covers("decoding")

END = 0


def chain(*following: int) -> Table:
    """A language in which token i is always followed by token `following[i]`."""
    return Table(10 * torch.eye(len(following))[list(following)])


def greedy(cell: Any, start: list[int], **options: Any) -> tuple[Any, Any, Tensor]:
    helper = decode.GreedyEmbeddingHelper(torch.eye(cell.output_size), start, END)
    state = cell.zero_state(len(start), torch.float32)
    return decode.dynamic_decode(decode.BasicDecoder(cell, helper, state), **options)


@pytest.mark.parametrize("impute", [False, True])
def test_each_row_ends_at_its_own_end_token(impute: bool) -> None:
    outputs, state, lengths = greedy(chain(0, 0, 1, 2, 3), [1, 4, 2, 3], impute_finished=impute)
    assert outputs.sample_id.tolist() == [[0, 0, 0, 0], [3, 2, 1, 0], [1, 0, 0, 0], [2, 1, 0, 0]]
    assert lengths.tolist() == [1, 4, 2, 3]
    # The state counts the steps that a row has made: none past its end.
    assert state.squeeze(1).tolist() == [1, 4, 2, 3]
    for row, length in zip(outputs.rnn_output, lengths, strict=True):
        assert row[:length].any(1).all()
        assert not row[length:].any()


def test_decoding_stops_when_all_rows_have_ended_or_at_the_limit() -> None:
    endless = chain(0, 1, 1)
    outputs, _, lengths = greedy(endless, [1, 2], maximum_iterations=5)
    assert outputs.sample_id.shape == (2, 5)
    assert lengths.tolist() == [5, 5]
    for limit in (torch.tensor(3), 0):
        assert greedy(endless, [1, 2], maximum_iterations=limit)[0].sample_id.shape == (2, int(limit))


def test_minus_one_ends_no_row() -> None:
    cell, helper = chain(0, 1), decode.GreedyEmbeddingHelper(torch.eye(2), [1, 1], -1)
    decoder = decode.BasicDecoder(cell, helper, torch.zeros(2, 1))
    assert decode.dynamic_decode(decoder, maximum_iterations=5)[2].tolist() == [5, 5]


def test_rows_that_never_begin() -> None:
    outputs, state, lengths = decode.dynamic_decode(
        decode.BasicDecoder(chain(0, 1), decode.TrainingHelper(torch.ones(2, 3, 2), [0, 0]), torch.zeros(2, 1))
    )
    assert outputs.rnn_output.shape == (2, 0, 2)
    assert outputs.sample_id.dtype == torch.int64
    assert lengths.tolist() == [0, 0]
    assert not state.any()


class Poison(tt.RNNCell):
    """Gives NaN for an input of NaN, as cells do."""

    state_size = output_size = 3

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(3, 3))

    def forward(self, inputs: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        state = torch.tanh(inputs @ self.weight + state)
        return state, state


@pytest.mark.parametrize("kind", ["at once", "step by step", "scheduled embedding", "scheduled output"])
@pytest.mark.parametrize("impute", [False, True], ids=["", "impute"])
def test_nothing_past_the_end_reaches_anything(kind: str, impute: bool) -> None:
    lengths = [4, 1, 0, 2]
    clean = torch.randn(4, 5, 3)
    past = torch.arange(5) >= torch.tensor(lengths).unsqueeze(1)
    results = []
    for inputs in (clean.clone(), clean.masked_fill(past.unsqueeze(2), torch.nan)):
        torch.manual_seed(0)
        cell, state = Poison(), torch.zeros(4, 3, requires_grad=True)
        inputs.requires_grad_()
        helper = {
            "scheduled embedding": lambda given: decode.ScheduledEmbeddingTrainingHelper(
                given, lengths, torch.eye(3), 0.5, seed=0, scheduling_seed=1
            ),
            "scheduled output": lambda given: decode.ScheduledOutputTrainingHelper(given, lengths, 0.5, seed=1),
        }.get(kind, lambda given: decode.TrainingHelper(given, lengths))(inputs)
        decoder = type("Steps", (decode.BasicDecoder,), {}) if kind == "step by step" else decode.BasicDecoder
        outputs, final, _ = decode.dynamic_decode(decoder(cell, helper, state), impute_finished=impute)
        targets = torch.full((4, 4), -7)
        weights = (~past[:, :4]).float()
        loss = decode.sequence_loss(outputs.rnn_output, torch.where(past[:, :4], targets, 1), weights) + final.sum()
        loss.backward()
        results.append([outputs.rnn_output, final, loss, cell.weight.grad, state.grad, inputs.grad])
    for expected, found in zip(*results, strict=True):
        assert found.isfinite().all()
        torch.testing.assert_close(found, expected)
    assert not results[1][-1][past].any()


def test_state_of_a_row_is_that_of_its_last_step() -> None:
    cell, table = tt.LSTMCell(8), torch.randn(6, 4)
    helper = decode.GreedyEmbeddingHelper(table, torch.randint(1, 6, (16,)), END)
    layer = torch.nn.Linear(8, 6)
    torch.nn.init.normal_(layer.weight, std=3.0)
    first = tt.LSTMStateTuple(torch.randn(16, 8), torch.randn(16, 8))
    _, final, lengths = decode.dynamic_decode(decode.BasicDecoder(cell, helper, first, layer), maximum_iterations=9)
    assert len(set(lengths.tolist())) > 1
    for row in range(16):
        one = decode.GreedyEmbeddingHelper(table, helper._start_tokens[row : row + 1], END)
        own = tt.LSTMStateTuple(*(part[row : row + 1] for part in first))
        decoder = decode.BasicDecoder(cell, one, own, layer)
        _, alone, length = decode.dynamic_decode(decoder, maximum_iterations=9)
        assert length.item() == lengths[row]
        torch.testing.assert_close(final.h[row : row + 1], alone.h)


class Odd(decode.Decoder):
    """A decoder of whose output one part has no rows."""

    batch_size, output_size, output_dtype = 2, (torch.Size([]), torch.Size([])), (torch.float32, torch.float32)

    def initialize(self, name: str | None = None) -> Any:
        return torch.tensor([False, False]), torch.zeros(2, 1), torch.zeros(2)

    def step(self, time: Any, inputs: Any, state: Any, name: str | None = None) -> Any:
        return (state + 1, torch.ones(7)), state + 1, inputs, state >= torch.tensor([0.0, 2.0])


def test_impute_finished_insists_on_rows() -> None:
    (counts, whole), state, lengths = decode.dynamic_decode(Odd(), output_time_major=True)
    assert counts.T.tolist() == [[1, 0, 0], [1, 2, 3]]
    assert whole.shape == (3, 7)
    assert state.tolist() == lengths.tolist() == [1, 3]
    with pytest.raises(ValueError, match=r"the outputs of the decoder cannot be imputed: got \(7,\), expected \(2,\)"):
        decode.dynamic_decode(Odd(), impute_finished=True)


def test_a_finished_flag_for_all_rows_and_functions_of_the_users_own() -> None:
    helper = decode.CustomHelper(
        initialize_fn=lambda: (torch.tensor([False, False]), torch.ones(2, 3)),
        sample_fn=lambda time, outputs, state: outputs.argmax(-1),
        next_inputs_fn=lambda time, outputs, state, sample_ids: (time >= 2, outputs, state),
    )
    assert helper.batch_size == 2
    cell = tt.GRUCell(3)
    outputs, _, lengths = decode.dynamic_decode(decode.BasicDecoder(cell, helper, cell.zero_state(2, torch.float32)))
    assert outputs.sample_id.shape == (2, 3)
    assert lengths.tolist() == [3, 3]


def test_gradients_flow_through_what_is_fed_back() -> None:
    cell = tt.GRUCell(3, input_size=3)
    start = torch.randn(2, 3, requires_grad=True)
    helper = decode.InferenceHelper(
        lambda outputs: outputs, [3], torch.float32, start, lambda samples: torch.zeros(2, dtype=torch.bool)
    )
    decoder = decode.BasicDecoder(cell, helper, cell.zero_state(2, torch.float32))
    outputs, _, _ = decode.dynamic_decode(decoder, maximum_iterations=4)
    outputs.rnn_output[:, -1].sum().backward()
    assert start.grad is not None
    assert start.grad.any()


def test_the_scope_names_the_cells_variables() -> None:
    cell = tt.GRUCell(3, input_size=3)
    for helper in (decode.TrainingHelper(torch.ones(1, 2, 3), [2]), decode.GreedyEmbeddingHelper(torch.eye(3), [1], 0)):
        decode.dynamic_decode(
            decode.BasicDecoder(cell, helper, cell.zero_state(1, torch.float32)), maximum_iterations=1
        )
    assert next(iter(tt.interop.tf_variables(cell))) == "decoder/gru_cell/gates/kernel"


def test_a_scope_of_ones_own_holds_for_every_helper() -> None:
    # Of a width that no other call here has: what is known from another call would hide who names the variables.
    for helper in (decode.TrainingHelper(torch.ones(1, 2, 7), [2]), decode.GreedyEmbeddingHelper(torch.eye(7), [1], 0)):
        cell = tt.GRUCell(7, input_size=7)
        decoder = decode.BasicDecoder(cell, helper, cell.zero_state(1, torch.float32))
        decode.dynamic_decode(decoder, maximum_iterations=1, scope="speaker")
        assert next(iter(tt.interop.tf_variables(cell))) == "speaker/gru_cell/gates/kernel"


def test_what_finalize_raises_is_heard() -> None:
    class Unfinished(decode.BasicDecoder):
        def finalize(self, outputs: Any, final_state: Any, sequence_lengths: Any) -> tuple[Any, Any]:
            raise NotImplementedError("the last step is still to be written")

    cell, helper = tt.GRUCell(3), decode.GreedyEmbeddingHelper(torch.eye(3), [1], 0)
    decoder = Unfinished(cell, helper, cell.zero_state(1, torch.float32))
    with pytest.raises(NotImplementedError, match="still to be written"):
        decode.dynamic_decode(decoder, maximum_iterations=1)


def test_a_finalize_may_begin_with_that_of_its_base() -> None:
    class Doubled(decode.BasicDecoder):
        def finalize(self, outputs: Any, final_state: Any, sequence_lengths: Any) -> tuple[Any, Any]:
            outputs, final_state = super().finalize(outputs, final_state, sequence_lengths)
            return outputs.sample_id * 2, final_state

    cell, helper = tt.GRUCell(3), decode.GreedyEmbeddingHelper(torch.eye(3), [1], 0)
    state = cell.zero_state(1, torch.float32)
    plain, _, _ = decode.dynamic_decode(decode.BasicDecoder(cell, helper, state), maximum_iterations=3)
    doubled, _, _ = decode.dynamic_decode(Doubled(cell, helper, state), maximum_iterations=3)
    assert doubled.tolist() == (plain.sample_id * 2).tolist()


# torch itself uses what it has deprecated, and looks at gradients that are not there.
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
def test_under_torch_compile_a_graph_ends_here_and_results_are_the_same() -> None:
    class Speaker(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.cell = torch.nn.Linear(2, 5), tt.GRUCell(5, input_size=5)

        def decoder(self, x: Tensor) -> decode.BasicDecoder:
            helper = decode.GreedyEmbeddingHelper(torch.eye(5), torch.ones(3, dtype=torch.int64), END)
            return decode.BasicDecoder(self.cell, helper, torch.tanh(self.first(x)))

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            outputs, _, lengths = decode.dynamic_decode(self.decoder(x), maximum_iterations=6)
            return outputs.rnn_output.sum(1), lengths

    torch._dynamo.reset()
    model, x = Speaker(), torch.randn(3, 2)
    found, lengths = torch.compile(model, backend="eager")(x)
    expected, expected_lengths = model(x)
    torch.testing.assert_close(found, expected)
    assert lengths.tolist() == expected_lengths.tolist()
    gradients = [torch.autograd.grad(result.sum(), model.first.weight)[0] for result in (found, expected)]
    torch.testing.assert_close(*gradients)
    torch._dynamo.reset()
    with pytest.raises(torch._dynamo.exc.Unsupported, match=r"dynamic_decode depends on the values of tensors"):
        torch.compile(decode.dynamic_decode, backend="eager", fullgraph=True)(model.decoder(x))
