"""Packed calls that are known: batches of other lengths, orders and weights, and what must not be kept of them."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

import throughtime as tt
from compare import check_close

pytestmark = pytest.mark.covers("compiler")

SMALL = torch.Generator().manual_seed(5)


def packed(lengths: list[int]) -> PackedSequence:
    data = torch.randn(len(lengths), max(lengths), 3, generator=SMALL)
    return pack_padded_sequence(data, torch.tensor(lengths), batch_first=True, enforce_sorted=False)


def trained(cell: Any, given: PackedSequence, state: Any = None) -> list[Tensor]:
    """Outputs, the final state and all gradients."""
    data = given.data.detach().requires_grad_()
    inputs = PackedSequence(data, given.batch_sizes, given.sorted_indices, given.unsorted_indices)
    outputs, last = tt.dynamic_rnn(cell, inputs, initial_state=state, dtype=torch.float32)
    results = [outputs.data, *torch.utils._pytree.tree_leaves(last)]
    scale = [torch.linspace(-1, 1, leaf.numel()).view(leaf.shape) for leaf in results]
    gradients = torch.autograd.grad(results, [data, *cell.parameters()], scale)
    return [*(leaf.detach() for leaf in results), *gradients]


def check(cell: Any, given: PackedSequence, state: Any = None) -> None:
    found = trained(cell, given, state)
    with tt.backend("reference"):
        check_close("packed", trained(cell, given, state), found)


def test_lengths_and_orders_that_change_from_call_to_call() -> None:
    """All of them have the same number of sequences; some have as many rows, some the same lengths in another order."""
    cell = tt.LSTMCell(4, input_size=3)
    for lengths in ([3, 1, 2], [3, 2, 1], [1, 2, 3], [2, 2, 2], [4, 1, 1], [1, 1, 4], [3, 1, 2], [7, 7, 7]):
        check(cell, packed(lengths))


def test_a_given_state_is_in_the_order_of_the_batch() -> None:
    cell = tt.GRUCell(4, input_size=3)
    for lengths in ([1, 3, 2], [2, 1, 3], [1, 3, 2]):
        check(cell, packed(lengths), torch.randn(3, 4, generator=SMALL))


def in_place(parameter: nn.Parameter) -> None:
    with torch.no_grad():
        parameter.mul_(0.5)


def through_data(parameter: nn.Parameter) -> None:
    # This leaves no trace in the version of a tensor.
    parameter.data.mul_(-1)


def other_data(parameter: nn.Parameter) -> None:
    parameter.data = torch.randn(parameter.shape, generator=SMALL)


def turned_data(parameter: nn.Parameter) -> None:
    parameter.data = parameter.data.T.contiguous().T


@pytest.mark.parametrize("change", [in_place, through_data, other_data, turned_data])
def test_weights_that_change_between_calls(change: Callable[[nn.Parameter], None]) -> None:
    cell, given = tt.LSTMCell(4, input_size=3), packed([2, 4, 1])
    for _ in range(3):
        check(cell, given)
        change(cell.kernel)


def test_a_replaced_weight_and_a_step_of_an_optimizer() -> None:
    cell, given = tt.LSTMCell(4, input_size=3), packed([2, 4, 1])
    check(cell, given)
    cell.kernel = nn.Parameter(torch.randn(cell.kernel.shape, generator=SMALL))
    check(cell, given)
    optimizer = torch.optim.Adam(cell.parameters(), lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        tt.dynamic_rnn(cell, given, dtype=torch.float32)[0].data.square().sum().backward()
        optimizer.step()
        check(cell, given)


def test_inference_first_and_training_later() -> None:
    """What is kept about lengths serves both."""
    cell, given = tt.LSTMCell(4, input_size=3), packed([5, 1, 3])
    with torch.inference_mode():
        for _ in range(2):
            tt.dynamic_rnn(cell, given, dtype=torch.float32)
    check(cell, given)


def test_nothing_holds_the_sequences() -> None:
    cell, given = tt.LSTMCell(4, input_size=3), packed([5, 1, 3])
    for _ in range(2):
        tt.dynamic_rnn(cell, given, dtype=torch.float32)
    last = weakref.ref(given.data)
    enabled = gc.isenabled()
    gc.disable()
    try:
        del given
        assert last() is None
    finally:
        if enabled:
            gc.enable()


def test_lengths_given_twice_are_refused_by_a_known_call_as_well() -> None:
    cell, given = tt.LSTMCell(4, input_size=3), packed([5, 1, 3])
    for _ in range(2):
        tt.dynamic_rnn(cell, given, dtype=torch.float32)
        with pytest.raises(ValueError, match="given twice"):
            tt.dynamic_rnn(cell, given, [5, 1, 3], dtype=torch.float32)


def test_known_calls_are_what_is_meant(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the second call on no backend is chosen, whatever the lengths."""
    cell = tt.LSTMCell(4, input_size=3)
    tt.dynamic_rnn(cell, packed([5, 1, 3]), dtype=torch.float32)

    def never(*_: object, **_options: object) -> None:
        raise AssertionError("a known call must not choose")

    monkeypatch.setattr("throughtime.unroll._engine.choose", never)
    tt.dynamic_rnn(cell, packed([2, 6, 3]), dtype=torch.float32)
    with pytest.raises(AssertionError, match="must not choose"):
        tt.dynamic_rnn(cell, packed([2, 6, 3, 1]), dtype=torch.float32)
