"""What `rnn_cell_test.py` asks of placement: tensors stay where the cell works. GPU halves need a GPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from _tf_cells import TensorArrayStateCell
from torch.utils._pytree import tree_leaves

import throughtime as tt

pytestmark = pytest.mark.covers("tf-tests")

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


def devices(nest: Any) -> set[str]:
    """The kinds of device that a nest's tensors are on."""
    return {leaf.device.type for leaf in tree_leaves(nest)}


@pytest.mark.parametrize("device", DEVICES)
def test_everything_stays_where_the_inputs_are(device: str) -> None:
    """An undeclared cell is built where its first inputs are, and so are outputs, state and what an array holds."""
    inputs, cell = torch.randn(2, 4, 1, device=device), tt.LSTMCell(3)
    result = tt.dynamic_rnn(cell, inputs, sequence_length=[4, 2], dtype=torch.float32)
    assert devices((result, list(cell.parameters()))) == {device}
    _, (_, seen) = tt.dynamic_rnn(TensorArrayStateCell(4), inputs, dtype=torch.float32)
    assert devices(seen.stack()) == {device}


@pytest.mark.parametrize("device", DEVICES)
def test_cell_on_a_device_of_its_own(device: str) -> None:
    """A cell declared for a device works there, whatever device the inputs come from."""
    cell = tt.DeviceWrapper(tt.GRUCell(3), device)
    outputs, state = tt.dynamic_rnn(cell, torch.randn(2, 4, 5), sequence_length=[4, 2], dtype=torch.float32)
    assert devices((outputs, state, list(cell.parameters()))) == {device}


@pytest.mark.parametrize("device", DEVICES)
def test_device_wrapper_places_state_and_output(device: str) -> None:
    """State and output of a wrapped cell are on its device; the cell is found under the name `cell`."""
    inner = tt.GRUCell(3)
    cell = tt.DeviceWrapper(inner, device)
    output, state = cell(torch.zeros(2, 5), cell.zero_state(2, torch.float32))
    assert devices((output, state)) == {device}
    assert dict(cell.named_children()) == {"cell": inner}
