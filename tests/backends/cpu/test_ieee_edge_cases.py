"""Steps at the edges of arithmetic as the reference has them, to the last sign, and results that are their owner's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import throughtime as tt

pytestmark = pytest.mark.covers("compiler")

INFINITY, NAN = float("inf"), float("nan")


class Stepping(tt.RNNCell):
    """`step(cell, x, h)` gives outputs and state, `size` features each."""

    def __init__(self, step: Callable[[Any, Tensor, Tensor], Any], size: int = 3, **parts: Any) -> None:
        super().__init__()
        self.step, self.size = step, size
        for name, part in parts.items():
            if isinstance(part, nn.Module):
                self.add_module(name, part)
            else:
                self.register_buffer(name, part)

    state_size = output_size = property(lambda self: self.size)

    def forward(self, inputs: Any, state: Any) -> Any:
        return self.step(self, inputs, state)


def in_loop(x: Tensor, h: Tensor) -> Tensor:
    """The inputs, as far as a compiler can know: what comes after cannot leave the loop."""
    return torch.where(h > 9, h, x)


def same(one: Callable[[Tensor], Tensor]) -> Callable[[Any, Tensor, Tensor], Any]:
    def step(_: Any, x: Tensor, h: Tensor) -> Any:
        return one(in_loop(x, h)), h * 0

    return step


def zeros(x: Tensor, width: int) -> Tensor:
    return torch.zeros(x.shape[0], width, dtype=x.dtype)


def pieces(_: Any, x: Tensor, h: Tensor) -> Any:
    """Two pieces in zeros, one of which is spread over all features."""
    narrow = torch.slice_scatter(zeros(x, 1), x[:, :1] + h[:, :1], 1, 0, 1)
    new = narrow + torch.slice_scatter(zeros(x, 3), x[:, 2:] + h[:, 2:], 1, 2, 3)
    return new, new


def signs(_: Any, x: Tensor, h: Tensor) -> Any:
    ones = torch.ones_like(x)
    return torch.copysign(ones, (x + h) * 0.0) + 2 * torch.copysign(ones, (x + h) * -0.0), h


def compared(cell: Any, x: Tensor, h: Tensor) -> Any:
    new = (x + h * 0 > cell.bound).to(x.dtype)
    return new, new


def looked_up(cell: Any, x: Tensor, h: Tensor) -> Any:
    new = torch.tanh(cell.table((x[:, 0] > 0).long()) + h)
    return new, new


CASES: dict[str, tuple[Stepping, list[float]]] = {
    "rounded to a digit": (Stepping(same(lambda v: torch.round(v, decimals=1))), [0.26, 1.04, -3.17]),
    "the root of nothing": (Stepping(same(lambda v: torch.sqrt(torch.relu(v)))), [-1.0, -2.0, 4.0]),
    "the root of hardswish": (Stepping(same(lambda v: torch.sqrt(functional.hardswish(v)))), [-4.0, -5.0, 4.0]),
    "elu of NaN": (Stepping(same(functional.elu)), [NAN, 1.0, -1.0]),
    "hardtanh of NaN": (Stepping(same(functional.hardtanh)), [NAN, 1.0, -1.0]),
    "the sign of a zero that is repeated": (
        Stepping(same(lambda v: (1 / v[:, :1].expand(-1, 3)).clamp(-1, 1))),
        [-0.0, -0.0, -0.0],
    ),
    "two zeros": (Stepping(signs), [1.0, 1.0, 1.0]),
    "pieces of other widths": (Stepping(pieces), [1.0, 1.0, 1.0]),
    "against a double": (Stepping(compared, bound=torch.tensor(0.1, dtype=torch.float64)), [0.1, 0.2, 0.3]),
    "a table that counts": (Stepping(looked_up, table=nn.Embedding(2, 3, scale_grad_by_freq=True)), [1.0, 2.0, 3.0]),
}


@pytest.mark.parametrize("name", CASES)
def test_as_the_reference_has_it(name: str) -> None:
    cell, row = CASES[name]
    found = []
    for backend in ("reference", "auto", "auto", "auto"):
        x = torch.tensor([[row, row], [row, row]], requires_grad=True)
        sources = [x, *cell.parameters()]
        with tt.backend(backend):
            outputs, state = tt.dynamic_rnn(cell, x, dtype=torch.float32)
        total = outputs.sum() + state.sum()
        gradients = torch.autograd.grad(total, sources, allow_unused=True) if total.requires_grad else ()
        zero = [torch.zeros_like(source) for source in sources]
        found.append([outputs, *(one if other is None else other for one, other in zip(zero, gradients, strict=False))])
    for got in found[1:]:
        for want, one in zip(found[0], got, strict=False):
            torch.testing.assert_close(one, want, equal_nan=True)


def given(_: Any, x: Tensor, h: Tensor) -> Any:
    return x, torch.tanh(x + h)


def of_the_cell(cell: Any, x: Tensor, h: Tensor) -> Any:
    return cell.table.expand(len(x), 3), torch.tanh(x + h)


class Twice(Stepping):
    output_size = property(lambda self: (self.size, self.size))


OWNED: dict[str, Stepping] = {
    "the input": Stepping(given),
    "a tensor of the cell": Stepping(of_the_cell, table=torch.ones(3)),
    "one value twice": Twice(lambda _, x, h: ((h, h), torch.tanh(x + h))),
}


@pytest.mark.parametrize("lengths", [None, [3, 1]], ids=["dense", "ragged"])
@pytest.mark.parametrize("trains", [False, True])
@pytest.mark.parametrize("name", OWNED)
def test_results_are_their_owners_to_change(name: str, trains: bool, lengths: Any) -> None:
    cell = OWNED[name]
    for _ in range(3):
        x = torch.ones(2, 3, 3, requires_grad=trains)
        with torch.set_grad_enabled(trains):
            outputs, state = tt.dynamic_rnn(cell, x, lengths, dtype=torch.float32)
        first, *others = outputs if isinstance(outputs, tuple) else (outputs,)
        before = [leaf.detach().clone() for leaf in (x, state, *others, *cell.buffers())]
        first.detach()[0, 0, 0] = 5
        assert int((first == 5).sum()) == 1
        for was, now in zip(before, (x, state, *others, *cell.buffers()), strict=True):
            assert torch.equal(was, now)


def test_gradients_switched_on_in_inference_mode() -> None:
    """torch notes nothing there, whatever is switched on."""
    for make in (lambda: tt.LSTMCell(4, input_size=3), lambda: tt.GRUCell(4, input_size=3)):
        cell, x = make(), torch.randn(2, 5, 3)
        for lengths in (None, [5, 2]):
            want = tt.dynamic_rnn(cell, x, lengths, dtype=torch.float32)[0]
            for _ in range(3):
                with torch.inference_mode(), torch.enable_grad():
                    outputs, _ = tt.dynamic_rnn(cell, x, lengths, dtype=torch.float32)
                assert outputs.is_inference()
                torch.testing.assert_close(outputs.clone(), want.detach())


@pytest.mark.parametrize("time", [0, 3])
@pytest.mark.parametrize("backend", ["auto", "reference"])
def test_without_a_step_gradients_are_zeros(backend: str, time: int) -> None:
    """A loss of nothing else can be gone back from all the same, and what came as a state has its gradient."""
    cell, x = tt.GRUCell(4, input_size=3), torch.randn(2, time, 3, requires_grad=True)
    start = torch.randn(2, 4, requires_grad=True)
    with tt.backend(backend):
        outputs, state = tt.dynamic_rnn(cell, x, [0, 0] if time else None, start)
    (outputs.sum() + 3 * state.sum()).backward()
    assert torch.equal(start.grad, torch.full((2, 4), 3.0))
    for source in (x, *cell.parameters()):
        assert torch.equal(source.grad, torch.zeros_like(source))
    with torch.no_grad():
        assert not tt.dynamic_rnn(cell, x, [0, 0] if time else None, start)[0].requires_grad
