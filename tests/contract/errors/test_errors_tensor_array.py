"""`TensorArray`: indices, values and shapes that do not fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from _error_rows import F32, Row, check, rows

import throughtime as tt

pytestmark = pytest.mark.covers("errors")

Invalid = tt.InvalidArgumentError
ONE, PAIR, ROWS = torch.zeros(()), torch.zeros(2), torch.zeros(2, 2)


def array(size: int = 3, **options: Any) -> tt.TensorArray:
    return tt.TensorArray(F32, size, **options)


def ragged() -> tt.TensorArray:
    """Elements of 2 and of 3 values."""
    return array(2, infer_shape=False).write(0, torch.zeros(2)).write(1, torch.zeros(3))


def widths() -> tt.TensorArray:
    """Elements that cannot be joined."""
    return array(2, infer_shape=False).write(0, torch.zeros(1, 2)).write(1, torch.zeros(1, 3))


def open_shape() -> tt.TensorArray:
    """Elements of three columns and any number of rows."""
    return array(element_shape=(None, 3))


MADE = [
    Row(f"made with {o}", error, (f"`{next(iter(o))}`", *says), lambda _, o=o: tt.TensorArray(**{"dtype": F32, **o}))
    for o, error, *says in [
        ({"dtype": None}, TypeError, "got None", "torch.float32"),
        ({"dtype": "float32"}, TypeError, "got 'float32'", "torch.float32"),
        ({"size": -1}, ValueError, "got -1", "an int of at least 0"),
        ({"size": 2.0}, TypeError, "got 2.0", "an int of at least 0"),
        ({"size": True}, TypeError, "got True"),
        ({"element_shape": 3}, TypeError, "got 3"),
        ({"element_shape": "ab"}, TypeError, "got 'ab'"),
        ({"element_shape": (2.5,)}, TypeError, "(2.5,)"),
        ({"element_shape": (-1,)}, ValueError, "(-1,)"),
        ({"dynamic_size": "no"}, TypeError, "got 'no'", "True or False"),
        ({"clear_after_read": "no"}, TypeError, "got 'no'", "True or False"),
        ({"infer_shape": "no"}, TypeError, "got 'no'", "True or False"),
    ]
]

INDICES = [
    Row(f"{method} at {place!r}", error, says, lambda _, m=method, p=place, v=value: getattr(array(), m)(p, *v))
    for method, value in (("read", ()), ("write", (PAIR,)))
    for place, error, *says in [
        (3, Invalid, "index out of bounds", "got 3", "0 to 2", "`dynamic_size=True`"),
        (-1, Invalid, "index out of bounds", "got -1", "0 to 2"),
        (1.7, TypeError, "index", "got 1.7", "int"),
        ("a", TypeError, "index", "got 'a'", "int"),
        (None, TypeError, "index", "got None", "int"),
        (True, TypeError, "index", "got True", "int"),
        (torch.tensor([0, 1]), TypeError, "index", "int"),
        (torch.tensor(1.5), TypeError, "index", "int"),
    ]
]

WRITES = [
    Row(f"{method} {name}", error, tuple(says), lambda _, m=method, a=arguments: getattr(array(), m)(*a))
    for method, name, arguments, error, *says in [
        ("write", "float64", (0, PAIR.double()), Invalid, "got torch.float64", "torch.float32", "`.to(torch.float32)`"),
        ("write", "an int", (0, torch.tensor(1)), Invalid, "got torch.int64", "torch.float32"),
        ("write", "a float64 array", (0, np.zeros(2)), Invalid, "got torch.float64", "torch.float32"),
        ("write", "None", (0, None), TypeError, "value", "got NoneType"),
        ("write", "text", (0, "a"), TypeError, "value", "got str"),
        ("unstack", "a scalar", (ONE,), ValueError, "`value`", "got shape ()", "[N, ...]"),
        ("unstack", "None", (None,), TypeError, "value", "got NoneType"),
        ("unstack", "too many", (torch.ones(4, 2),), Invalid, "index out of bounds", "got 3", "0 to 2"),
        ("unstack", "float64", (ROWS.double(),), Invalid, "got torch.float64", "torch.float32"),
        ("scatter", "rows of another number", ([0], ROWS), Invalid, "got 1 indices, 2 rows", "one index for each row"),
        ("scatter", "a scalar", ([0], ONE), ValueError, "`value`", "got shape ()", "[N, ...]"),
        ("scatter", "to one place", (0, ROWS), ValueError, "`indices`", "got shape ()"),
        ("scatter", "to a matrix", ([[0, 1]], ROWS), ValueError, "`indices`", "got shape (1, 2)"),
        ("scatter", "to text", ("a", ROWS), TypeError, "`indices`", "got 'a'"),
        ("scatter", "to fractions", ([0.5, 1.0], ROWS), TypeError, "`indices`", "torch.float32"),
        ("scatter", "twice to one place", ([0, 0], ROWS), Invalid, "element 0 was written before"),
        ("scatter", "outside", ([0, 7], ROWS), Invalid, "index out of bounds", "got 7", "0 to 2"),
        ("split", "a scalar", (ONE, [1]), ValueError, "`value`", "got shape ()", "[N, ...]"),
        ("split", "with rows left over", (torch.ones(5), [2, 2]), Invalid, "`lengths`", "[2, 2]", "5"),
        ("split", "below zero", (torch.ones(5), [-1, 6]), Invalid, "`lengths`", "[-1, 6]"),
        ("split", "in fractions", (ROWS, [1.0, 1.0]), TypeError, "`lengths`", "torch.float32"),
        ("split", "by a scalar", (ROWS, 2), ValueError, "`lengths`", "got shape ()"),
        ("split", "into uneven parts", (torch.ones(5), [2, 3]), ValueError, "[(2,), (3,)]", "`infer_shape=False`"),
        ("split", "into too many", (torch.ones(4), [1] * 4), Invalid, "index out of bounds", "got 3"),
    ]
]

STEPS = [
    Row(name, error, tuple(says), lambda _, call=call: call())
    for name, call, error, *says in [
        (
            "write twice",
            lambda: array().write(0, PAIR).write(0, PAIR),
            Invalid,
            "0 was written before",
            "one write",
        ),
        (
            "write another shape",
            lambda: array().write(0, PAIR).write(1, ROWS),
            ValueError,
            "inconsistent shapes",
            "(2, 2)",
        ),
        ("write no known shape", lambda: array(element_shape=(4,)).write(0, PAIR), ValueError, "got (2,)", "(4,)"),
        ("write no open shape", lambda: open_shape().write(0, ROWS), ValueError, "got (2, 2)", "(None, 3)"),
        ("read what is not there", lambda: array().read(0), Invalid, "0 was never written", "`element_shape=`"),
        ("read an open shape", lambda: open_shape().read(0), Invalid, "0 was never written"),
        ("stack what is not there", lambda: array().stack(), Invalid, "0 was never written"),
        ("stack two shapes", lambda: ragged().stack(), ValueError, "stacked", "[(2,), (3,)]", "one shape"),
        ("gather two shapes", lambda: ragged().gather([0, 1]), ValueError, "stacked", "[(2,), (3,)]", "one shape"),
        ("gather outside", lambda: array().unstack(ROWS).gather([0, 9]), Invalid, "index out of bounds", "got 9"),
        ("gather one place", lambda: array().unstack(ROWS).gather(0), ValueError, "`indices`", "got shape ()"),
        ("gather a matrix", lambda: array().unstack(ROWS).gather([[0]]), ValueError, "`indices`", "got shape (1, 1)"),
        ("gather text", lambda: array().gather("ab"), TypeError, "`indices`", "got 'ab'"),
        ("gather fractions", lambda: array().unstack(ROWS).gather([0.5]), TypeError, "`indices`", "torch.float32"),
        ("gather one twice", lambda: array().unstack(ROWS).gather([0, 0]), Invalid, "0 was read before"),
        ("concat scalars", lambda: array(1).write(0, ONE).concat(), ValueError, "got [()]", "`stack`"),
        ("concat two widths", lambda: widths().concat(), ValueError, "[(1, 2), (1, 3)]"),
    ]
]


@rows(MADE)
def test_wrong_arrays(row: Row) -> None:
    check(row)


@rows(INDICES)
def test_wrong_indices(row: Row) -> None:
    check(row)


@rows(WRITES)
def test_wrong_values(row: Row) -> None:
    check(row)


@rows(STEPS)
def test_wrong_steps(row: Row) -> None:
    check(row)


@pytest.mark.parametrize("read", [lambda a: a.read(0), lambda a: a.stack(), lambda a: a.gather([0])])
def test_a_second_read(read: Any) -> None:
    written = array(1).write(0, PAIR)
    read(written)
    with pytest.raises(tt.InvalidArgumentError, match=r"element 0 was read before.*`clear_after_read=False`"):
        read(written)


def test_a_write_after_a_read() -> None:
    blank = array(element_shape=(2,))
    blank.read(0)
    with pytest.raises(tt.InvalidArgumentError, match="element 0 was read before"):
        blank.write(0, PAIR)


def test_a_failed_write_leaves_the_array_as_it_was() -> None:
    before = array(clear_after_read=False)
    with pytest.raises(tt.InvalidArgumentError):
        before.scatter([0, 7], torch.ones(2, 2))
    assert before.element_shape is None
    assert before.write(0, torch.full((2,), 5.0)).read(0).tolist() == [5.0, 5.0]
