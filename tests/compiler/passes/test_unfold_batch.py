"""Rows that a cell folds with slots or heads: unfolded where that is right, refused with the reason where it is not."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import throughtime as tt
from backends import check_on, compiled_backends, plan_of, raises_refusal
from descriptors import Descriptor
from throughtime.compiler import pipeline
from throughtime.compiler.passes import unfold_batch, unfolded_values
from unrolls import dynamic, on
from user_cells import Step, weight

pytestmark = pytest.mark.covers("compiler")

SLOTS = torch.Size([3, 4])


def case(step: Any, *shapes: tuple[int, ...], state: Any = SLOTS, output: Any = 4) -> Any:
    make = lambda _: Step(step, state, output, *(weight(*shape) for shape in shapes))  # noqa: E731
    return Descriptor("folded", make).case(5, 4)


def layer_on_slots(x: Tensor, slots: Tensor, w: Tensor, u: Tensor) -> Any:
    folded = torch.tanh(slots.reshape(-1, 4) @ w).view(slots.shape) + (x @ u).unsqueeze(1)
    return folded.mean(1), 0.5 * folded


def layer_on_heads(x: Tensor, slots: Tensor, w: Tensor, u: Tensor) -> Any:
    """Three axes in one: heads in front of rows, slots behind them."""
    n = slots.shape[0]
    heads = slots.view(n, 3, 2, 2).permute(2, 0, 1, 3).reshape(-1, 2)
    made = torch.softmax(heads @ w, 1).flip(1).view(2, n, 3, 2).permute(1, 2, 0, 3).reshape(n, 3, 4)
    return made.sum(1) + x @ u, torch.tanh(made + slots)


def norms_of_slots(x: Tensor, slots: Tensor, w: Tensor, u: Tensor) -> Any:
    folded = slots.transpose(0, 1).reshape(-1, 4)
    folded = torch.nn.functional.layer_norm(folded, (4,), u[0], u[1]) * (x @ w).repeat(3, 1)
    slots = folded.view(3, -1, 4).transpose(0, 1)
    return slots.amax(1), slots


every_fold = pytest.mark.parametrize(
    ("step", "shapes"),
    [
        (layer_on_slots, ((4, 4), (3, 4))),
        (layer_on_heads, ((2, 2), (3, 4))),
        (norms_of_slots, ((3, 4), (2, 4))),
    ],
    ids=["slots", "heads", "norms"],
)


@compiled_backends
@every_fold
def test_products_of_slots_one_after_another(backend: str, step: Any, shapes: Any) -> None:
    check_on(backend, case(step, *shapes), [2, 0, 4, 1, 4])


@every_fold
def test_products_of_slots_as_a_batch(step: Any, shapes: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a GPU has them."""
    made = unfolded_values.Unfolding
    monkeypatch.setattr(unfold_batch, "Unfolding", lambda **_: made(by_slots=False))
    monkeypatch.setattr(pipeline, "MOST_SLOTS", 1)

    # Not those of the other test, which are compiled already.
    def fresh(*args: Any) -> Any:
        return step(*args)

    folded = case(fresh, *shapes)
    with tt.backend("aten"):
        assert ("bmm" in plan_of(folded, [2, 0, 4, 1, 4]).source) == (step is not norms_of_slots)
    check_on("aten", folded, [2, 0, 4, 1, 4])


def over_folded(x: Tensor, slots: Tensor, w: Tensor) -> Any:
    return x @ w, torch.softmax(slots.reshape(-1, 4), 0).view(slots.shape)


def neighbours(x: Tensor, slots: Tensor, w: Tensor) -> Any:
    return x @ w, (slots.reshape(-1, 4) * torch.arange(3 * len(x)).unsqueeze(1)).view(slots.shape)


def picked(x: Tensor, slots: Tensor, w: Tensor) -> Any:
    return x @ w, slots + slots.reshape(-1, 4)[:1]


def two_orders(x: Tensor, slots: Tensor, w: Tensor) -> Any:
    mixed = slots.reshape(-1, 4) + slots.transpose(0, 1).reshape(-1, 4)
    return x @ w, mixed.view(slots.shape)


@compiled_backends
@pytest.mark.parametrize(
    ("step", "reason"),
    [
        (over_folded, "it folds the rows of a batch into another dimension, where aten._softmax works along them"),
        (neighbours, "rows"),
        (picked, "works along them"),
        (two_orders, "joins rows that are folded in different orders"),
    ],
    ids=["softmax", "places", "slice", "orders"],
)
def test_rows_that_are_mixed_are_refused(backend: str, step: Any, reason: str) -> None:
    mixed = case(step, (3, 4))
    with raises_refusal(backend, reason):
        on(backend, dynamic)(mixed.cell, mixed.inputs, None, mixed.state, mixed.dtype)


@compiled_backends
def test_a_cumulative_product_through_zeros(backend: str) -> None:
    def step(x: Tensor, h: Tensor, w: Tensor) -> Any:
        kept = torch.where(torch.tensor([True, False, True, True]), x @ w + h, 0.0)
        return torch.cumprod(kept, 1), torch.tanh(kept.flip(1).cumprod(-1) + x @ w)

    product = case(step, (3, 4), state=4)
    if backend == "aten":
        check_on(backend, product, None)
    else:
        with raises_refusal(backend, "cumprod"):
            on(backend, dynamic)(product.cell, product.inputs, None, product.state, product.dtype)
