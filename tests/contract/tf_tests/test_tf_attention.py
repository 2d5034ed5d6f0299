"""TensorFlow's tests of attention, restated; recorded numbers are compared in `tests/decode/test_decode_goldens.py`."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import throughtime as tt
from throughtime import decode

pytestmark = pytest.mark.covers("tf-tests")

B, S, D, U, X, T, A = 5, 8, 4, 9, 10, 3, 6
MECHANISMS = {
    "bahdanau": lambda **given: decode.BahdanauAttention(U, **given),
    "bahdanau normalised": lambda **given: decode.BahdanauAttention(U, normalize=True, **given),
    "luong": lambda **given: decode.LuongAttention(U, **given),
    "luong scaled": lambda **given: decode.LuongAttention(U, scale=True, **given),
    "bahdanau monotonic": lambda **given: decode.BahdanauMonotonicAttention(U, **given),
    "bahdanau monotonic normalised": lambda **given: decode.BahdanauMonotonicAttention(U, normalize=True, **given),
    "luong monotonic": lambda **given: decode.LuongMonotonicAttention(U, **given),
    "luong monotonic scaled": lambda **given: decode.LuongMonotonicAttention(U, scale=True, **given),
}


def memory() -> dict[str, Any]:
    return {"memory": torch.randn(B, S, D), "memory_sequence_length": [8, 5, 1, 3, 8]}


def decoded(cell: decode.AttentionWrapper, lengths: Any = (3, 3, 2, 3, 1)) -> tuple[Any, Any, Tensor]:
    """Three steps of teacher forcing, step by step: `(outputs, final_state, lengths)`."""
    helper = decode.TrainingHelper(torch.randn(B, T, X), lengths)
    decoder = decode.BasicDecoder(cell, helper, cell.zero_state(B, torch.float32))
    return decode.dynamic_decode(decoder)


def check_alignments(alignments: Tensor, lengths: list[int], *, sums_to_one: bool) -> None:
    """Probabilities, none of them past the end of the memory."""
    past = torch.arange(S) >= torch.tensor(lengths).unsqueeze(1)
    assert not alignments[past.expand_as(alignments)].any()
    assert (alignments >= 0).all()
    total = alignments.sum(-1)
    assert (total <= 1 + 1e-5).all()
    if sums_to_one:
        torch.testing.assert_close(total, torch.ones_like(total))


def test_state_fields_and_clone() -> None:
    """A state has TensorFlow's fields in TensorFlow's order; clone replaces some."""
    names = ("cell_state", "attention", "time", "alignments", "alignment_history", "attention_state")
    assert decode.AttentionWrapperState._fields[:6] == names
    state = decode.AttentionWrapperState(*(torch.zeros(2, 3) for _ in names))
    cloned = state.clone(attention=torch.ones(2, 3))
    assert cloned.attention.all()
    assert all(new is old for name, new, old in zip(state._fields, cloned, state, strict=True) if name != "attention")


def test_clone_keeps_shapes() -> None:
    """What takes a field's place has its shape."""
    state = decode.AttentionWrapperState(*(torch.zeros(2, 3) for _ in range(6)))
    with pytest.raises(ValueError, match=r"`cell_state` has another shape: got \(2, 4\), expected \(2, 3\)"):
        state.clone(cell_state=torch.zeros(2, 4))


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", ["bahdanau normalised", "luong scaled"])
def test_parameters_have_the_dtype_asked_for(name: str, dtype: torch.dtype) -> None:
    """Normalised and scaled mechanisms work in every dtype."""
    given = {"memory": torch.randn(B, S, D, dtype=dtype), "memory_sequence_length": [8, 5, 1, 3, 8]}
    mechanism = MECHANISMS[name](dtype=dtype, **given)
    cell = decode.AttentionWrapper(tt.LSTMCell(U, dtype=dtype), mechanism, dtype=dtype)
    output, state = cell(torch.randn(B, X, dtype=dtype), cell.zero_state(B, dtype))
    assert {parameter.dtype for parameter in cell.parameters()} == {dtype}
    assert output.dtype == state.alignments.dtype == dtype


@pytest.mark.parametrize("history", [False, True], ids=["no history", "history"])
@pytest.mark.parametrize("name", MECHANISMS)
def test_mechanism_end_to_end(name: str, history: bool) -> None:
    """Each mechanism under an AttentionWrapper, decoded: outputs, state, and where it looked."""
    given = memory()
    cell = decode.AttentionWrapper(tt.LSTMCell(U), MECHANISMS[name](**given), A, alignment_history=history)
    outputs, state, lengths = decoded(cell)
    assert isinstance(outputs, decode.BasicDecoderOutput)
    assert isinstance(state, decode.AttentionWrapperState)
    assert outputs.rnn_output.shape == (B, T, A)
    assert lengths.tolist() == [3, 3, 2, 3, 1]
    assert not outputs.rnn_output[4, 1:].any()
    assert int(state.time) == T
    torch.testing.assert_close(state.attention[0], outputs.rnn_output[0, -1])
    check_alignments(state.alignments, given["memory_sequence_length"], sums_to_one="monotonic" not in name)
    if history:
        seen = state.alignment_history.stack()
        assert seen.shape == (T, B, S)
        torch.testing.assert_close(seen[-1, 0], state.alignments[0])
    else:
        assert state.alignment_history == ()


def test_without_an_attention_layer_the_context_comes_out() -> None:
    """`attention_layer_size=None`: the output is the weighted memory."""
    given = memory()
    cell = decode.AttentionWrapper(tt.LSTMCell(U), MECHANISMS["bahdanau"](**given))
    output, state = cell(torch.randn(B, X), cell.zero_state(B, torch.float32))
    assert cell.output_size == D
    torch.testing.assert_close(
        output, torch.einsum("bs,bsd->bd", state.alignments, cell.attention_mechanisms[0].values)
    )


