"""Cells that keep gradients from something or have some of their own: the same of any order, and for many at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import throughtime as tt
from compare import check_close

pytestmark = pytest.mark.covers("gradients")


class Own(torch.autograd.Function):
    """Any function, with the gradient of one that multiplies by a factor."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, function: Callable[[Tensor], Tensor], factor: float) -> Tensor:
        ctx.factor = factor
        return function(value)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return gradient * ctx.factor, None, None


def without_gradient(value: Tensor) -> Tensor:
    with torch.no_grad():
        return torch.tanh(value)


STEPS: dict[str, Callable[[Any, Tensor, Tensor], Tensor]] = {
    "a detached state": lambda cell, x, h: torch.tanh(x @ cell.w + h.detach()),
    "straight through": lambda cell, x, h: (
        _sum(cell, x, h) + (torch.tanh(_sum(cell, x, h)) - _sum(cell, x, h)).detach()
    ),
    "times itself, detached": lambda cell, x, h: 0.1 * _sum(cell, x, h) * _sum(cell, x, h).detach(),
    "a detached parameter": lambda cell, x, h: torch.tanh(_sum(cell, x, h)) * cell.w[0].detach(),
    "without gradients": lambda cell, x, h: _sum(cell, x, h) * without_gradient(_sum(cell, x, h)),
    "reversed": lambda cell, x, h: torch.tanh(Own.apply(_sum(cell, x, h), torch.clone, -1.0)),
    "rounded": lambda cell, x, h: torch.tanh(Own.apply(3 * _sum(cell, x, h), torch.round, 1.0)),
    "none of that": lambda cell, x, h: torch.tanh(_sum(cell, x, h)),
}


def _sum(cell: Any, x: Tensor, h: Tensor) -> Tensor:
    return x @ cell.w + h


class Stepping(tt.RNNCell):
    state_size = output_size = property(lambda self: 2)

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.w = torch.nn.Parameter(torch.tensor([[0.7, -0.4], [0.2, 0.9], [-0.5, 0.3]], dtype=torch.float64))

    def forward(self, inputs: Any, state: Any) -> Any:
        new = STEPS[self.name](self, inputs, state)
        return new, new


LENGTHS = [None, [4, 0, 2]]


def unrolled(cell: Any, lengths: Any, how: str) -> list[Tensor]:
    """Gradients, and with `twice` those of a function of them."""
    torch.manual_seed(0)
    x = torch.randn(3, 4, 3, dtype=torch.float64, requires_grad=True)
    start = torch.randn(3, 2, dtype=torch.float64, requires_grad=True)
    outputs, state = tt.dynamic_rnn(cell, x, lengths, start)
    loss, sources = outputs.sin().sum() + state.cos().sum(), [x, start, cell.w]
    if how == "many":
        many = torch.stack([torch.ones_like(outputs), torch.arange(24.0, dtype=torch.float64).view(3, 4, 2)])
        return gradients(outputs, sources, grad_outputs=many, is_grads_batched=True)
    first = gradients(loss, sources, create_graph=how == "twice")
    if how == "once":
        return first
    return [*first, *gradients(sum(gradient.square().sum() for gradient in first), sources)]


def gradients(of: Any, sources: list[Tensor], **options: Any) -> list[Tensor]:
    """Zeros where there is none."""
    found = torch.autograd.grad(of, sources, allow_unused=True, **options)
    return [torch.zeros_like(source) if one is None else one for one, source in zip(found, sources, strict=True)]


@pytest.mark.parametrize("lengths", LENGTHS, ids=["dense", "ragged"])
@pytest.mark.parametrize("name", STEPS)
def test_of_any_order(name: str, lengths: Any) -> None:
    cell = Stepping(name)
    for how in ("once", "twice", "many"):
        with tt.backend("reference"):
            want = unrolled(cell, lengths, how)
        for backend in ("auto", "auto", "aten"):
            with tt.backend(backend):
                got = unrolled(cell, lengths, how)
            assert len(got) == len(want)
            for one, other in zip(got, want, strict=True):
                # One of many that are all zeros may be a single one.
                check_close(f"{name}, {how}, {backend}", *torch.broadcast_tensors(one, other))


def test_only_such_cells_are_run_again(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = []
    for name in ("none of that", "reversed"):
        calls = []
        cell = Stepping(name)
        step = STEPS[name]
        unrolled(cell, None, "once")
        monkeypatch.setitem(STEPS, name, lambda *args, step=step, calls=calls: (calls.append(1), step(*args))[1])
        unrolled(cell, None, "twice")
        counts.append(len(calls))
    assert counts[0] == 0
    assert counts[1] == 4


@pytest.mark.parametrize("name", STEPS)
def test_the_plan_says_so(name: str) -> None:
    x = torch.zeros(3, 4, 3, dtype=torch.float64)
    plan = tt.explain(Stepping(name), x, dtype=torch.float64)
    assert ("gradients of gradients: the cell itself" in str(plan)) == (name != "none of that")


class Noisy(Stepping):
    def forward(self, inputs: Any, state: Any) -> Any:
        new = torch.tanh(_sum(self, inputs, state.detach()) + torch.rand_like(state))
        return new, new


def test_with_random_numbers_it_says_so() -> None:
    cell = Noisy("none of that")
    unrolled(cell, None, "once")
    with pytest.raises(
        RuntimeError, match=r"detaches something and draws random numbers.*tt\.backend\(\"reference\"\)"
    ):
        unrolled(cell, None, "twice")


def test_what_has_changed_since_is_noticed() -> None:
    """The options of a cell that is run again were part of its forward pass."""
    cell = Stepping("a detached state")
    x = torch.randn(3, 4, 3, dtype=torch.float64, requires_grad=True)
    outputs, _ = tt.dynamic_rnn(cell, x, dtype=torch.float64)
    cell.eval()
    with pytest.raises(RuntimeError, match="is not what it was in the forward pass"):
        torch.autograd.grad(outputs.sum(), x, create_graph=True)


@pytest.mark.parametrize("make", [lambda: tt.GRUCell(2, input_size=3), lambda: Stepping("reversed")])
def test_frozen_since_then(make: Callable[[], Any]) -> None:
    """Gradient penalties freeze what they are the penalty of."""
    found = []
    for backend in ("reference", "auto", "auto"):
        torch.manual_seed(0)
        cell = make().double()
        x = torch.randn(3, 4, 3, dtype=torch.float64, requires_grad=True)
        with tt.backend(backend):
            outputs, _ = tt.dynamic_rnn(cell, x, dtype=torch.float64)
            if isinstance(cell, tt.GRUCell):
                cell.requires_grad_(False)
            (gradient,) = torch.autograd.grad(outputs.sum(), x, create_graph=True)
            found.append([gradient, *torch.autograd.grad(gradient.square().sum(), x)])
    for got in found[1:]:
        check_close("frozen", found[0], got)
