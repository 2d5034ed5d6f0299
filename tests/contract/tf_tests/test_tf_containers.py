"""What `rnn_cell_test.py` asks of cells of any shape and nest inside every unroll, and of saved states, restated."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
import torch
from _tf_cells import NamedPair, PairCell, StateSaver, VolumeLSTMCell, dict_pair, reverse_rows, tuple_pair
from torch.utils._pytree import tree_leaves, tree_map

import throughtime as tt

pytestmark = pytest.mark.covers("tf-tests")

T, B = 6, 3
LENGTHS = [4, 6, 0]


def at(nest: Any, t: int) -> Any:
    """One step of a time-major nest."""
    return tree_map(lambda leaf: leaf[t], nest)


def stacked(steps: list[Any]) -> Any:
    """A list of nests as one time-major nest."""
    return tree_map(lambda *leaves: torch.stack(leaves), *steps)


def reversed_rows(nest: Any) -> Any:
    """Every row of a time-major nest reversed within its length."""
    return tree_map(lambda leaf: reverse_rows(leaf, LENGTHS), nest)


def packed(cell: Any, leaves: Iterable[Any]) -> Any:
    """Flat values in the structure of the cell's state."""
    values = iter(leaves)
    return tree_map(lambda _: next(values), cell.zero_state(B, torch.float32))


def saver_of_zeros(cell: Any) -> tuple[StateSaver, Any]:
    """A saver that holds the zero state, and the nest of names to find it under."""
    zeros = {f"part {i}": leaf for i, leaf in enumerate(tree_leaves(cell.zero_state(B, torch.float32)))}
    return StateSaver(zeros), packed(cell, zeros)


def assert_all_unrolls_agree(cell: Any, inputs: Any) -> None:
    """static, dynamic, both bidirectional and state-saving unrolls of one cell tell the same story."""
    options: dict[str, Any] = {"sequence_length": LENGTHS, "dtype": torch.float32}
    steps = [at(inputs, t) for t in range(T)]
    outputs, state = tt.dynamic_rnn(cell, inputs, time_major=True, **options)

    static_outputs, static_state = tt.static_rnn(cell, steps, **options)
    torch.testing.assert_close((stacked(static_outputs), static_state), (outputs, state))

    both, states = tt.bidirectional_dynamic_rnn(cell, cell, inputs, time_major=True, **options)
    torch.testing.assert_close((both[0], states[0]), (outputs, state))
    from_the_end, state_bw = tt.dynamic_rnn(cell, reversed_rows(inputs), time_major=True, **options)
    torch.testing.assert_close((both[1], states[1]), (reversed_rows(from_the_end), state_bw))

    joined, state_fw, state_bw = tt.static_bidirectional_rnn(cell, cell, steps, **options)
    expected = tree_map(lambda fw, bw: torch.cat([fw, bw], dim=2), *both)
    torch.testing.assert_close((stacked(joined), state_fw, state_bw), (expected, *states))

    saver, names = saver_of_zeros(cell)
    saved_outputs, saved_state = tt.static_state_saving_rnn(cell, steps, saver, names, sequence_length=LENGTHS)
    torch.testing.assert_close((stacked(saved_outputs), saved_state), (outputs, state))
    torch.testing.assert_close(list(saver.saved.values()), tree_leaves(saved_state))


def assert_outputs_stop(outputs: Any) -> None:
    """Every output leaf is zero past its row's length and not before."""
    for leaf in tree_leaves(outputs):
        for row, length in enumerate(LENGTHS):
            assert leaf[:length, row].flatten(1).any(dim=1).all()
            assert not leaf[length:, row].any()


@pytest.mark.parametrize("shape", [(2, 3, 4), (2, 3), (1, 1, 1, 2)], ids=str)
def test_blocks_of_any_rank_in_every_unroll(shape: tuple[int, ...]) -> None:
    """Inputs of rank five and others, with sizes given as shapes, run alike in all unrolls."""
    cell, inputs = VolumeLSTMCell(shape), torch.randn(T, B, *shape)
    outputs, state = tt.dynamic_rnn(cell, inputs, sequence_length=LENGTHS, dtype=torch.float32, time_major=True)
    assert outputs.shape == (T, B, *shape)
    assert state.c.shape == state.h.shape == (B, *shape)
    assert_outputs_stop(outputs)
    assert_all_unrolls_agree(cell, inputs)


@pytest.mark.parametrize("nest", [tuple_pair, dict_pair, NamedPair])
def test_nested_inputs_outputs_and_states_in_every_unroll(nest: Any) -> None:
    """Pairs of different rank, as tuples, dicts or named tuples, keep their structure in all unrolls."""
    cell, inputs = PairCell(nest), nest(torch.randn(T, B, 3), torch.randn(T, B, 2, 3))
    outputs, state = tt.dynamic_rnn(cell, inputs, sequence_length=LENGTHS, dtype=torch.float32, time_major=True)
    assert type(outputs) is type(state) is type(inputs)
    assert [tuple(leaf.shape) for leaf in tree_leaves(outputs)] == [(T, B, 3), (T, B, 2, 3)]
    assert_outputs_stop(outputs)
    assert_all_unrolls_agree(cell, inputs)


def layers_of_four() -> tt.MultiRNNCell:
    """Four LSTM layers of four widths."""
    return tt.MultiRNNCell([tt.LSTMCell(width) for width in (3, 5, 2, 4)])


SAVING_CELLS = {
    "one vector": (lambda: tt.LSTMCell(3, state_is_tuple=False), "lstm"),
    "pair": (lambda: tt.LSTMCell(3), ("c", "m")),
    "nested": (layers_of_four, tuple((f"c{i}", f"m{i}") for i in range(4))),
}


def random_saver(cell: Any, names: Any) -> StateSaver:
    """A saver that holds a random state under the names."""
    zeros = tree_leaves(cell.zero_state(B, torch.float32))
    return StateSaver({name: torch.randn_like(z) for name, z in zip(tree_leaves(names), zeros, strict=True)})


@pytest.mark.parametrize("lengths", [None, LENGTHS], ids=["full", "lengths"])
@pytest.mark.parametrize("kind", SAVING_CELLS)
def test_final_state_is_saved_under_its_names(kind: str, lengths: list[int] | None) -> None:
    """static_state_saving_rnn starts at the saver's state, and saves exactly the state that it returns."""
    make, names = SAVING_CELLS[kind]
    cell = make()
    saver, inputs = random_saver(cell, names), list(torch.randn(T, B, 5))
    outputs, state = tt.static_state_saving_rnn(cell, inputs, saver, names, sequence_length=lengths)
    flat_names = tree_leaves(names)
    assert set(saver.saved) == set(flat_names)
    torch.testing.assert_close([saver.saved[name] for name in flat_names], tree_leaves(state), rtol=0, atol=0)
    start = packed(cell, [saver.states[name] for name in flat_names])
    torch.testing.assert_close(
        (outputs, state), tt.static_rnn(cell, inputs, initial_state=start, sequence_length=lengths), rtol=0, atol=0
    )


@pytest.mark.parametrize("kind", SAVING_CELLS)
def test_every_state_read_is_saved_once(kind: str) -> None:
    """As many states are saved as were read, each under its own name, however many steps there are."""
    make, names = SAVING_CELLS[kind]
    cell = make()
    saver = random_saver(cell, names)
    tt.static_state_saving_rnn(cell, list(torch.randn(T, B, 5)), saver, names)
    assert sorted(saver.read) == sorted(saver.saved) == sorted(tree_leaves(names))
