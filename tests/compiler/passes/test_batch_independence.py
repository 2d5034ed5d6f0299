"""Rows that stay apart are compiled whatever torch does inside, and gradients of weights must be sums over rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import throughtime as tt
from backends import check_fallback, check_on, plan_of
from descriptors import Case, Descriptor
from user_cells import Step, weight

pytestmark = pytest.mark.covers("compiler")

LENGTHS = [2, 5, 0, 1, 4]


def case_of(step: Callable[..., Any]) -> Case:
    """A step of inputs, state and two weights as a case."""
    return Descriptor("a step", lambda _: Step(step, 4, 4, weight(3, 4), weight(4, 4))).case(5, 5)


def new(x: Tensor, h: Tensor, w: Tensor, u: Tensor) -> Tensor:
    return torch.tanh(x @ w + h @ u)


# Rows stay apart, whatever torch does inside.
APART: dict[str, Callable[..., Tensor]] = {
    "sorted": lambda x, h, w, u: h.sort(1).values,
    "taken along": lambda x, h, w, u: h.take_along_dim(h.argsort(1), 1),
    "scattered": lambda x, h, w, u: torch.zeros_like(h).scatter(1, h.argsort(1), x @ w),
    "the largest so far": lambda x, h, w, u: h.cummax(1).values + h.cummin(1).values + h.logcumsumexp(1),
    "the middle": lambda x, h, w, u: h.median(1, keepdim=True).values + h.kthvalue(2, 1, keepdim=True).values,
    "the two largest": lambda x, h, w, u: h.topk(2, 1).values.tile(2),
    "pooled": lambda x, h, w, u: functional.max_pool1d(h.unsqueeze(1), 3, 1, 1).squeeze(1),
    "pooled to one": lambda x, h, w, u: functional.adaptive_avg_pool2d(h.view(-1, 1, 2, 2), 1).view(-1, 1),
    "looked up": lambda x, h, w, u: u[h.argmax(1)] + u[[0, 1]].sum(0),
    "looked up in two": lambda x, h, w, u: u[h.argmax(1), h.argmin(1)].unsqueeze(1),
    "picked by number": lambda x, h, w, u: h[torch.arange(len(h)), h.argmax(1)].unsqueeze(1),
    "picked from the end": lambda x, h, w, u: h[torch.arange(len(h)), -1 - h.argmax(1)].unsqueeze(1),
    "picked twice": lambda x, h, w, u: h[torch.arange(len(h))[:, None], h.topk(2, 1).indices].tile(2),
    "a slot picked": lambda x, h, w, u: h.view(-1, 2, 2)[torch.arange(len(h)), (h[:, 0] > 0).long()].tile(2),
    "written by number": lambda x, h, w, u: torch.index_put(
        x @ w, (torch.arange(len(h)), h.argmax(1)), h.amin(1), accumulate=True
    ),
    "slots": lambda x, h, w, u: functional.linear(h.view(-1, 2, 2), u[:2, :2], u[3, :2]).flatten(1),
    "heads": lambda x, h, w, u: (h.view(-1, 2, 2, 1) @ h.view(-1, 2, 1, 2)).sum(3).flatten(1),
    "picked": lambda x, h, w, u: h.index_select(1, torch.tensor([3, 0, 0, 1])),
    "in buckets": lambda x, h, w, u: torch.bucketize(h, torch.linspace(-1, 1, 5)).to(h.dtype),
    "triangles": lambda x, h, w, u: h.view(-1, 2, 2).tril().flatten(1),
    "columns, then rows": lambda x, h, w, u: (w.T @ x.T).T.contiguous(),
    "einsum of three": lambda x, h, w, u: torch.einsum("bi,ij,bj->bj", x, w, h),
    "einsum of heads": lambda x, h, w, u: torch.einsum("bhi,hij->bhj", h.view(-1, 2, 2), u.view(2, 2, 4)).sum(1),
    "a function without a slope": lambda x, h, w, u: h * u[0].round(),
    "weights that are clamped": lambda x, h, w, u: h * u[0].clamp(-0.5, 0.5),
    "drawn from nothing": lambda x, h, w, u: 0 * functional.gumbel_softmax(h),
}


@pytest.mark.parametrize("step", APART.values(), ids=APART)
def test_rows_that_stay_apart(step: Callable[..., Tensor]) -> None:
    """Also for one row, where torch itself goes other ways."""
    case = case_of(lambda x, h, w, u: (h, torch.tanh(step(x, h, w, u) + x @ w + h @ u)))
    assert plan_of(case).backend != "reference", plan_of(case).reasons
    check_on("aten", case, LENGTHS)


# What is picked belongs to other rows after all, or to none.
NUMBERED: dict[str, Callable[..., Tensor]] = {
    "the row before": lambda x, h, w, u: h[torch.arange(len(h)) - 1, h.argmax(1)].unsqueeze(1),
    "the other way round": lambda x, h, w, u: h[torch.arange(len(h) - 1, -1, -1), h.argmax(1)].unsqueeze(1),
    "by features": lambda x, h, w, u: h[h.argmax(1) % len(h), h.argmax(1)].unsqueeze(1),
    "numbers used besides": lambda x, h, w, u: h[(n := torch.arange(len(h))), h.argmax(1)].unsqueeze(1) + n[:, None],
    "every row by every row": lambda x, h, w, u: h[torch.arange(len(h))[:, None], h.argmax(1)].mean(1, keepdim=True),
    "slots of others": lambda x, h, w, u: (h.view(-1, 2, 2).transpose(0, 1).reshape(-1, 2, 2) @ u[:2]).sum(1),
}


@pytest.mark.parametrize("step", NUMBERED.values(), ids=NUMBERED)
def test_rows_that_are_picked_by_others(step: Callable[..., Tensor]) -> None:
    case = case_of(lambda x, h, w, u: (h, torch.tanh(step(x, h, w, u) + x @ w + h @ u)))
    assert plan_of(case).backend == "reference"
    check_on("auto", case, LENGTHS)


class Slots(tt.RNNCell):
    """A memory of slots that attend to each other, with modules of torch."""

    def __init__(self, slots: int, read: Callable[..., Tensor], **options: Any) -> None:
        super().__init__()
        self.state_size, self.output_size, self.read = torch.Size([slots, 4]), 4, read
        self.below, self.above = nn.Linear(3, 4), nn.Linear(4, 4)
        self.attention = nn.MultiheadAttention(4, 2, **options)

    def forward(self, x: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        query = self.below(x).unsqueeze(1)
        memory = torch.tanh(self.above(memory) + self.read(self.attention, query, memory))
        return memory.mean(1), memory


def by_keys(attention: Any, query: Tensor, memory: Tensor) -> Tensor:
    found, weights = attention(query, memory, memory, need_weights=True)
    return found + weights.transpose(1, 2)


def to_each_other(attention: Any, query: Tensor, memory: Tensor) -> Tensor:
    turned, past = (memory + query).transpose(0, 1), torch.ones(memory.shape[1], memory.shape[1]).triu(1).bool()
    hidden = (memory[:, :, 0] > 0.5) & (torch.arange(memory.shape[1]) > 0)
    found, weights = attention(
        turned, turned, turned, key_padding_mask=hidden, attn_mask=past, average_attn_weights=False
    )
    return found.transpose(0, 1) + weights.sum((1, 3)).unsqueeze(2)


def among_rows(attention: Any, query: Tensor, memory: Tensor) -> Tensor:
    return attention(memory, memory, memory, need_weights=False)[0] + query


@pytest.mark.parametrize("slots", [1, 2, 3])
@pytest.mark.parametrize(("read", "options"), [(by_keys, {"batch_first": True, "bias": False}), (to_each_other, {})])
def test_attention_within_a_row(slots: int, read: Callable[..., Tensor], options: dict[str, Any]) -> None:
    case = Descriptor("slots", lambda _: Slots(slots, read, **options)).case(5, 5)
    assert plan_of(case).backend == "cpu", plan_of(case).reasons
    for backend in ("aten", "auto"):
        check_on(backend, case, LENGTHS)
        check_on(backend, Descriptor("slots", lambda _: Slots(slots, read, **options)).case(1, 3), None)


def test_attention_among_rows() -> None:
    check_fallback(Descriptor("slots", lambda _: Slots(3, among_rows)).case(5, 5), "rows in the batch", LENGTHS)


class Normal(tt.RNNCell):
    """Slots come first where they are normalised, as in a transformer of torch."""

    state_size = output_size = torch.Size([2, 4])

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(4)

    def forward(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        normal = self.norm(state.transpose(0, 1)).transpose(0, 1)
        state = torch.tanh(normal + x[:, :1, None])
        return 2 * state, state


@pytest.mark.parametrize("lengths", [None, LENGTHS])
def test_norms_of_rows_that_do_not_come_first(lengths: Any) -> None:
    case = Descriptor("normal", lambda _: Normal()).case(5, 5)
    assert plan_of(case).backend == "cpu", plan_of(case).reasons
    for backend in ("aten", "auto"):
        check_on(backend, case, lengths)


class Turned(tt.RNNCell):
    """What lies in order at the first step of the backward pass does not at the second."""

    state_size = output_size = torch.Size([4, 2])

    def forward(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        turned = state.transpose(1, 2)
        state = torch.tanh((turned * turned[:, :1]).reshape(-1, 4, 2) + x[:, :2].unsqueeze(1))
        return 2 * state, state


@pytest.mark.parametrize("lengths", [None, LENGTHS])
def test_rows_may_lie_in_another_order_at_every_step(lengths: Any) -> None:
    check_on("aten", Descriptor("turned", lambda _: Turned()).case(5, 5), lengths)


class Pulled(torch.autograd.Function):
    """The identity, with a gradient of its own for a weight, or for what passes."""

    @staticmethod
    def forward(ctx: Any, y: Tensor, weight: Tensor, backward: Callable[..., Any]) -> Tensor:
        ctx.save_for_backward(weight)
        ctx.backward_of = backward
        return y.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return *ctx.backward_of(gradients[0], *ctx.saved_tensors), None


@pytest.mark.parametrize("backend", ["reference", "cpu", "aten"])
def test_what_has_no_gradient_asks_for_none(backend: str) -> None:
    """A constant output, and a counter alone, with nothing to carry backwards."""
    case = case_of(lambda x, h, w, u: (torch.ones_like(h), new(x, h, w, u)))
    with tt.backend(backend):
        outputs, state = tt.dynamic_rnn(case.cell, case.inputs, LENGTHS, case.state, case.dtype)
        assert (outputs.requires_grad, state.requires_grad) == (False, True)
        counter = Step(lambda x, count, w: (x @ w * count, count + 1), torch.Size([]), 4, weight(3, 4)).double()
        nn.init.ones_(counter.weights[0])
        start = torch.zeros((), dtype=torch.int32)
        outputs, _ = tt.dynamic_rnn(counter, case.inputs, None, start, case.dtype)
        (gradient,) = torch.autograd.grad(outputs.sum(), counter.weights[0])
    torch.testing.assert_close(gradient, (case.inputs.sum(0) * torch.arange(5.0)[:, None]).sum(0)[:, None].expand(3, 4))


@pytest.mark.parametrize("backend", ["cpu", "aten"])
def test_corners_of_activations(backend: str) -> None:
    """Where a function has two slopes, torch's is the one."""
    names = ("hardswish", "hardtanh", "relu", "relu6", "hardsigmoid", "leaky_relu", "elu", "selu", "hardshrink")
    case = case_of(lambda x, h, w, u: (sum(getattr(functional, name)(x) for name in names), h))
    case.cell.output_size = 3
    inputs = torch.arange(-7.0, 8.0, dtype=case.dtype).view(1, 5, 3).repeat(5, 1, 1)
    check_on(backend, case._replace(inputs=inputs), None)