def test_safe_cumprod_is_cumprod() -> None:
    """Equal to the plain cumulative product, also exclusive, along any axis."""
    x = torch.rand(10, 10)
    for axis in (0, 1):
        torch.testing.assert_close(decode.safe_cumprod(x, axis=axis), x.cumprod(axis), rtol=1e-4, atol=1e-6)
        shifted = torch.cat([torch.ones_like(x.narrow(axis, 0, 1)), x.narrow(axis, 0, 9)], axis).cumprod(axis)
        torch.testing.assert_close(decode.safe_cumprod(x, axis=axis, exclusive=True), shifted, rtol=1e-4, atol=1e-6)
    backwards = x.flip(0).cumprod(0).flip(0)
    torch.testing.assert_close(decode.safe_cumprod(x, reverse=True), backwards, rtol=1e-4, atol=1e-6)


def test_monotonic_attention_modes_agree() -> None:
    """Hard attention equals the soft kinds where probabilities are 0 or 1; recursive equals parallel elsewhere."""
    for _ in range(20):
        p = (torch.rand(4, 10) < 0.4).float()
        previous = torch.nn.functional.one_hot(torch.randint(10, (4,)), 10).float()
        hard = decode.monotonic_attention(p, previous, "hard")
        torch.testing.assert_close(decode.monotonic_attention(p, previous, "recursive"), hard)
        places = [
            next((j for j in range(int(i), 10) if row[j]), None) for i, row in zip(previous.argmax(1), p, strict=True)
        ]
        assert [row.argmax().item() if row.any() else None for row in hard] == places
        soft, before = torch.rand(4, 10) * 0.8, torch.softmax(torch.randn(4, 10), 1)
        parallel = decode.monotonic_attention(soft, before, "parallel")
        torch.testing.assert_close(
            parallel, decode.monotonic_attention(soft, before, "recursive"), rtol=1e-4, atol=1e-6
        )


@pytest.mark.parametrize("kind", [decode.BahdanauMonotonicAttention, decode.LuongMonotonicAttention])
def test_hard_monotonic_attention_looks_at_one_place(kind: Any) -> None:
    """Mode "hard": one place or none, and never an earlier one than before."""
    given = memory()
    cell = decode.AttentionWrapper(tt.LSTMCell(U), kind(U, **given, score_bias_init=0.5, mode="hard"), A)
    state = cell.zero_state(B, torch.float32)
    before = torch.zeros(B, dtype=torch.int64)
    for _ in range(4):
        _, state = cell(torch.randn(B, X), state)
        assert set(state.alignments.unique().tolist()) <= {0.0, 1.0}
        looking = state.alignments.any(1)
        now = state.alignments.argmax(1)
        assert (now[looking] >= before[looking]).all()
        before = torch.where(looking, now, before)


@pytest.mark.parametrize("layers", ["sizes", "modules", "none"])
def test_several_mechanisms(layers: str) -> None:
    """Two mechanisms side by side, with layers by size, by module, or without."""
    first, second = memory(), memory()
    mechanisms = [MECHANISMS["bahdanau"](**first), MECHANISMS["luong"](**second)]
    how = {"sizes": {"attention_layer_size": [A, 3]}, "none": {}}.get(
        layers, {"attention_layer": [torch.nn.Linear(U + D, A), torch.nn.Linear(U + D, 3)]}
    )
    cell = decode.AttentionWrapper(tt.LSTMCell(U), mechanisms, alignment_history=True, **how)
    outputs, state, _ = decoded(cell)
    assert cell.output_size == outputs.rnn_output.shape[2] == (2 * D if layers == "none" else A + 3)
    assert len(state.alignments) == len(state.attention_state) == len(state.alignment_history) == 2
    for alignments, given in zip(state.alignments, (first, second), strict=True):
        check_alignments(alignments, given["memory_sequence_length"], sums_to_one=True)


def test_a_list_of_one_mechanism_is_a_list() -> None:
    """One mechanism in a list gives tuples of one, and the numbers that it gives by itself."""
    given, inputs = memory(), torch.randn(B, X)
    mechanism = MECHANISMS["bahdanau"](**given)
    single = decode.AttentionWrapper(tt.GRUCell(U), mechanism, A)
    output, state = single(inputs, single.zero_state(B, torch.float32))
    listed = decode.AttentionWrapper(single.cell, [mechanism], attention_layer=[single.attention_layers[0]])
    output_of_list, state_of_list = listed(inputs, listed.zero_state(B, torch.float32))
    torch.testing.assert_close(output_of_list, output)
    assert isinstance(state_of_list.alignments, tuple)
    torch.testing.assert_close(state_of_list.alignments, (state.alignments,))


def test_attention_function_of_the_users_own() -> None:
    """An `attention_fn` in the place of the usual one is called with mechanism, output, state and layer."""
    given = memory()

    def constant(attention_mechanism: Any, cell_output: Tensor, attention_state: Any, attention_layer: Any) -> Any:
        assert attention_layer is None
        assert attention_mechanism.values.shape == (len(cell_output), S, D)
        alignments = torch.full((len(cell_output), S), 0.5)
        return alignments.new_full((len(cell_output), D), 3.0), alignments, attention_state + 1

    cell = decode.AttentionWrapper(tt.LSTMCell(U), MECHANISMS["luong"](**given), attention_fn=constant)
    output, state = cell(torch.randn(B, X), cell.zero_state(B, torch.float32))
    assert output.tolist() == [[3.0] * D] * B
    assert state.alignments.tolist() == [[0.5] * S] * B
    assert state.attention_state.tolist() == [[1.0] * S] * B
