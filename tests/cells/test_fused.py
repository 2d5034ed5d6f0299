"""Fused cells: steps in every form that they may come in, and outputs that are nests."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

import throughtime as tt
from compare import check_close

pytestmark = pytest.mark.covers("conformance")

X = torch.randn(6, 3, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
LENGTHS = [6, 2, 4]


class Pair(tt.RNNCell):
    """Two outputs a step, one of a vector and one of a matrix."""

    state_size = 4
    output_size = (4, {"matrix": torch.Size([2, 4])})

    def forward(self, inputs: Any, state: Any) -> Any:
        if isinstance(inputs, dict):
            inputs = inputs["x"] + inputs["y"][1]
        state = torch.tanh(inputs + state)
        return (state, {"matrix": torch.stack([inputs, state], 1)}), state


def form_of(x: torch.Tensor, form: str) -> Any:
    """Steps in one of the forms they may come in."""
    forms: dict[str, Any] = {
        "tensor": x,
        "list": list(x.unbind()),
        "array": x.numpy(),
        "list of arrays": list(x.numpy()),
        "list of nests": [{"x": step, "y": (step, step.numpy() * 0)} for step in x],
    }
    return forms[form]


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("form", ["tensor", "list", "array", "list of arrays", "list of nests"])
def test_outputs_that_are_nests(form: str, dynamic: bool, backwards: bool) -> None:
    """Every form of steps, by either unroll, forwards and backwards."""
    fused: Any = tt.interop.FusedRNNCellAdaptor(Pair(), use_dynamic_rnn=dynamic)
    fused = tt.interop.TimeReversedFusedRNN(fused) if backwards else fused
    outputs, state = fused(form_of(X, form), dtype=torch.float64, sequence_length=LENGTHS)
    if "list" in form:
        assert isinstance(outputs, list)
        outputs = pytree.tree_map(lambda *steps: torch.stack(steps), *outputs)
    both = tt.bidirectional_dynamic_rnn(Pair(), Pair(), X, LENGTHS, dtype=torch.float64, time_major=True)
    check_close("results", tuple(part[backwards] for part in both), (outputs, state))


def test_steps_that_differ() -> None:
    """They become one tensor: their shapes and dtypes are one."""
    fused = tt.interop.FusedRNNCellAdaptor(tt.GRUCell(4))
    for odd, shown in (
        (torch.ones(2, 4), "(2, 4) of torch.float32 on cpu"),
        (torch.ones(2, 3).double(), "(2, 3) of torch.float64"),
    ):
        words = f"the steps of `inputs` differ: got (2, 3) of torch.float32 on cpu and {shown}"
        for run in (fused, tt.interop.TimeReversedFusedRNN(fused)):
            with pytest.raises(ValueError, match=re.escape(words)):
                run([torch.ones(2, 3), odd], dtype=torch.float32)
    with pytest.raises(ValueError, match=re.escape("`inputs[1]` does not have the same nested structure")):
        fused([torch.ones(2, 3), (torch.ones(2, 3),)], dtype=torch.float32)
    with pytest.raises(TypeError, match="`inputs` are no steps: got a list of numbers"):
        fused([1.0, 2.0], dtype=torch.float32)


def test_lengths_are_passed_on_as_they_came() -> None:
    class Longest(tt.interop.FusedRNNCell):
        def forward(
            self,
            inputs: Any,
            initial_state: Any = None,
            dtype: Any = None,
            sequence_length: Any = None,
            scope: Any = None,
        ) -> Any:
            return inputs * sequence_length.max(), None

    outputs, _ = tt.interop.TimeReversedFusedRNN(Longest())(torch.ones(5, 2, 3), sequence_length=torch.tensor([5, 2]))
    assert (outputs == 5).all()