SUM = "not a sum over rows"
PULLS: dict[str, tuple[Callable[..., Any], str]] = {
    "ones": (lambda d, w: (d, torch.ones_like(w)), SUM),
    "zeros and one": (lambda d, w: (d, torch.zeros_like(w) + 1), SUM),
    "a sum and one": (lambda d, w: (d, d.sum(0) + 1), SUM),
    "one less a sum": (lambda d, w: (d, 1 - d.sum(0)), SUM),
    "rounded": (lambda d, w: (d, torch.div(d.sum(0), w, rounding_mode="floor")), SUM),
    "whole numbers": (lambda d, w: (d, d.sum(0).long().to(d.dtype)), SUM),
    "written into a weight": (lambda d, w: (d, torch.select_scatter(w, d.sum(), 0, 0)), SUM),
    "spread over rows": (lambda d, w: (d.sum(0).expand_as(d), d.sum(0)), "rows"),
    "another for a single row": (lambda d, w: (d * (2 if len(d) == 1 else 1), d.sum(0)), "number of rows"),
}


@pytest.mark.parametrize(("backward", "reason"), PULLS.values(), ids=PULLS)
def test_gradients_that_do_not_add_up(backward: Callable[..., Any], reason: str) -> None:
    """A program computes the gradient of a weight once for all steps: it must be the sum of theirs."""
    check_fallback(case_of(lambda x, h, w, u: (h, Pulled.apply(new(x, h, w, u), u[0], backward))), reason, LENGTHS)


