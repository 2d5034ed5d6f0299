"""The AttentionWrapper as a cell: through time, on every backend, with its memory going where its rows go."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import throughtime as tt
from compare import check_close, compare
from throughtime import decode

pytestmark = pytest.mark.covers("decoding")

B, S, D, U, X, T = 4, 6, 3, 5, 2, 7
MEMORY_LENGTHS, LENGTHS = [6, 1, 4, 3], [3, 7, 0, 5]
KINDS = {
    "bahdanau": lambda: decode.BahdanauAttention(U, normalize=True, memory_size=D, dtype=torch.float64),
    "luong": lambda: decode.LuongAttention(U, scale=True, memory_size=D, dtype=torch.float64),
    "bahdanau monotonic": lambda: decode.BahdanauMonotonicAttention(U, memory_size=D, dtype=torch.float64),
    "luong monotonic recursive": lambda: decode.LuongMonotonicAttention(
        U, mode="recursive", memory_size=D, dtype=torch.float64
    ),
    "hardmax": lambda: decode.LuongAttention(U, probability_fn=decode.hardmax, memory_size=D, dtype=torch.float64),
}


def attentive(kind: str, **options: Any) -> decode.AttentionWrapper:
    cell = tt.LSTMCell(U, dtype=torch.float64)
    return decode.AttentionWrapper(cell, KINDS[kind](), 4, dtype=torch.float64, input_size=X, **options)


def through_time(backend: str, lengths: Any) -> Any:
    """`run(cell, inputs, memory)`: what goes in as a state is the memory."""

    def run(cell: decode.AttentionWrapper, inputs: Tensor, memory: Tensor) -> Any:
        cell.attention_mechanisms[0].setup_memory(memory, MEMORY_LENGTHS)
        state = cell.zero_state(B, torch.float64)
        with tt.backend(backend):
            outputs, final = tt.dynamic_rnn(cell, inputs, lengths, state, torch.float64)
        return outputs, final.cell_state, final.attention, final.alignments

    return run


def one_by_one(cell: decode.AttentionWrapper, inputs: Tensor, memory: Tensor) -> Any:
    """Each row alone, step by step, with the memory that belongs to it: no engine, no padding."""
    outputs, finals = [], []
    for row in range(B):
        cell.attention_mechanisms[0].setup_memory(memory[row : row + 1, : MEMORY_LENGTHS[row]])
        state = cell.zero_state(1, torch.float64)
        seen = []
        for step in range(LENGTHS[row]):
            output, state = cell(inputs[row : row + 1, step], state)
            seen.append(output)
        seen += [torch.zeros(1, 4, dtype=torch.float64)] * (T - LENGTHS[row])
        outputs.append(torch.stack(seen, 1))
        missing = torch.zeros(1, S - MEMORY_LENGTHS[row], dtype=torch.float64)
        finals.append((*state.cell_state, state.attention, torch.cat([state.alignments, missing], 1)))
    c, h, attention, alignments = (torch.cat(parts) for parts in zip(*finals, strict=True))
    return torch.cat(outputs), tt.LSTMStateTuple(c, h), attention, alignments


@pytest.mark.parametrize("backend", ["reference", "aten", "auto"])
@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_any_lengths_see_their_own_memory(kind: str, backend: str) -> None:
    inputs, memory = torch.randn(B, T, X, dtype=torch.float64), torch.randn(B, S, D, dtype=torch.float64)
    compare(one_by_one, through_time(backend, LENGTHS), attentive(kind), inputs, memory)


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_compiled(kind: str) -> None:
    cell = attentive(kind)
    cell.attention_mechanisms[0].setup_memory(torch.randn(B, S, D, dtype=torch.float64), MEMORY_LENGTHS)
    state = cell.zero_state(B, torch.float64)
    inputs = torch.randn(B, T, X, dtype=torch.float64)
    plan = tt.explain(cell, inputs, LENGTHS, state, dtype=torch.float64)
    assert plan.backend == ("aten" if kind == "hardmax" else "cpu"), plan.reasons


def test_a_memory_of_any_length_is_compiled() -> None:
    """The kernel has loops over places, not a line for each; the memory is kept once, not for every step."""
    cell, sources = attentive("bahdanau"), []
    for places in (33, 1000):
        memory = torch.randn(2, places, D, dtype=torch.float64, requires_grad=True)
        cell.attention_mechanisms[0].setup_memory(memory)
        state = cell.zero_state(2, torch.float64)
        plan = tt.explain(cell, torch.randn(2, T, X, dtype=torch.float64), None, state, dtype=torch.float64)
        assert plan.backend == "cpu"
        sources.append(plan.source.count("\n"))
        assert "memory" not in next(line for line in str(plan).splitlines() if line.startswith("saved"))
    assert sources[0] == sources[1]


def test_another_batch_needs_no_other_program() -> None:
    """The memory is no part of the cell's structure: only its number of places is, as part of the state."""
    from throughtime.runtime import compile_cache

    cell = attentive("bahdanau")
    for rows, time in ((4, 7), (3, 2), (9, 5)):
        cell.attention_mechanisms[0].setup_memory(torch.randn(rows, S, D, dtype=torch.float64))
        before = set(compile_cache._CACHE.keys())
        state = cell.zero_state(rows, torch.float64)
        tt.dynamic_rnn(cell, torch.randn(rows, time, X, dtype=torch.float64), None, state, torch.float64)
        if rows != 4:
            assert set(compile_cache._CACHE.keys()) == before


