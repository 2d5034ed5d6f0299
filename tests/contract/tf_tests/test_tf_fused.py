"""What TensorFlow's tests of its fused cells ask, restated: they are the plain cells, values and gradients.

From `contrib/rnn/python/kernel_tests`: `gru_ops_test.py`, `lstm_ops_test.py`, `fused_rnn_cell_test.py`.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

import throughtime as tt
from compare import Measured, check_same, gradients

pytestmark = pytest.mark.covers("tf-tests")

X = torch.randn(6, 3, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
LENGTHS = [6, 2, 4]


def measured(run: Any, cell: Any) -> Measured:
    """Outputs, final state, and the gradients of inputs and weights."""
    inputs = X.clone().requires_grad_()
    results = run(inputs)
    weights = {f"weight {index}": weight for index, weight in enumerate(cell.parameters())}
    return Measured(results, gradients(results, {"inputs": inputs, **weights}))


def twins(one: Any, other: Any) -> tuple[Any, Any]:
    """Two cells with the same weights, in the order of their parameters."""
    for cell in (one, other):
        cell.build(4, dtype=torch.float64)
    other.load_state_dict(dict(zip(other.state_dict(), one.state_dict().values(), strict=True)))
    return one, other


PAIRS = {
    "gru": lambda: twins(tt.GRUCell(5), tt.cells.GRUBlockCell(5)),
    "gru v2": lambda: twins(tt.GRUCell(5), tt.cells.GRUBlockCellV2(cell_size=5)),
    "lstm": lambda: twins(tt.BasicLSTMCell(5), tt.cells.LSTMBlockCell(5)),
    "lstm peepholes": lambda: twins(tt.LSTMCell(5, True), tt.cells.LSTMBlockCell(5, use_peephole=True)),
    "lstm clip": lambda: twins(tt.LSTMCell(5, cell_clip=0.5), tt.cells.LSTMBlockCell(5, cell_clip=0.5)),
}


@pytest.mark.parametrize("kind", PAIRS)
def test_block_cell_is_the_plain_cell_in_one_step(kind: str) -> None:
    """One step: values and gradients."""
    plain, block = PAIRS[kind]()
    state = pytree.tree_map(lambda zeros: zeros + 0.1, plain.zero_state(3, torch.float64))
    check_same(*(measured(lambda x, cell=cell: cell(x[0], state), cell) for cell in (plain, block)))


@pytest.mark.parametrize("kind", PAIRS)
def test_block_cell_is_the_plain_cell_through_time(kind: str) -> None:
    """A sequence: values and gradients."""
    plain, block = PAIRS[kind]()

    def run(cell: Any) -> Any:
        return lambda x: tt.dynamic_rnn(cell, x, LENGTHS, dtype=torch.float64, time_major=True)

    check_same(*(measured(run(cell), cell) for cell in (plain, block)))


def test_block_clip_of_zero_is_off() -> None:
    """Unlike in `LSTMCell`, where it clips to nothing."""
    plain, block = twins(tt.LSTMCell(5), tt.cells.LSTMBlockCell(5, cell_clip=0))
    check_same(
        *(measured(lambda x, cell=cell: cell(x[0], cell.zero_state(3, torch.float64)), cell) for cell in (plain, block))
    )


def test_lstm_names_are_compatible() -> None:
    """The plain, the block and the fused cell have the same variables."""
    cells = [tt.LSTMCell(5, True), tt.cells.LSTMBlockCell(5, use_peephole=True)]
    cells.append(tt.interop.LSTMBlockFusedCell(5, use_peephole=True, name="lstm_cell").cell)
    for cell in cells:
        cell.build(4)
    names = [list(tt.interop.tf_variables(cell)) for cell in cells]
    assert names[0] == names[1] == names[2]


@pytest.mark.parametrize("lengths", [None, LENGTHS], ids=["full", "lengths"])
@pytest.mark.parametrize("options", [{}, {"use_peephole": True}, {"cell_clip": 0.5}], ids=str)
def test_fused_lstm_is_the_static_one(options: dict[str, Any], lengths: list[int] | None) -> None:
    """All steps in one call against one call a step: outputs, last states, gradients."""
    fused = tt.interop.LSTMBlockFusedCell(5, dtype=torch.float64, **options)
    fused.cell.build(4)

    def step_by_step(x: Any) -> Any:
        outputs, state = tt.static_rnn(fused.cell, list(x.unbind()), dtype=torch.float64, sequence_length=lengths)
        return torch.stack(outputs), state

    static = measured(step_by_step, fused.cell)
    check_same(static, measured(lambda x: fused(x, dtype=torch.float64, sequence_length=lengths), fused.cell))


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("listed", [False, True])
def test_adaptor_is_static_rnn(listed: bool, dynamic: bool) -> None:
    """A basic cell made fused: values and gradients; lists give lists, tensors give tensors."""
    cell = tt.BasicRNNCell(5, input_size=4, dtype=torch.float64)
    fused = tt.interop.FusedRNNCellAdaptor(cell, use_dynamic_rnn=dynamic)

    def run(x: Any) -> Any:
        outputs, state = fused(list(x.unbind()) if listed else x, dtype=torch.float64)
        assert isinstance(outputs, list) == listed
        return torch.stack(outputs) if listed else outputs, state

    expected = measured(lambda x: tt.dynamic_rnn(cell, x, dtype=torch.float64, time_major=True), cell)
    check_same(expected, measured(run, cell))


@pytest.mark.parametrize("lengths", [None, LENGTHS], ids=["full", "lengths"])
@pytest.mark.parametrize("listed", [False, True])
def test_reversed_is_the_backward_half_of_both(listed: bool, lengths: list[int] | None) -> None:
    """Reversed inputs, reversed outputs, within the lengths also for lists: the backward run of a bidirectional one."""
    cell = tt.BasicRNNCell(5, input_size=4, dtype=torch.float64)
    backwards = tt.interop.TimeReversedFusedRNN(tt.interop.FusedRNNCellAdaptor(cell, use_dynamic_rnn=True))

    def run(x: Any) -> Any:
        outputs, state = backwards(list(x.unbind()) if listed else x, dtype=torch.float64, sequence_length=lengths)
        return torch.stack(outputs) if listed else outputs, state

    def both(x: Any) -> Any:
        outputs, states = tt.bidirectional_dynamic_rnn(cell, cell, x, lengths, dtype=torch.float64, time_major=True)
        return outputs[1], states[1]

    check_same(measured(both, cell), measured(run, cell))


def test_fused_mistakes() -> None:
    """What is no fused cell, and what are no steps."""
    with pytest.raises(
        TypeError, match="`cell` does not run all steps in one call: got GRUCell, expected a FusedRNNCell"
    ):
        tt.interop.TimeReversedFusedRNN(tt.GRUCell(3))
    with pytest.raises(TypeError, match="`inputs` are no steps: got str"):
        tt.interop.LSTMBlockFusedCell(3)("text", dtype=torch.float32)
    backwards = tt.interop.TimeReversedFusedRNN(tt.interop.LSTMBlockFusedCell(3))
    with pytest.raises(
        ValueError, match=r"must be a vector of length batch_size: got shape \(3,\), expected shape \(2,\)"
    ):
        backwards(torch.ones(5, 2, 3), dtype=torch.float32, sequence_length=[5, 2, 3])