def test_a_gradient_of_zeros_adds_up() -> None:
    case = case_of(lambda x, h, w, u: (h, Pulled.apply(new(x, h, w, u), u[0], lambda d, w: (d, torch.zeros_like(w)))))
    assert plan_of(case).backend == "cpu"
    check_on("auto", case, LENGTHS)


CALLED: dict[str, Callable[[Tensor], Tensor]] = {
    "sums by name": lambda m: torch.cumsum(input=m, dim=1) / 4,
    "sums along an axis": lambda m: torch.cumsum(m, axis=2) / 4,
    "sums in place": lambda m: torch.cumsum(m, 2).mul_(0.3),
    "triangles by name": lambda m: torch.tril(input=m, diagonal=1),
    "norms with an option": lambda m: torch.layer_norm(m, (4,), None, None, 1e-5, False),
    "products by name": lambda m: torch.matmul(input=m, other=torch.eye(4, dtype=m.dtype).roll(1, 0)),
    "whole numbers": lambda m: m + torch.einsum("bse,bse->bs", *[(m * 3e4).int()] * 2).unsqueeze(2) * 1e-10,
}


@pytest.mark.parametrize("name", CALLED)
def test_functions_in_every_way_that_torch_has_them(name: str) -> None:
    def step(x: Tensor, m: Tensor) -> tuple[Tensor, Tensor]:
        m = torch.tanh(CALLED[name](m) + x[:, :1, None])
        return m, m

    case = Descriptor(name, lambda _: Step(step, torch.Size([3, 4]), torch.Size([3, 4]))).case(5, 5)
    assert plan_of(case).backend != "reference", plan_of(case).reasons
    check_on("auto", case, LENGTHS)


