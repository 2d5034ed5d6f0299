"""A number that a step reads from an object of any kind: when it changes, the next call notices."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import partial
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

import throughtime as tt
from backends import check_on, plan_of
from compare import check_close
from descriptors import Case, random_inputs
from user_cells import TorchGRU

pytestmark = pytest.mark.covers("compiler")


def case_of(cell: Any) -> Case:
    """A cell with whatever weights it has."""
    return Case(cell.double(), random_inputs(3, 4, 4, torch.float64), None, torch.float64)


def outputs_of(case: Case) -> Tensor:
    return tt.dynamic_rnn(case.cell, case.inputs, dtype=case.dtype)[0]


@dataclass(slots=True, frozen=True)
class Frozen:
    scale: float


class Slotted:
    __slots__ = ("__scale", "scale")

    def __init__(self) -> None:
        self.scale = 1.0


class Namespace:
    scale = 1.0


def closing_over(held: list[float]) -> Any:
    return lambda: held[0]


def with_default(held: list[float]) -> Any:
    return lambda held=held: held[0]


HELD = [1.0]
# What a cell holds, how it reads a number there, and how the number is changed.
OPTIONS: dict[str, tuple[Callable[[], Any], Callable[[Any], float], Callable[[Any], Any]]] = {
    "slots": (Slotted, lambda held: held.scale, lambda held: setattr(held, "scale", -2.0)),
    "a frozen dataclass": (
        lambda: Frozen(1.0),
        lambda held: held.scale,
        lambda held: object.__setattr__(held, "scale", -2.0),
    ),
    "slots in a set": (
        lambda: {Slotted()},
        lambda held: next(iter(held)).scale,
        lambda held: setattr(next(iter(held)), "scale", -2.0),
    ),
    "a namespace": (
        lambda: SimpleNamespace(scale=1.0),
        lambda held: held.scale,
        lambda held: vars(held).update(scale=-2.0),
    ),
    "a view of a dict": (
        lambda: MappingProxyType(vars(Slotted) | {"scale": HELD}),
        lambda held: held["scale"][0],
        lambda held: held["scale"].__setitem__(0, -2.0),
    ),
    "a class": (lambda: Namespace, lambda held: held.scale, lambda held: setattr(held, "scale", -2.0)),
    "bytes": (lambda: bytearray([1]), lambda held: held[0], lambda held: held.__setitem__(0, 7)),
    "an array": (lambda: array("d", [1]), lambda held: held[0], lambda held: held.__setitem__(0, -2.0)),
    "a closure": (
        lambda: closing_over([1.0]),
        lambda held: held(),
        lambda held: held.__closure__[0].cell_contents.__setitem__(0, -2.0),
    ),
    "a default": (
        lambda: with_default([1.0]),
        lambda held: held(),
        lambda held: held.__defaults__[0].__setitem__(0, -2.0),
    ),
    "a partial": (
        lambda: partial(float, "1"),
        lambda held: held(),
        lambda held: held.__setstate__((float, ("-2",), {}, {})),
    ),
    "a partial's keywords": (
        lambda: partial(lambda scale: scale, scale=1.0),
        lambda held: held(),
        lambda held: held.keywords.update(scale=-2.0),
    ),
}


class Reading(TorchGRU):
    """A cell with a number in an object of any kind."""

    def __init__(self, held: Any, read: Callable[[Any], float]) -> None:
        super().__init__(4)
        self.held, self.read = held, read

    def forward(self, inputs: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        return super().forward(inputs * self.read(self.held), state)


@pytest.mark.parametrize(("make", "read", "change"), OPTIONS.values(), ids=OPTIONS)
def test_a_number_in_an_object_of_any_kind(make: Any, read: Any, change: Any) -> None:
    Namespace.scale = 1.0
    HELD[0] = 1.0
    case = case_of(Reading(make(), read))
    assert plan_of(case).backend == "cpu"
    with torch.no_grad():
        before = [outputs_of(case) for _ in range(2)][-1]
        change(case.cell.held)
        found = [outputs_of(case) for _ in range(2)]
        with tt.backend("reference"):
            want = outputs_of(case)
    assert not before.allclose(want)
    check_close("changed", [want, want], found)


class Mode(Enum):
    FAST = 1
    SLOW = 2


def test_a_member_of_an_enumeration_is_itself() -> None:
    """Also where a step asks whether it is."""
    case = case_of(Reading(Mode.FAST, lambda held: 1.0 if held is Mode.FAST else -2.0))
    check_on("auto", case, [3, 0, 4, 1])
    case.cell.held = Mode.SLOW
    check_on("auto", case, [3, 0, 4, 1])
