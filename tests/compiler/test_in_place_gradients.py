"""Cells that overwrite what autograd has saved: refused as by torch, with recomputed steps too."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import throughtime as tt
from compare import check_close
from user_cells import Step, weight

pytestmark = pytest.mark.covers("compiler")
T, B = 5, 4


def saved(x: Tensor, h: Tensor, w: Tensor) -> Any:
    """torch needs what is overwritten here to differentiate, and says so."""
    y = torch.tanh(x @ w + h)
    y *= 2
    return y, y


def test_what_torch_does_not_differentiate() -> None:
    cell, x = Step(saved, 4, 4, weight(3, 4)), torch.randn(B, T, 3)
    torch.nn.init.normal_(cell.weights[0])
    assert "modified by an inplace operation" in str(tt.explain(cell, x).reasons)
    outputs, _ = tt.dynamic_rnn(cell, x, dtype=torch.float32)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        outputs.sum().backward()
    with torch.no_grad():
        assert tt.explain(cell, x).backend == "cpu"
        check_close("values", outputs.detach(), tt.dynamic_rnn(cell, x, dtype=torch.float32)[0])


def saved_in_the_middle(x: Tensor, h: Tensor, w: Tensor) -> Any:
    y = torch.tanh(x @ w + h)
    z = y.sigmoid()
    y *= 2
    return z, y * z


@pytest.mark.parametrize(("function", "every"), [(saved, 2), (saved, T), (saved_in_the_middle, 1)])
def test_what_torch_does_not_differentiate_with_checkpoints(function: Any, every: int) -> None:
    """Torch itself does not check it there."""
    cell, x = Step(function, 4, 4, weight(3, 4)), torch.randn(B, T, 3)
    torch.nn.init.normal_(cell.weights[0])
    outputs, _ = tt.dynamic_rnn(cell, x, dtype=torch.float32, checkpoint_every=every)
    with pytest.raises(RuntimeError, match=r"modified by an inplace operation: got .* `y \*= 2` by `y = y \* 2`"):
        outputs.sum().backward()


def test_a_recomputed_step_ends_before_it_overwrites() -> None:
    """The second run stops when it has all values that the gradient needs: here there is nothing to refuse."""
    cell, x = Step(saved, 4, 4, weight(3, 4)), torch.randn(B, T, 3)
    torch.nn.init.normal_(cell.weights[0])
    outputs, _ = tt.dynamic_rnn(cell, x, dtype=torch.float32, checkpoint_every=1)
    state, expected_outputs = torch.zeros(B, 4), []
    for inputs in x.unbind(1):
        state = torch.tanh(inputs @ cell.weights[0] + state) * 2
        expected_outputs.append(state)
    expected_gradient = torch.autograd.grad(torch.stack(expected_outputs, 1).sum(), cell.weights[0])
    check_close("gradient", expected_gradient, torch.autograd.grad(outputs.sum(), cell.weights[0]))
