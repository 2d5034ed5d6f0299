"""Every cell, unroll, length, dtype, layout and size against the oracle: values, final states, gradients."""

from __future__ import annotations

import inspect
import itertools
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

import throughtime as tt
from backends import REFUSED, every_backend, raises_refusal
from descriptors import BY_NAME, DESCRIPTORS, MORE_DESCRIPTORS, Descriptor, poisoned
from unrolls import EVERY_BACKEND, EVERY_UNROLL, UNROLLS, Unroll, clipped

pytestmark = pytest.mark.covers("conformance")

T, B = 4, 5
LENGTHS = {
    "none": None,
    "all zero": [0, 0, 0, 0, 0],
    "all one": [1, 1, 1, 1, 1],
    "all but one": [T - 1] * B,
    "full": [T] * B,
    "mixed": [2, 0, T, 1, T - 1],
    "above T": [T + 3, 1, T, 0, 100],
    "below 0": [-1, 2, -7, 0, 3],
}
# `static_state_saving_rnn` has no `dtype` argument, so the state must have a dtype, and one only.
UNTYPED = {("static state-saving", name) for name in ("integer counters", "no state")}
# A scalar counts the calls of a cell; whether a step without rows calls it is not part of the contract.
ROWLESS = {"integer counters", "scalar state"}


def cells(*names: str) -> pytest.MarkDecorator:
    """Run a test for the descriptors of these names, or for all."""
    chosen = [BY_NAME[name] for name in names] or DESCRIPTORS
    return pytest.mark.parametrize("descriptor", chosen, ids=lambda descriptor: descriptor.name)


def test_every_public_cell_has_a_line() -> None:
    public = {value for home in (tt, tt.cells) for value in map(home.__dict__.get, home.__all__) if _is_cell(value)}
    described = {type(descriptor.make(4)) for descriptor in [*DESCRIPTORS, *MORE_DESCRIPTORS]}
    assert {cell.__name__ for cell in public - described} == set()


def test_every_public_unroll_has_a_line() -> None:
    functions = {name for name in tt.__all__ if inspect.isfunction(getattr(tt, name))}
    public = functions - {"accelerate", "backend", "explain", "threads"}
    named = {name for unroll in UNROLLS for name in _names(unroll.run)}
    assert public - named == set()


def _is_cell(value: object) -> bool:
    return inspect.isclass(value) and issubclass(value, tt.RNNCell) and value is not tt.RNNCell


def _names(function: Any) -> tuple[str, ...]:
    """The names a function looks up."""
    return getattr(function, "func", function).__code__.co_names


def pairs() -> list[Any]:
    """Every descriptor with every unroll, on every backend."""
    return [
        pytest.param(descriptor, unroll, backend, id=f"{descriptor.name}-{unroll.name}-{backend}")
        for descriptor, unroll, backend in itertools.product(DESCRIPTORS, UNROLLS, EVERY_BACKEND)
        if (unroll.name, descriptor.name) not in UNTYPED and not (unroll.by_hand and backend != "reference")
    ]


def lengths_and_unrolls() -> list[Any]:
    """Every kind of lengths with every unroll that takes them: torch packs no empty sequences."""
    return [
        pytest.param(lengths, unroll, id=f"{name}-{unroll.name}")
        for (name, lengths), unroll in itertools.product(LENGTHS.items(), UNROLLS)
        if unroll.empty_sequences or lengths is None or min(lengths) > 0
    ]


@cells()
@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
@pytest.mark.parametrize(
    ("dtype", "layout"),
    [(torch.float32, "dynamic"), (torch.float64, "dynamic"), (torch.float64, "dynamic time-major")],
    ids=["float32", "float64", "float64 time-major"],
)
@every_backend
def test_cells_through_time(
    descriptor: Descriptor, lengths: list[int] | None, dtype: torch.dtype, layout: str, backend: str
) -> None:
    case = descriptor.case(B, T, dtype)
    case = case._replace(inputs=poisoned(case.inputs, clipped(lengths, case.inputs)))
    with refused(descriptor, backend, unless=not any(clipped(lengths, case.inputs))):
        EVERY_UNROLL[layout].check(case, lengths, backend)


