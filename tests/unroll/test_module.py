"""`tt.RNN` as a module among modules, autocast, devices, and the mistake most reported."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

import throughtime as tt
from compare import check_close
from descriptors import BY_NAME, NestCell, settled
from unrolls import Unroll, dynamic, each_unroll

pytestmark = pytest.mark.covers("conformance")

F64 = torch.float64
B, T = 4, 5
LENGTHS = [3, 1, 5, 2]


@pytest.fixture
def inputs() -> Tensor:
    return torch.randn(B, T, 3)


def gru() -> tt.GRUCell:
    """A cell for the inputs above."""
    return settled(tt.GRUCell(4), torch.ones(1, 1, 3), torch.float32)


class Plain(tt.RNNCell):
    """A cell with nothing to show."""

    state_size = output_size = 3


class TestModule:
    def test_in_a_sequence_of_modules(self, inputs: Tensor) -> None:
        model = nn.Sequential(
            tt.RNN(tt.LSTMCell(4), returns="outputs"),
            nn.Dropout(0.0),
            tt.RNN(tt.GRUCell(2), returns="state"),
            nn.Linear(2, 1),
        )
        assert model(inputs).shape == (B, 1)
        assert sum(parameter.numel() for parameter in model.parameters()) == 7 * 16 + 16 + 6 * 6 + 6 + 3
        assert "0.cell.kernel" in model.state_dict()

    @pytest.mark.parametrize("all_states", [False, True])
    def test_returns(self, inputs: Tensor, all_states: bool) -> None:
        cell = gru()
        want = tt.dynamic_rnn(cell, inputs, LENGTHS, dtype=torch.float32, all_states=all_states)
        give = lambda returns: tt.RNN(cell, returns=returns, all_states=all_states)(inputs, LENGTHS)  # noqa: E731
        check_close("both", want, give("both"))
        check_close("outputs", want[0], give("outputs"))
        check_close("state", want[1], give("state"))

    def test_takes_its_dtype_from_the_inputs(self, inputs: Tensor) -> None:
        for dtype in (torch.float32, torch.float64, torch.bfloat16):
            assert tt.RNN(tt.GRUCell(4))(inputs.to(dtype))[0].dtype is dtype
        ids = torch.zeros(2, 3, 1, dtype=torch.long)
        assert tt.RNN(tt.EmbeddingWrapper(tt.GRUCell(4), 5, 3))(ids)[0].dtype is torch.float32
        with_dtype = tt.RNN(tt.EmbeddingWrapper(tt.GRUCell(4), 5, 3), dtype=F64)
        assert with_dtype(ids)[0].dtype is F64

    def test_shows_what_is_not_the_default(self) -> None:
        usual = repr(tt.RNN(Plain()))
        assert usual == "RNN(\n  (cell): Plain()\n)"
        options = {
            "time_major": True,
            "dtype": F64,
            "parallel_iterations": 4,
            "swap_memory": True,
            "all_states": True,
            "checkpoint_every": 2,
            "scope": "encoder",
            "returns": "state",
        }
        shown = repr(tt.RNN(Plain(), **options))
        assert all(f"{name}={value!r}" in shown for name, value in options.items())


class TestAutocast:
    # In a while_loop dtypes are the user's own affair.
    @each_unroll(but="while_loop")
    @pytest.mark.parametrize("name", ["LSTM", "BasicRNN", "nests", "OutputProjection"])
    def test_outputs_and_states_keep_the_dtype_asked_for(self, unroll: Unroll, name: str) -> None:
        case = BY_NAME[name].case(B, T, torch.float32)
        run = lambda: unroll.run(case.cell, case.inputs, LENGTHS, case.state, torch.float32)  # noqa: E731
        with torch.autocast("cpu", torch.bfloat16):
            results = run()
        exact = pytree.tree_leaves(run())
        for got, want in zip(pytree.tree_leaves(results), exact, strict=True):
            assert got.dtype is torch.float32
            check_close("results", want.bfloat16(), got.bfloat16())
        sum(leaf.sum() for leaf in pytree.tree_leaves(results)).backward()
        assert all(parameter.grad.isfinite().all() for parameter in case.cell.parameters())

    def test_is_really_used(self, inputs: Tensor) -> None:
        seen = set()

        class Spy(NestCell):
            def forward(self, inputs: Any, state: Any) -> tuple[Any, Any]:
                seen.add((inputs @ self.kernel[:3]).dtype)
                return super().forward(inputs, state)

        cell = settled(Spy(3, 2, 2), inputs[:1, :1], torch.float32)
        seen.clear()
        with torch.autocast("cpu", torch.bfloat16):
            tt.dynamic_rnn(cell, inputs, dtype=torch.float32)
        assert seen == {torch.bfloat16}


def test_a_device_wrapper_changes_nothing_at_home(inputs: Tensor) -> None:
    cell = gru()
    wrapped = tt.DeviceWrapper(cell, "cpu")
    assert wrapped.device == torch.device("cpu")
    assert wrapped.wrapped_cell is wrapped.cell is cell
    assert list(wrapped.state_dict()) == [f"cell.{name}" for name in cell.state_dict()]
    want, got = (dynamic(one, inputs, LENGTHS, None, torch.float32) for one in (cell, wrapped))
    check_close("results", want, got)


@pytest.mark.parametrize(
    "run",
    [
        lambda cell, inputs: tt.dynamic_rnn(cell, inputs, dtype=torch.float32),
        lambda cell, inputs: tt.static_rnn(cell, inputs.unbind(1), dtype=torch.float32),
        lambda cell, inputs: cell.build(inputs.shape),
    ],
    ids=["dynamic", "static", "build"],
)
def test_one_cell_in_two_layers_of_different_widths(inputs: Tensor, run: Any) -> None:
    cell = tt.MultiRNNCell([tt.LSTMCell(4)] * 3)
    right = r"MultiRNNCell\(\[LSTMCell\(4\) for _ in range\(3\)\]\)"
    with pytest.raises(ValueError, match=right) as error:
        run(cell, inputs)
    assert "cells 0 and 1 of the MultiRNNCell are the same LSTMCell object" in str(error.value)
    assert "widths 3 and 4" in str(error.value)
