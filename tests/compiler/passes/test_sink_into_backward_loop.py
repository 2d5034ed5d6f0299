"""What a backward kernel computes on its way: as little as possible is left for torch after the loop."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import throughtime as tt
from compare import check_close
from throughtime.backends.checked_cell import CheckedCell
from throughtime.backends.cpu.loop import lower
from throughtime.compiler.passes.sink_into_backward_loop import sink_into_backward_loop
from throughtime.runtime.select import choose

pytestmark = pytest.mark.covers("compiler")


class Half(tt.RNNCell):
    """Gradients of its inputs are in half precision after the loop: kernels for the CPU have no words for that."""

    def __init__(self) -> None:
        super().__init__()
        self.w = torch.nn.Parameter(torch.rand(2, 6))
        self.u = torch.nn.Parameter(torch.rand(6, 6))

    state_size = output_size = property(lambda self: 6)

    def forward(self, inputs: Any, state: Any) -> Any:
        half = torch.tanh(torch.sin(inputs @ self.w).bfloat16())
        new = torch.tanh(half.float() + state @ self.u)
        return new, new


def program_of(cell: Any) -> Any:
    x, state = torch.zeros(2, 2), cell.zero_state(2, torch.float32)
    with tt.backend("aten"):
        choice = choose(CheckedCell(cell, state, torch.float32), x, [x], state, differentiate=True)
    assert choice.executable is not None
    return choice.executable.program


CELLS = {
    "GRU": (lambda: tt.GRUCell(5, input_size=2), {"mul"}),
    "minimal gated unit": (lambda: tt.cells.MinimalGatedUnitCell(5, input_size=2), {"mul"}),
    "peepholes": (lambda: tt.LSTMCell(5, input_size=2, use_peepholes=True), {"mul_8", "mul_14", "mul_16"}),
    "plain": (lambda: tt.BasicRNNCell(5, input_size=2), set()),
}


BEYOND = "beyond the words of kernels"


@pytest.mark.parametrize("name", CELLS)
def test_what_sums_are_taken_of_is_made_in_the_loop(name: str) -> None:
    make, moved = CELLS[name]
    program = program_of(make())
    changed = sink_into_backward_loop(program)
    before, after = program.adjoint.after, changed.adjoint.after
    assert {value.name for value in before.gives} - {value.name for value in after.gives} >= moved
    assert moved <= {value.name for value in changed.adjoint.loop.stored}
    # What is no longer used is not stored.
    assert set(changed.adjoint.loop.stored) <= {*after.takes, *changed.adjoint.gradients}
    assert changed.adjoint.gradients == program.adjoint.gradients
    assert (changed is program) == (not moved)


@pytest.mark.parametrize("lengths", [None, [4, 0, 1, 3]], ids=["dense", "ragged"])
@pytest.mark.parametrize("name", [*CELLS, BEYOND])
def test_gradients_are_those_of_the_reference(name: str, lengths: list[int] | None) -> None:
    cell = Half() if name == BEYOND else CELLS[name][0]()
    x = torch.randn(4, 4, 2, requires_grad=True)
    found: list[list[torch.Tensor]] = []
    for backend in ("reference", "auto", "auto"):
        with tt.backend(backend):
            outputs, _ = tt.dynamic_rnn(cell, x, lengths, dtype=torch.float32)
        found.append([outputs, *torch.autograd.grad(outputs.sin().sum(), [x, *cell.parameters()])])
    for got in found[1:]:
        check_close(name, found[0], got)


def test_what_a_kernel_cannot_say_stays_behind_the_loop() -> None:
    program = program_of(Half())
    assert any(isinstance(reason, str) for reason in lower(sink_into_backward_loop(program)))
    assert tt.explain(Half(), torch.zeros(3, 5, 2), dtype=torch.float32).backend == "cpu"


def test_products_with_one_side_in_common_are_one_operation() -> None:
    """Without a bias, too: nothing is joined for it, nor is a state of the step before copied."""
    cell = tt.cells.LayerNormBasicLSTMCell(16, input_size=8)
    x = torch.randn(3, 5, 8, requires_grad=True)
    source = tt.explain(cell, x, dtype=torch.float32)
    assert source.backend == "cpu"
    with tt.backend("cpu"):
        state = cell.zero_state(3, torch.float32)
        step = CheckedCell(cell, state, torch.float32)
        choice = choose(step, x[:, 0].detach(), [x[:, 0].detach()], state, differentiate=True)
    assert choice.executable is not None
    assert choice.executable.backward is not None
    after, _ = choice.executable.backward.after_loop((True,) * (len(choice.executable.program.tensors) + 1))
    assert after.source.count("over_rows") == 1
    assert "aten_cat" not in after.source
    assert "aten_mm" not in after.source
