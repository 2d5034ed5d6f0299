"""Tests that run inside Triton's interpreter, in a process of their own; see `test_triton.py`."""

from __future__ import annotations

import os
from typing import Any

os.environ["TRITON_INTERPRET"] = "1"

import pytest
import torch
from triton.runtime import interpreter

import throughtime as tt
from gpu_cases import CELLS, Batch, check, check_states

_patch = interpreter._patch_lang_tensor


def _patch_with_index(tensor: Any, scope: Any) -> None:
    """numpy 2.4 no longer makes a number of an array of one element, as the interpreter does for `range`."""
    _patch(tensor, scope)
    scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))


interpreter._patch_lang_tensor = _patch_with_index


@pytest.mark.parametrize("name", CELLS)
def test_cells(name: str) -> None:
    check(name, Batch(5, 4, 7), torch.float32, "cpu")


def test_several_tiles_of_the_batch_and_many_features() -> None:
    check("LSTM", Batch(19, 3, 37), torch.float32, "cpu")
    check("LSTM", Batch(19, 3, 37, ragged=False), torch.float32, "cpu")


def test_half_precision() -> None:
    check("GRU", Batch(4, 3, 8), torch.float16, "cpu")


@pytest.mark.parametrize("form", ["lengths", "packed"])
def test_states_in_the_order_of_the_batch(form: str) -> None:
    # Once more with the same lengths in another order: what is kept about them is shared.
    for lengths in ([2, 5, 1, 5, 3], [5, 3, 2, 1, 5]):
        check_states(form, lengths, "cpu")


def test_signs_that_wait() -> None:
    """Of the inputs, the state and the weights."""
    cell, x, state = tt.BasicRNNCell(16, input_size=16), torch.randn(3, 4, 16), torch.randn(3, 16)
    with torch.no_grad():
        plain = tt.BasicRNNCell(16, input_size=16)
        plain.load_state_dict(cell.state_dict())
        plain.kernel.mul_(-1)
        cell.kernel.data = torch._neg_view(cell.kernel.data)
        with tt.backend("reference"):
            want = tt.dynamic_rnn(plain, -x, initial_state=-state)
        with tt.backend("triton"):
            for _ in range(2):
                found = tt.dynamic_rnn(cell, torch._neg_view(x), initial_state=torch._neg_view(state))
                torch.testing.assert_close(found, want)


def test_blocks_of_steps() -> None:
    check("LSTM", Batch(4, 5, 6), torch.float32, "cpu", parallel_iterations=2)
    check("LSTM", Batch(4, 5, 6), torch.float32, "cpu", checkpoint_every=2)
    check("LSTM", Batch(4, 5, 6), torch.float32, "cpu", all_states=True)
