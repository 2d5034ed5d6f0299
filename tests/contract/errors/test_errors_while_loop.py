"""`while_loop`: conditions, bodies and variables that cannot make a loop."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from _error_rows import F32, Row, check, rows

import throughtime as tt

pytestmark = pytest.mark.covers("errors")

ZERO = torch.tensor(0)
MATRIX = torch.zeros(2, 3)


def below_three(step: Any, *_: Any) -> Any:
    return step < 3


def count(step: Any) -> Any:
    return step + 1


def never(*_: Any) -> bool:
    return False


def same(*variables: Any) -> Any:
    return variables


CONDITIONS = [
    Row(f"cond {name}", error, ("`cond`", *says), lambda _, cond=cond: tt.while_loop(cond, count, [ZERO]))
    for name, cond, error, *says in [
        ("None", None, TypeError, "must be callable", "got None", "a function of the loop variables"),
        ("text", "i < 3", TypeError, "must be callable", "got 'i < 3'", "`cond=lambda i: i < 10`"),
        ("that returns nothing", lambda _: None, TypeError, "must return a bool", "got NoneType"),
        ("that returns text", lambda _: "yes", TypeError, "must return a bool", "got str"),
        ("that returns an int", lambda _: 1, TypeError, "must return a bool", "got int", "a bool tensor"),
        ("that returns a float", lambda i: i + 0.5, TypeError, "must return a bool", "got torch.float32"),
        (
            "that returns a vector",
            lambda i: torch.stack([i, i]) < 3,
            ValueError,
            "must return a scalar",
            "got shape (2,)",
        ),
    ]
]

BODIES = [
    Row(f"body {name}", error, tuple(says), lambda _, body=body, v=variables: tt.while_loop(below_three, body, v))
    for name, body, variables, error, *says in [
        ("None", None, [ZERO], TypeError, "`body` must be callable", "got None", "`body=lambda i: i + 1`"),
        ("that returns nothing", lambda _: None, [ZERO], TypeError, "loop variable", "got NoneType"),
        ("that returns text", lambda _: "a", [ZERO], TypeError, "loop variable", "got str"),
        (
            "that changes a dtype",
            lambda i: i + 0.5,
            [ZERO],
            TypeError,
            "changes its dtype",
            "torch.float32",
            "torch.int64",
        ),
        (
            "that changes a shape",
            lambda i, m: (i + 1, torch.cat([m, m])),
            [ZERO, MATRIX],
            ValueError,
            "enters the loop with shape (2, 3) but has another shape after one iteration",
            "got (4, 3)",
            "`shape_invariants`",
        ),
        ("that drops a variable", lambda i, _: i, [ZERO, ZERO], ValueError, "what `body` returns", "expected [*, *]"),
        (
            "that adds a variable",
            lambda i, j: (i, j, j),
            [ZERO, ZERO],
            ValueError,
            "what `body` returns",
            "got (*, *, *)",
        ),
        ("that renames a variable", lambda i, d: (i, {"b": i}), [ZERO, {"a": ZERO}], ValueError, "got", "{'a': *}"),
        (
            "that turns an array into a tensor",
            lambda i, _: (i + 1, i),
            [ZERO, tt.TensorArray(F32, 3)],
            TypeError,
            "loop variable",
            "TensorArray",
        ),
        ("that turns a tensor into an array", lambda _: tt.TensorArray(F32), [ZERO], TypeError, "got TensorArray"),
    ]
]

VARIABLES = [
    Row(f"loop_vars {name}", error, ("`loop_vars`", *says), lambda _, v=value: tt.while_loop(never, same, v))
    for name, value, error, *says in [
        ("an empty list", [], ValueError, "no loop variables provided", "at least one tensor"),
        ("an empty dict", {}, ValueError, "no loop variables provided"),
        ("None", None, ValueError, "no loop variables provided"),
        ("nested and empty", [[], ()], ValueError, "no loop variables provided"),
        ("with text", [ZERO, "a"], TypeError, "got str", "tensors"),
        ("with a None", [ZERO, None], TypeError, "got NoneType"),
        ("with an object", [ZERO, object()], TypeError, "got object"),
        ("a generator", (i for i in [ZERO]), TypeError, "got generator"),
        ("an array of objects", [np.array([None])], TypeError, "object"),
    ]
]

OPTIONS = [
    Row(
        f"{name} {value!r}",
        error,
        (f"`{name}`", *says),
        lambda _, o={name: value}: tt.while_loop(never, count, [ZERO], **o),
    )
    for name, value, error, *says in [
        ("maximum_iterations", -1, ValueError, "got -1", "an int of at least 0"),
        ("maximum_iterations", 2.5, TypeError, "got 2.5", "an int of at least 0"),
        ("maximum_iterations", "2", TypeError, "got '2'", "an int of at least 0"),
        ("maximum_iterations", torch.tensor([2, 3]), TypeError, "got tensor([2, 3])"),
        ("parallel_iterations", -1, TypeError, "got -1", "an int of at least 1"),
        ("parallel_iterations", 1.5, TypeError, "got 1.5", "an int of at least 1"),
        ("back_prop", "no", TypeError, "got 'no'", "True or False"),
        ("swap_memory", "no", TypeError, "got 'no'", "True or False"),
        ("return_same_structure", "no", TypeError, "got 'no'", "True or False"),
    ]
]

INVARIANTS = [
    Row(
        f"shape_invariants {name}",
        error,
        ("`shape_invariants`", *says),
        lambda _, v=variables, s=invariants: tt.while_loop(never, same, v, shape_invariants=s),
    )
    for name, variables, invariants, error, *says in [
        ("for one of two", [ZERO, MATRIX], [()], ValueError, "structure of `loop_vars`", "expected [*, *]"),
        ("for two of one", [MATRIX], [(None, 3), ()], ValueError, "structure of `loop_vars`", "expected [*]"),
        ("not nested", [MATRIX], (None, 3), ValueError, "structure of `loop_vars`", "got (None, 3)"),
        ("of other keys", [{"a": MATRIX}], [{"b": (None, 3)}], ValueError, "structure of `loop_vars`", "'b'"),
        ("a number", [MATRIX], [3], TypeError, "got 3"),
        ("of another rank", [MATRIX], [(None,)], ValueError, "(2, 3)", "(None,)"),
        ("of another size", [MATRIX], [(None, 4)], ValueError, "(2, 3)", "(None, 4)"),
        ("of text", [MATRIX], [("a", 3)], TypeError, "'a'"),
    ]
]


@rows([*CONDITIONS, *BODIES, *VARIABLES, *OPTIONS, *INVARIANTS])
def test_wrong_arguments(row: Row) -> None:
    check(row)


@pytest.mark.parametrize(("name", "place"), [("cond", 0), ("body", 1)])
def test_functions_may_fail_in_their_own_words(name: str, place: int) -> None:
    def fail(_: Any) -> None:
        raise ZeroDivisionError(name)

    functions = [below_three, count]
    functions[place] = fail
    with pytest.raises(ZeroDivisionError, match=name):
        tt.while_loop(*functions, [ZERO])


def test_a_wrong_variable_is_found_after_one_step() -> None:
    steps = []

    def body(step: torch.Tensor) -> torch.Tensor:
        steps.append(step)
        return step + 0.5

    with pytest.raises(TypeError, match="changes its dtype"):
        tt.while_loop(below_three, body, [ZERO])
    assert len(steps) == 1