def test_what_is_past_the_memorys_end_reaches_nothing() -> None:
    results = []
    clean = torch.randn(B, S, D, dtype=torch.float64)
    past = (torch.arange(S) >= torch.tensor(MEMORY_LENGTHS).unsqueeze(1)).unsqueeze(2)
    for kind in KINDS:
        for given in (clean, clean.masked_fill(past, torch.nan)):
            torch.manual_seed(0)
            cell, memory = attentive(kind), given.clone().requires_grad_()
            cell.attention_mechanisms[0].setup_memory(memory, MEMORY_LENGTHS)
            output, _ = cell(torch.ones(B, X, dtype=torch.float64), cell.zero_state(B, torch.float64))
            output.sum().backward()
            results.append([output, memory.grad, *(p.grad for p in cell.parameters() if p.grad is not None)])
        check_close(kind, results[-2], results[-1])


def test_history_is_all_states_alignments() -> None:
    cell = attentive("luong")
    inputs, memory = torch.randn(B, T, X, dtype=torch.float64), torch.randn(B, S, D, dtype=torch.float64)
    cell.attention_mechanisms[0].setup_memory(memory, MEMORY_LENGTHS)
    state = cell.zero_state(B, torch.float64)
    _, _, states = tt.dynamic_rnn(cell, inputs, None, state, torch.float64, all_states=True)
    keeper = decode.AttentionWrapper(
        cell.cell, cell.attention_mechanisms[0], attention_layer=cell.attention_layers[0], alignment_history=True
    )
    _, final = tt.dynamic_rnn(keeper, inputs, None, keeper.zero_state(B, torch.float64), torch.float64)
    torch.testing.assert_close(final.alignment_history.stack().transpose(0, 1), states.alignments)


@pytest.mark.parametrize("says", [True, False], ids=["says so", "does not say"])
def test_a_layer_is_as_wide_as_it_says_or_shows(says: bool) -> None:
    layer: nn.Module = nn.Linear(U + D, 4, dtype=torch.float64)
    layer = layer if says else nn.Sequential(layer, nn.Tanh())
    mechanism = decode.LuongAttention(U, torch.randn(B, S, D, dtype=torch.float64), dtype=torch.float64)
    cell = decode.AttentionWrapper(tt.GRUCell(U, dtype=torch.float64), mechanism, attention_layer=layer)
    inputs, state = torch.randn(B, T, X, dtype=torch.float64), cell.zero_state(B, torch.float64)
    outputs, _ = tt.dynamic_rnn(cell, inputs, LENGTHS, state, torch.float64)
    assert (cell.attention_size, cell.output_size, outputs.shape) == (4, 4, (B, T, 4))
    # A decoder's layer is asked in the same way.
    helper = decode.TrainingHelper(torch.randn(B, T, X, dtype=torch.float64), LENGTHS)
    top = nn.Linear(4, 3, dtype=torch.float64) if says else nn.Sequential(nn.Linear(4, 3, dtype=torch.float64))
    assert decode.BasicDecoder(cell, helper, state, top).output_size.rnn_output == 3


