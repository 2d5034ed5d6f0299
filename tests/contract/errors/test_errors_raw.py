"""`raw_rnn`: what `loop_fn` gives back is checked when it comes, and blamed on `loop_fn`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from _error_rows import F32, I64, ZEROS, B, H, I, Row, Watched, check, rows

import throughtime as tt

pytestmark = pytest.mark.covers("errors")

INPUT = torch.zeros(B, I)
GIVEN = ("finished", "next_input", "next_state", "emit_output", "next_loop_state")


def raw(cell: Any, *, first: dict[str, Any] | None = None, later: dict[str, Any] | None = None) -> Any:
    """`raw_rnn` over three steps, with `first` or `later` in place of what a right `loop_fn` returns."""

    def loop_fn(time: torch.Tensor, output: Any, state: Any, _loop_state: Any) -> tuple[Any, ...]:
        right = (time >= 3, INPUT, ZEROS if output is None else state, output, None)
        wrong = first if output is None else later
        return tuple({**dict(zip(GIVEN, right, strict=True)), **(wrong or {})}.values())

    return tt.raw_rnn(cell, loop_fn)


def at(when: str, given: str, cases: list[tuple[Any, ...]], calls: int) -> list[Row]:
    """Rows for the values that `loop_fn` gives wrongly at its first call, or later."""
    return [
        Row(f"{when} {given} {name}", error, tuple(says), lambda cell, w={when: {given: value}}: raw(cell, **w), calls)
        for name, value, error, *says in cases
    ]


def returning(value: Any) -> Callable[..., Any]:
    return lambda *_: value


ARGUMENTS = [
    Row(name, error, tuple(says), call)
    for name, call, error, *says in [
        ("no cell", lambda _: tt.raw_rnn(None, returning(None)), TypeError, "`cell` is not an RNNCell"),
        (
            "a class",
            lambda _: tt.raw_rnn(tt.GRUCell, returning(None)),
            TypeError,
            "but a class",
            "`GRUCell(num_units)`",
        ),
        ("no loop_fn", lambda cell: tt.raw_rnn(cell, None), TypeError, "`loop_fn` must be callable", "got None"),
        ("loop_fn text", lambda cell: tt.raw_rnn(cell, "fn"), TypeError, "`loop_fn` must be callable", "got 'fn'"),
        ("scope 1", lambda cell: tt.raw_rnn(cell, returning(None), scope=1), TypeError, "`scope`", "got int"),
        (
            "negative parallel_iterations",
            lambda cell: tt.raw_rnn(cell, returning(None), parallel_iterations=-1),
            TypeError,
            "`parallel_iterations`",
            "got -1",
        ),
        (
            "swap_memory a tensor",
            lambda cell: tt.raw_rnn(cell, returning(None), swap_memory=ZEROS),
            TypeError,
            "`swap_memory`",
            "True or False",
        ),
    ]
] + [
    Row(
        f"loop_fn that returns {name}",
        ValueError,
        ("`loop_fn` must return five values", got, "(finished, next_input, next_state, emit_output, next_loop_state)"),
        lambda cell, value=value: tt.raw_rnn(cell, returning(value)),
    )
    for name, value, got in [
        ("nothing", None, "got NoneType"),
        ("three values", (1, 2, 3), "got 3 values"),
        ("a tensor", torch.zeros(5), "got a tensor of shape (5,)"),
        ("a dict", {}, "got dict"),
    ]
]

FINISHED = [
    ("None", None, TypeError, "`finished` must be boolean", "got NoneType", "`time >= sequence_length`"),
    ("text", "no", TypeError, "`finished` must be boolean", "got str"),
    ("an int", 0, TypeError, "`finished` must be boolean", "got torch.int64"),
    ("floats", torch.zeros(B), TypeError, "`finished` must be boolean", "got torch.float32", "torch.bool"),
    (
        "for another batch",
        torch.zeros(3) > 0,
        ValueError,
        "`finished` must have one value for each row",
        "got (3,)",
        "(2,)",
    ),
    ("of rank 2", torch.zeros(B, 1) > 0, ValueError, "`finished` must have one value for each row", "got (2, 1)"),
]

FIRST_INPUT = [
    ("None", None, ValueError, "`loop_fn` must give the first input at time 0", "got NoneType"),
    ("text", "x", TypeError, "input", "`loop_fn`", "got str"),
    ("a scalar", torch.zeros(()), ValueError, "input", "`loop_fn`", "[B, ...]"),
    ("a number", 0.5, ValueError, "input", "`loop_fn`", "[B, ...]"),
    ("lists of numbers", [[0.5]], ValueError, "input", "`loop_fn`", "[B, ...]"),
    ("empty", (), ValueError, "input", "`loop_fn`"),
    ("nested batches", (INPUT, torch.zeros(3, I)), ValueError, "input", "`loop_fn`", "3"),
]
NEXT_INPUT = [
    ("None", None, TypeError, "input", "`loop_fn`", "got NoneType"),
    ("nested", (INPUT,), ValueError, "the next input that `loop_fn` gives", "got (*,)", "expected *"),
    ("for another batch", torch.zeros(3, I), ValueError, "the next input that `loop_fn` gives", "3"),
]

FIRST_STATE = [
    ("None", None, TypeError, "the initial state that `loop_fn` gives", "got NoneType"),
    ("text", "zeros", TypeError, "the initial state that `loop_fn` gives", "got str"),
    ("nested", (ZEROS,), ValueError, "the initial state that `loop_fn` gives", "got (*,)", "expected *"),
    (
        "for another batch",
        torch.zeros(3, H),
        ValueError,
        "the initial state that `loop_fn` gives",
        "got (3, 5)",
        "(2, 5)",
    ),
    (
        "of another width",
        torch.zeros(B, 6),
        ValueError,
        "the initial state that `loop_fn` gives",
        "got (2, 6)",
        "(2, 5)",
    ),
]
NEXT_STATE = [
    ("None", None, TypeError, "the next state that `loop_fn` gives", "got NoneType"),
    ("nested", (ZEROS,), ValueError, "the next state that `loop_fn` gives", "got (*,)", "expected *"),
    ("for another batch", torch.zeros(3, H), ValueError, "the next state that `loop_fn` gives", "got (3, 5)", "(2, 5)"),
    ("of another width", torch.zeros(B, 6), ValueError, "the next state that `loop_fn` gives", "got (2, 6)", "(2, 5)"),
    ("of another dtype", ZEROS.double(), TypeError, "the next state that `loop_fn` gives", "torch.float64"),
]

FIRST_EMIT = [("text", "y", TypeError, "`emit_output`", "got str")]
NEXT_EMIT = [
    ("None", None, TypeError, "the output that `loop_fn` gives", "got NoneType"),
    ("text", "y", TypeError, "the output that `loop_fn` gives", "got str"),
    ("nested", (ZEROS, ZEROS), ValueError, "the output that `loop_fn` gives", "got (*, *)", "expected *"),
    ("for another batch", torch.zeros(3, H), ValueError, "the output that `loop_fn` gives", "3"),
]


@rows(
    [
        *ARGUMENTS,
        *at("first", "finished", FINISHED, calls=0),
        *at("later", "finished", FINISHED, calls=1),
        *at("first", "next_input", FIRST_INPUT, calls=0),
        *at("later", "next_input", NEXT_INPUT, calls=1),
        *at("first", "next_state", FIRST_STATE, calls=0),
        *at("later", "next_state", NEXT_STATE, calls=1),
        *at("first", "emit_output", FIRST_EMIT, calls=0),
        *at("later", "emit_output", NEXT_EMIT, calls=1),
    ]
)
def test_wrong_arguments(row: Row) -> None:
    check(row)


def test_an_emission_of_another_dtype() -> None:
    with pytest.raises((TypeError, tt.InvalidArgumentError), match=r"got torch.float64, expected torch.float32"):
        raw(Watched(), later={"emit_output": ZEROS.double()})


def test_arrays_are_welcome() -> None:
    arrays = {"next_input": INPUT.numpy(), "finished": np.array([False, False])}
    state = {"next_state": np.zeros((B, H), np.float32)}
    with pytest.raises(ZeroDivisionError):
        raw(_StopsAfter(2), first={**arrays, **state}, later=arrays)


class _StopsAfter(Watched):
    """A cell that ends an endless loop."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.steps = steps

    def forward(self, inputs: Any, state: Any) -> tuple[Any, Any]:
        if self.calls == self.steps:
            raise ZeroDivisionError
        return super().forward(inputs, state)


def test_a_wrong_input_of_rows_that_still_run() -> None:
    """Rows that have finished are left out of a step: the others must not be picked from a wrong batch."""

    def loop_fn(time: torch.Tensor, output: Any, state: Any, _loop_state: Any) -> tuple[Any, ...]:
        rows_of_input = B if output is None else 1
        finished = time >= torch.tensor([3, 1])
        return finished, torch.zeros(rows_of_input, I), ZEROS if output is None else state, output, None

    with pytest.raises(ValueError, match="the next input that `loop_fn` gives"):
        tt.raw_rnn(Watched(), loop_fn)


@pytest.mark.parametrize("emitted", [torch.zeros(7), torch.zeros(3, dtype=I64)], ids=["float", "int"])
def test_emissions_of_no_step_have_the_announced_shape(emitted: torch.Tensor) -> None:
    array, state, _ = raw(Watched(), first={"finished": True, "emit_output": emitted})
    assert array.stack().shape == (0, B, *emitted.shape)
    assert array.dtype == emitted.dtype
    assert state.dtype == F32