@pytest.mark.parametrize(("descriptor", "unroll", "backend"), pairs())
def test_every_way_through_time(descriptor: Descriptor, unroll: Unroll, backend: str) -> None:
    lengths = [2, T, 0 if unroll.empty_sequences else 1, 3]
    case = descriptor.case(len(lengths), T)
    with refused(descriptor, backend):
        unroll.check(case._replace(inputs=poisoned(case.inputs, lengths)), lengths, backend)


def refused(descriptor: Descriptor, backend: str, *, unless: bool = False) -> Any:
    """The error of a backend that does not take this cell; nothing if it does, or if nothing has to run."""
    reason = REFUSED.get((backend, descriptor.name))
    return nullcontext() if reason is None or unless else raises_refusal(backend, reason)


@pytest.mark.parametrize(("lengths", "unroll"), lengths_and_unrolls())
def test_every_length_every_way(lengths: list[int] | None, unroll: Unroll) -> None:
    case = BY_NAME["LSTM"].case(B, T)
    unroll.check(case._replace(inputs=poisoned(case.inputs, clipped(lengths, case.inputs))), lengths)


@cells()
def test_starting_from_zeros(descriptor: Descriptor) -> None:
    case = descriptor.case(3, T)
    EVERY_UNROLL["dynamic"].check(case._replace(state=None), [1, T, 0])


@cells("BasicRNN", "GRU", "BasicLSTM", "LSTM full", "OutputProjection", "nests")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("lengths", [None, [2, 0, T]], ids=["full", "mixed"])
@pytest.mark.parametrize("backend", ["reference", "aten", "auto"])
def test_small_dtypes(descriptor: Descriptor, dtype: torch.dtype, lengths: list[int] | None, backend: str) -> None:
    EVERY_UNROLL["dynamic"].check(descriptor.case(3, T, dtype), lengths, backend)


@cells("BasicRNN", "GRU", "BasicLSTM", "LSTM full", "Multi")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("size", [1, 7, 63, 100])
@every_backend
def test_odd_sizes(descriptor: Descriptor, size: int, dtype: torch.dtype, backend: str) -> None:
    batch = {1: 1, 7: 7, 63: 3, 100: 2}[size]
    lengths = [(3 * row + 2) % 5 for row in range(batch)]
    EVERY_UNROLL["dynamic"].check(descriptor.case(batch, 4, dtype, units=size, input_size=size), lengths, backend)


@pytest.mark.parametrize("time", [1, 7, 63, 100])
@every_backend
def test_odd_times(time: int, backend: str) -> None:
    EVERY_UNROLL["dynamic"].check(BY_NAME["GRU"].case(3, time), [time, 0, time // 2], backend)


@cells()
@pytest.mark.parametrize("layout", ["dynamic", "dynamic time-major", "dynamic jagged", "both", "both time-major"])
def test_no_steps(descriptor: Descriptor, layout: str) -> None:
    EVERY_UNROLL[layout].check(descriptor.case(3, 0), None)


@cells(*(descriptor.name for descriptor in DESCRIPTORS if descriptor.name not in ROWLESS))
@pytest.mark.parametrize("lengths", [None, []], ids=["none", "empty"])
@pytest.mark.parametrize("layout", ["dynamic", "dynamic time-major", "static", "both", "both static"])
def test_no_rows(descriptor: Descriptor, layout: str, lengths: list[int] | None) -> None:
    EVERY_UNROLL[layout].check(descriptor.case(0, 3), lengths)


@cells()
def test_past_the_end_is_exactly_zero_and_exactly_copied(descriptor: Descriptor) -> None:
    case = descriptor.case(3, T)
    lengths = [0, 2, T]
    outputs, final = tt.dynamic_rnn(case.cell, poisoned(case.inputs, lengths), lengths, case.state, case.dtype)
    for leaf in pytree.tree_leaves(outputs):
        assert all(not row[length:].any() for row, length in zip(leaf, lengths, strict=True))
        assert leaf[2].any()
    for leaf, initial in zip(*map(pytree.tree_leaves, (final, case.state)), strict=True):
        assert initial.ndim == 0 or torch.equal(leaf[0], initial[0])