def test_a_state_of_six_fields_leaves_the_memory_to_the_mechanism() -> None:
    cell = attentive("luong")
    cell.attention_mechanisms[0].setup_memory(torch.randn(B, S, D, dtype=torch.float64))
    state, inputs = cell.zero_state(B, torch.float64), torch.randn(B, X, dtype=torch.float64)
    bare = decode.AttentionWrapperState(*state[:6])
    torch.testing.assert_close(cell(inputs, bare)[0], cell(inputs, state)[0])
    assert cell(inputs, bare)[1].memory == ()


def test_parameters_are_tensorflows() -> None:
    cell = attentive("bahdanau")
    shapes = {name: tuple(parameter.shape) for name, parameter in cell.named_parameters()}
    assert shapes == {
        "cell.kernel": (X + 4 + U, 4 * U),
        "cell.bias": (4 * U,),
        "bahdanau_attention.attention_v": (U,),
        "bahdanau_attention.attention_g": (),
        "bahdanau_attention.attention_b": (U,),
        "bahdanau_attention.memory_layer.kernel": (D, U),
        "bahdanau_attention.query_layer.kernel": (U, U),
        "attention_layer.kernel": (U + D, 4),
    }
    assert cell.bahdanau_attention.attention_g.item() == pytest.approx(U**-0.5)
    assert not cell.bahdanau_attention.attention_b.any()
    names = list(dict(decode.AttentionWrapper(tt.GRUCell(U), [KINDS["luong"](), KINDS["luong"]()]).named_children()))
    assert names == ["cell", "luong_attention", "luong_attention_1"]


def test_copies_leave_the_memory_behind() -> None:
    cell = attentive("luong")
    cell.attention_mechanisms[0].setup_memory(torch.randn(B, S, D, dtype=torch.float64, requires_grad=True) * 2)
    for twin in (copy.deepcopy(cell), pickle.loads(pickle.dumps(cell))):
        assert twin.state_dict().keys() == cell.state_dict().keys()
        with pytest.raises(ValueError, match="LuongAttention has no memory yet"):
            twin.zero_state(B, torch.float64)
    assert cell.zero_state(B, torch.float64).memory.values.shape == (B, S, D)


def test_weights_load_before_the_first_call() -> None:
    built = attentive("bahdanau")
    lazy = decode.AttentionWrapper(
        tt.LSTMCell(U, dtype=torch.float64),
        decode.BahdanauAttention(U, normalize=True, dtype=torch.float64),
        4,
        dtype=torch.float64,
    )
    lazy.load_state_dict(built.state_dict())
    memory, inputs = torch.randn(B, S, D, dtype=torch.float64), torch.randn(B, X, dtype=torch.float64)
    outputs = []
    for cell in (built, lazy):
        cell.attention_mechanisms[0].setup_memory(memory)
        outputs.append(cell(inputs, cell.zero_state(B, torch.float64))[0])
    torch.testing.assert_close(*outputs)


def test_wrapped_stacked_and_both_ways() -> None:
    """Like any cell: inside of wrappers and stacks."""
    mechanism = decode.LuongAttention(U, torch.randn(B, S, D), MEMORY_LENGTHS)
    attentive_cell = decode.AttentionWrapper(tt.GRUCell(U), mechanism, 4)
    stack = tt.MultiRNNCell([attentive_cell, tt.ResidualWrapper(tt.GRUCell(4))])
    state = stack.zero_state(B, torch.float32)
    outputs, final = tt.dynamic_rnn(stack, torch.randn(B, T, X), LENGTHS, state, torch.float32)
    assert outputs.shape == (B, T, 4)
    assert isinstance(final[0], decode.AttentionWrapperState)


def test_custom_keys_and_values() -> None:
    mechanism = decode.LuongAttention(
        U, torch.randn(B, S, D), custom_key_value_fn=lambda mechanism, keys, values: (2 * keys, 3 * values)
    )
    values = decode.LuongAttention(U, mechanism.values / 3).values
    torch.testing.assert_close(mechanism.values, 3 * values)


def test_noise_is_drawn_anew_and_by_seed() -> None:
    def alignments(seed: int | None) -> Tensor:
        mechanism = decode.LuongMonotonicAttention(U, torch.zeros(B, S, D), sigmoid_noise=1.0, sigmoid_noise_seed=seed)
        state = mechanism.initial_state(B, torch.float32)
        return torch.stack([mechanism(torch.ones(B, U), state)[0] for _ in range(2)])

    first = alignments(1)
    assert not torch.equal(first[0], first[1])
    assert torch.equal(alignments(1), first)
    assert not torch.equal(alignments(2), first)
