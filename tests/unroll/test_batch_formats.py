"""The forms in which sequences and lengths come: packed, jagged, nested, numpy. What comes in comes out."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pack_sequence

import throughtime as tt
from compare import check_close
from descriptors import Pair, nest, settled
from unrolls import EVERY_UNROLL, dynamic, from_jagged, from_packed, to_jagged, to_packed

pytestmark = pytest.mark.covers("conformance")

B, T = 4, 5
LENGTHS = [3, 1, 5, 2]
WITH_EMPTY = [3, 0, 5, 2]


@pytest.fixture
def inputs() -> Tensor:
    return torch.randn(B, T, 3)


def gru() -> tt.GRUCell:
    """A cell for the inputs above."""
    return settled(tt.GRUCell(4), torch.ones(1, 1, 3), torch.float32)


class TestPacked:
    @pytest.mark.parametrize(
        ("lengths", "enforce_sorted"),
        [(LENGTHS, False), (sorted(LENGTHS, reverse=True), False), (sorted(LENGTHS, reverse=True), True)],
        ids=["unsorted", "sorted", "sorted by promise"],
    )
    @pytest.mark.parametrize("time_major", [False, True])
    def test_comes_out_as_it_came_in(
        self, inputs: Tensor, lengths: list[int], enforce_sorted: bool, time_major: bool
    ) -> None:
        pack = lambda leaf: pack_padded_sequence(leaf, torch.tensor(lengths), True, enforce_sorted)  # noqa: E731
        sequences, cell = pack(inputs), gru()
        outputs, state = tt.dynamic_rnn(cell, sequences, dtype=torch.float32, time_major=time_major)
        padded, final = tt.dynamic_rnn(cell, inputs, lengths, dtype=torch.float32)
        assert isinstance(outputs, PackedSequence)
        assert all(mine is given for mine, given in zip(outputs[1:], sequences[1:], strict=True))
        torch.testing.assert_close(outputs.data, pack(padded).data)
        torch.testing.assert_close(state, final)

    def test_feeds_torchs_own_layers(self, inputs: Tensor) -> None:
        outputs, _ = tt.dynamic_rnn(gru(), pack_sequence(list(inputs), enforce_sorted=False), dtype=torch.float32)
        assert nn.GRU(4, 2)(outputs)[0].data.shape == (B * T, 2)

    def test_gradients_reach_the_rows(self) -> None:
        rows = [torch.randn(length, 3, requires_grad=True) for length in LENGTHS]
        outputs, _ = tt.dynamic_rnn(gru(), pack_sequence(rows, enforce_sorted=False), dtype=torch.float32)
        outputs.data.sum().backward()
        assert all(row.grad.all() for row in rows)

    def test_all_states(self, inputs: Tensor) -> None:
        cell = settled(tt.LSTMCell(4), inputs[:1, :1], torch.float32)
        pack = lambda leaf: pack_padded_sequence(leaf, torch.tensor(LENGTHS), True, False)  # noqa: E731
        *_, states = tt.dynamic_rnn(cell, pack(inputs), dtype=torch.float32, all_states=True)
        *_, padded = tt.dynamic_rnn(cell, inputs, LENGTHS, dtype=torch.float32, all_states=True)
        assert isinstance(states, tt.LSTMStateTuple)
        torch.testing.assert_close([leaf.data for leaf in states], [pack(leaf).data for leaf in padded])


def nested(rows: list[Tensor], **options: Any) -> Tensor:
    """Sequences one after another, without padding."""
    return torch.nested.nested_tensor(rows, layout=torch.jagged, **options)


class TestJagged:
    def test_comes_out_as_it_came_in(self, inputs: Tensor) -> None:
        rows = [row[:length] for row, length in zip(inputs, WITH_EMPTY, strict=True)]
        sequences, cell = nested(rows), gru()
        outputs, state = tt.dynamic_rnn(cell, sequences, dtype=torch.float32)
        padded, final = tt.dynamic_rnn(cell, inputs, WITH_EMPTY, dtype=torch.float32)
        assert outputs.layout is torch.jagged
        # Only sequences of the same ragged size can be joined: a residual connection must be possible.
        assert torch.cat([outputs, sequences], -1).shape[2] == 7
        for got, want, length in zip(outputs.unbind(), padded, WITH_EMPTY, strict=True):
            torch.testing.assert_close(got, want[:length])
        torch.testing.assert_close(state, final)

    def test_gradients_reach_a_jagged_leaf(self) -> None:
        sequences = nested([torch.randn(length, 3) for length in WITH_EMPTY], requires_grad=True)
        outputs, _ = tt.dynamic_rnn(gru(), sequences, dtype=torch.float32)
        outputs.values().sum().backward()
        assert sequences.grad.values().all()

    @pytest.mark.parametrize("count", [0, 3])
    def test_nothing_but_empty_sequences(self, count: int) -> None:
        sequences = torch.nested.nested_tensor_from_jagged(torch.zeros(0, 3), torch.zeros(count + 1, dtype=torch.long))
        outputs, state, states = tt.dynamic_rnn(gru(), sequences, dtype=torch.float32, all_states=True)
        assert outputs.values().shape == states.values().shape == (0, 4)
        assert state.shape == (count, 4)

    def test_holes_between_the_sequences_are_left_out(self, inputs: Tensor) -> None:
        starts, cell = torch.tensor([0, 2, 0, 1]), gru()
        sequences = torch.nested.narrow(inputs, 1, starts, torch.tensor(WITH_EMPTY), layout=torch.jagged)
        outputs, state = tt.dynamic_rnn(cell, sequences, dtype=torch.float32)
        rows = [row[start : start + length] for row, start, length in zip(inputs, starts, WITH_EMPTY, strict=True)]
        whole, final = tt.dynamic_rnn(cell, nested(rows), dtype=torch.float32)
        torch.testing.assert_close(list(outputs.unbind()), list(whole.unbind()))
        torch.testing.assert_close(state, final)

    def test_the_ragged_axis_must_be_time(self) -> None:
        sequences = nested([torch.randn(2, 3, 4), torch.randn(5, 3, 4)]).transpose(1, 2)
        with pytest.raises(ValueError, match="NestedTensor"):
            tt.dynamic_rnn(gru(), sequences, dtype=torch.float32)

    def test_all_states(self, inputs: Tensor) -> None:
        rows = [row[:length] for row, length in zip(inputs, WITH_EMPTY, strict=True)]
        cell = gru()
        outputs, _, states = tt.dynamic_rnn(cell, nested(rows), dtype=torch.float32, all_states=True)
        torch.testing.assert_close(outputs.values(), states.values())


@pytest.mark.parametrize(("to", "back"), [(to_packed, from_packed), (to_jagged, from_jagged)], ids=["packed", "jagged"])
def test_layers_of_both_directions_keep_the_form(inputs: Tensor, to: Any, back: Any) -> None:
    cells = [settled(tt.GRUCell(2), torch.ones(1, 1, width), torch.float32) for width in (3, 3, 4, 4)]
    stack = partial(tt.stack_bidirectional_dynamic_rnn, cells[::2], cells[1::2], dtype=torch.float32)
    padded, *want = stack(inputs, sequence_length=LENGTHS)
    outputs, *got = stack(to(inputs, LENGTHS))
    check_close("results", (padded, want), (back(outputs, LENGTHS, T), got))


NUMPY_INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
NUMPY_FLOATS = ["float16", "float32", "float64"]
TORCH_INTEGERS = [torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.uint16, torch.uint32]
TORCH_FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
LENGTH_KINDS: dict[str, Callable[[list[int]], Any]] = {
    "list": list,
    "tuple": tuple,
    "list of numpy ints": lambda lengths: list(map(np.int32, lengths)),
    "list of tensors": lambda lengths: list(map(torch.tensor, lengths)),
    "read-only array": lambda lengths: np.broadcast_to(lengths, (len(lengths),)),
    "array backwards": lambda lengths: np.array(lengths[::-1])[::-1],
    "strided tensor": lambda lengths: torch.tensor(lengths).repeat_interleave(2)[::2],
    "tensor with a gradient": lambda lengths: torch.tensor(lengths, dtype=torch.float32, requires_grad=True),
    "floats are truncated": lambda lengths: [length + 0.9 for length in lengths],
    **{
        f"numpy {kind}": lambda lengths, kind=kind: np.array(lengths, kind) for kind in [*NUMPY_INTEGERS, *NUMPY_FLOATS]
    },
    **{
        str(kind): lambda lengths, kind=kind: torch.tensor(lengths).to(kind)
        for kind in [*TORCH_INTEGERS, *TORCH_FLOATS]
    },
}


class TestLengths:
    @pytest.mark.parametrize("kind", LENGTH_KINDS.values(), ids=LENGTH_KINDS)
    @pytest.mark.parametrize("unroll", ["dynamic", "static", "both"])
    def test_of_any_kind(self, inputs: Tensor, kind: Callable[[list[int]], Any], unroll: str) -> None:
        cell, run = gru(), EVERY_UNROLL[unroll].run
        want, got = (run(cell, inputs, given, None, torch.float32) for given in (WITH_EMPTY, kind(WITH_EMPTY)))
        check_close("results", want, got)

    @pytest.mark.parametrize("make", [list, np.array, torch.tensor])
    def test_bools_are_zero_or_one(self, inputs: Tensor, make: Any) -> None:
        cell = gru()
        want, got = (
            dynamic(cell, inputs, lengths, None, torch.float32)
            for lengths in ([1, 0, 0, 1], make([True, False, False, True]))
        )
        check_close("results", want, got)

    def test_negative_fractions_are_zero(self, inputs: Tensor) -> None:
        outputs, _ = tt.dynamic_rnn(gru(), inputs, [-0.9, -1.5, 0.9, 0.0], dtype=torch.float32)
        assert not outputs.any()


class TestNumpy:
    @pytest.mark.parametrize(
        "make",
        [np.array, lambda x: np.array(x[:, ::-1])[:, ::-1], lambda x: np.broadcast_to(x, x.shape), np.asfortranarray],
        ids=["plain", "backwards", "read-only", "fortran"],
    )
    @pytest.mark.parametrize("unroll", ["dynamic", "dynamic time-major", "static", "both"])
    def test_arrays_stand_for_tensors(self, inputs: Tensor, make: Any, unroll: str) -> None:
        cell, run = gru(), {"dynamic time-major": time_major, "static": static}.get(unroll, EVERY_UNROLL[unroll].run)
        state = torch.randn(B, 4)
        want = EVERY_UNROLL[unroll].run(cell, inputs, WITH_EMPTY, state, torch.float32)
        got = run(cell, make(inputs.numpy()), WITH_EMPTY, state.numpy(), torch.float32)
        check_close("results", want, got)

    def test_of_another_dtype_are_not_cast(self, inputs: Tensor) -> None:
        with pytest.raises(TypeError, match="float64"):
            tt.dynamic_rnn(gru(), inputs.numpy().astype("float64"), dtype=torch.float32)


def time_major(cell: Any, array: np.ndarray, lengths: Any, state: Any, dtype: torch.dtype) -> Any:
    outputs, final = tt.dynamic_rnn(cell, array.swapaxes(0, 1), lengths, state, dtype, time_major=True)
    return outputs.transpose(0, 1), final


def static(cell: Any, array: np.ndarray, lengths: Any, state: Any, dtype: torch.dtype) -> Any:
    outputs, final = tt.static_rnn(cell, list(array.swapaxes(0, 1)), state, dtype, lengths)
    return torch.stack(outputs, 1), final


def test_parallel_iterations_and_swapping_change_nothing(inputs: Tensor) -> None:
    cell = gru()
    want = dynamic(cell, inputs, LENGTHS, None, torch.float32)
    for options in ({"parallel_iterations": count} for count in (0, 1, np.int64(7), 1000)):
        check_close("results", want, dynamic(cell, inputs, LENGTHS, None, torch.float32, **options, swap_memory=True))


def test_ids_in_the_padding_are_never_looked_up() -> None:
    cell = tt.EmbeddingWrapper(tt.GRUCell(4), 5, 3)
    ids = torch.tensor([[[1], [4], [-1]], [[2], [99], [-7]]])
    outputs, _ = tt.dynamic_rnn(cell, ids, [2, 1], dtype=torch.float32)
    assert outputs.isfinite().all()
    with pytest.raises(tt.InvalidArgumentError, match="outside of the table"):
        tt.dynamic_rnn(cell, ids, [3, 1], dtype=torch.float32)


def test_nests_keep_their_types() -> None:
    case = nest("types", Pair(1, [2]), [1, (2,)], {"b": 1, "a": Pair(1, 2)}).case(2, 3)
    outputs, state = tt.dynamic_rnn(case.cell, case.inputs, [3, 1], dtype=case.dtype)
    assert list(outputs) == ["b", "a"]
    assert type(outputs["a"]) is Pair
    assert (type(state), type(state[1])) == (list, tuple)
