"""What TensorFlow's contrib tests ask of the wrappers that are part of this package, restated.

From `contrib/rnn/python/kernel_tests`: `rnn_cell_test.py`, and those questions of `gru_ops_test.py`, `lstm_ops_test.py`
and `fused_rnn_cell_test.py` that make sense without a second, hand-fused copy of each cell. The stacked bidirectional
unrolls are in `test_tf_bidirectional.py`.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from _tf_cells import fill_kernels, literal
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

import throughtime as tt

pytestmark = pytest.mark.covers("tf-tests")

WRAPPED = {
    "output_projection": lambda: tt.OutputProjectionWrapper(tt.GRUCell(3), 2),
    "input_projection": lambda: tt.InputProjectionWrapper(tt.GRUCell(3), num_proj=3),
    "embedding": lambda: tt.EmbeddingWrapper(tt.GRUCell(2), embedding_classes=3, embedding_size=2),
}


@pytest.mark.parametrize("kernel", ["constant", "ramp"])
@pytest.mark.parametrize("name", WRAPPED)
def test_wrappers_follow_the_published_equations(name: str, kernel: str) -> None:
    """One step of each wrapper around a GRU with simple kernels gives the worked-out numbers."""
    recorded, cell = literal(name, kernel), WRAPPED[name]()
    cell(recorded.inputs, recorded.state[0])
    output, state = fill_kernels(cell, kernel)(recorded.inputs, recorded.state[0])
    torch.testing.assert_close(output, recorded.output, rtol=0, atol=1e-6)
    torch.testing.assert_close(state, recorded.final_state[0], rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", WRAPPED)
def test_wrapper_variables_are_a_level_above_the_cells(name: str) -> None:
    """The wrapper's own variables, and below its name those of the cell inside."""
    recorded, cell = literal(name), WRAPPED[name]()
    cell(recorded.inputs, recorded.state[0])
    own = ["embedding"] if name == "embedding" else ["kernel", "bias"]
    inner = [f"gru_cell/{part}" for part in ("gates/kernel", "gates/bias", "candidate/kernel", "candidate/bias")]
    named = tt.interop.tf_variables(cell, "rnn")
    assert sorted(named) == sorted(f"rnn/{name}_wrapper/{leaf}" for leaf in own + inner)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_embedded_ids_through_time(dtype: torch.dtype) -> None:
    """Ids [B, T, 1] go through dynamic_rnn; the answer is that of the cell inside on the looked-up rows."""
    ids = torch.tensor([[[0], [1], [2]], [[2], [2], [0]]], dtype=dtype)
    cell = WRAPPED["embedding"]()
    outputs, state = tt.dynamic_rnn(cell, ids, sequence_length=[3, 2], dtype=torch.float32)
    expected = tt.dynamic_rnn(
        cell.cell, cell.embedding[ids[..., 0].long()], sequence_length=[3, 2], dtype=torch.float32
    )
    torch.testing.assert_close((outputs, state), expected, rtol=0, atol=0)
    assert outputs.shape == (2, 3, 2)


def test_embedding_learns_the_rows_it_was_asked_for() -> None:
    """Gradients reach the rows of the table that ids named before their row's end, and no others."""
    ids = torch.tensor([[[0], [1], [2]]])
    cell = WRAPPED["embedding"]()
    outputs, _ = tt.dynamic_rnn(cell, ids, sequence_length=[2], dtype=torch.float32)
    outputs.sum().backward()
    assert cell.embedding.grad.any(dim=1).tolist() == [True, True, False]


@pytest.mark.parametrize("make", [tt.GRUCell, tt.LSTMCell])
def test_one_cell_takes_any_batch_and_any_time(make: Any) -> None:
    """Batch size and number of steps are free from call to call."""
    cell = make(3)
    for batch, steps in [(2, 4), (1, 1), (5, 9), (0, 3), (3, 0)]:
        outputs, _ = tt.dynamic_rnn(cell, torch.randn(batch, steps, 4), dtype=torch.float32)
        assert outputs.shape == (batch, steps, 3)


CELLS = {
    "gru": lambda: tt.GRUCell(3, input_size=2, dtype=torch.float64),
    "lstm": lambda: tt.LSTMCell(3, input_size=2, dtype=torch.float64),
    "peepholes": lambda: tt.LSTMCell(3, use_peepholes=True, cell_clip=0.5, input_size=2, dtype=torch.float64),
}


def random_start(cell: Any, batch: int) -> Any:
    """A random initial state that asks for gradients."""
    return tree_map(lambda zeros: torch.randn_like(zeros).requires_grad_(), cell.zero_state(batch, torch.float64))


@pytest.mark.parametrize("kind", CELLS)
def test_gradients_agree_with_finite_differences(kind: str) -> None:
    """Numeric and analytic gradients of a ragged batch agree, for inputs, initial state and every weight."""
    cell = CELLS[kind]()
    inputs = torch.randn(2, 3, 2, dtype=torch.float64, requires_grad=True)
    start = random_start(cell, 2)

    def run(*_: Tensor) -> tuple[Tensor, ...]:
        # gradcheck nudges these tensors in place, so the closure sees every nudge.
        return tuple(tree_leaves(tt.dynamic_rnn(cell, inputs, sequence_length=[3, 2], initial_state=start)))

    assert torch.autograd.gradcheck(run, (inputs, *tree_leaves(start), *cell.parameters()))


@pytest.mark.parametrize("kind", CELLS)
def test_lengths_equal_stepping_by_hand(kind: str) -> None:
    """A batch with lengths is each row called step by step until its end: values, last states and all gradients."""
    cell, lengths = CELLS[kind](), [4, 0, 2]
    inputs = torch.randn(3, 4, 2, dtype=torch.float64, requires_grad=True)
    start = random_start(cell, 3)

    def by_hand(row: int) -> tuple[Tensor, Any]:
        state, outputs = tree_map(lambda leaf: leaf[row : row + 1], start), torch.zeros(1, 4, 3, dtype=torch.float64)
        for t in range(lengths[row]):
            output, state = cell(inputs[row : row + 1, t], state)
            outputs = torch.cat([outputs[:, :t], output.unsqueeze(1), outputs[:, t + 1 :]], dim=1)
        return outputs, state

    def gradients(result: Any) -> Any:
        loss = sum((leaf.sin().sum() for leaf in tree_leaves(result)), torch.zeros([], dtype=torch.float64))
        return torch.autograd.grad(loss, [inputs, *tree_leaves(start), *cell.parameters()])

    result = tt.dynamic_rnn(cell, inputs, sequence_length=lengths, initial_state=start)
    expected = tree_map(lambda *rows: torch.cat(rows), *(by_hand(row) for row in range(3)))
    torch.testing.assert_close(result, expected)
    torch.testing.assert_close(gradients(result), gradients(expected))
