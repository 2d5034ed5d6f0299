"""Tests that run inside Triton's interpreter, in a process of their own; see `test_triton.py`."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

os.environ["TRITON_INTERPRET"] = "1"

import pytest
import torch
from triton.runtime import interpreter

import throughtime as tt
from gpu_cases import CELLS, Batch, check, check_states
from throughtime.backends.triton.target import gpu_target
from throughtime.backends.triton.tiling import GpuSpec, StepCost, Tiling, candidates, share

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


# Kernels are kept by their programs: each test has a number of units of its own, and so a geometry of its own.
@pytest.mark.parametrize(
    ("name", "rows", "held", "dtype", "units"),
    [
        ("LSTM", 16, None, torch.float32, 9),
        ("LSTM", 8, 1000, torch.float32, 11),
        ("LSTM", 16, 1000, torch.float16, 12),
        ("LSTM", 8, 0, torch.float32, 13),
        ("LSTM", 16, 0, torch.float16, 14),
        ("RNN", 8, 32, torch.float32, 138),
        ("GRU", 32, 1000, torch.float16, 15),
        ("projection", 8, 1000, torch.float16, 16),
        ("softmax", 8, 1000, torch.float32, 17),
    ],
)
def test_every_way_to_multiply(name: str, rows: int, held: int | None, dtype: torch.dtype, units: int) -> None:
    """Rows pass through shared memory (None), or are operands, with columns of this number of features in registers."""

    def choose(load: StepCost, _batch: int, card: GpuSpec, *_: object, ragged: bool = False) -> Tiling:
        wanted = (rows, held is not None)
        shape = next(shape for shape in candidates(load, card) if (shape.rows, shape.direct) == wanted)
        return shape if held is None else replace(shape, held=tuple(min(held, kept) for kept in shape.resident))

    # Columns of exact products are not taken from shared memory as operands; here all products are exact.
    with gpu_target.change(choose=choose, precision=lambda: "tf32"):
        check(name, Batch(19, 3, units), dtype, "cpu")


@pytest.mark.parametrize(
    ("name", "kept", "dtype", "units"),
    [
        ("LSTM", 0, torch.float32, 91),
        ("LSTM", 64, torch.float32, 92),
        ("GRU", 64, torch.float16, 93),
        ("RNN", 128, torch.float16, 150),
    ],
)
def test_columns_that_do_not_stay_on_chip(name: str, kept: int, dtype: torch.dtype, units: int) -> None:
    """Columns of this number of features stay, the others come from memory at every step."""
    streamed: list[bool] = []

    def choose(load: StepCost, _batch: int, card: GpuSpec, *_: object, ragged: bool = False) -> Tiling:
        shape = next(shape for shape in candidates(load, card) if shape.rows == 16 and not shape.direct)
        shares = [share(group, shape) for group in load.groups]
        resident = tuple(min(kept // shape.ways, features) for features in shares)
        streamed.append(any(few < all_ for few, all_ in zip(resident, shares, strict=True)))
        return replace(shape, resident=resident)

    with gpu_target.change(choose=choose):
        check(name, Batch(19, 3, units), dtype, "cpu")
    assert streamed
    assert all(streamed)


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