@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.uint8], ids=str)
def test_small_whole_numbers_are_no_defect(dtype: torch.dtype) -> None:
    def step(x: Tensor, m: Tensor) -> tuple[Tensor, Tensor]:
        m = torch.tanh(m + x[:, :1] + (3 * m).to(dtype).to(m.dtype))
        return m, m

    plan = plan_of(Descriptor("small", lambda _: Step(step, 4, 4)).case(5, 5))
    assert plan.backend == "aten"
    assert plan.reasons["cpu"].endswith(f"has dtype {str(dtype).removeprefix('torch.')}")


MISTAKEN: dict[str, Callable[[Tensor], Tensor]] = {
    "no such dimension": lambda m: torch.cumsum(m, 3),
    "two masks": lambda m: functional.scaled_dot_product_attention(m, m, m, torch.zeros(3, 3), is_causal=True),
    "a mask of whole numbers": lambda m: functional.scaled_dot_product_attention(m, m, m, torch.zeros(3, 3).long()),
    "a bias for each": lambda m: functional.linear(m, torch.ones(4, 4), torch.ones(2, 4, dtype=torch.float64)),
}


@pytest.mark.parametrize("name", MISTAKEN)
def test_mistakes_are_those_of_torch(name: str) -> None:
    """What stands for a function while a step is traced must not do what the function would not."""

    def step(x: Tensor, m: Tensor) -> tuple[Tensor, Tensor]:
        m = torch.tanh(MISTAKEN[name](m) + x[:, :1, None])
        return m, m

    cell, inputs = Step(step, torch.Size([3, 4]), torch.Size([3, 4])), torch.randn(2, 4, 3)
    for backend in ("reference", "auto"):
        with tt.backend(backend), pytest.raises((RuntimeError, IndexError)):
            tt.dynamic_rnn(cell, inputs, dtype=torch.float32)
