"""Errors that say what was got, what was expected and how to fix it."""

from __future__ import annotations

import operator
from typing import Any

import torch


class InvalidArgumentError(ValueError):
    """A value known only at run time is wrong: a length vector, an index, a token.

    It is a `ValueError`, so code written for TensorFlow's class and code written for Python's both catch it.

    >>> import throughtime as tt
    >>> array = tt.TensorArray(torch.float32, size=2)
    >>> try:
    ...     array.write(5, torch.ones(1))
    ... except ValueError as error:
    ...     print(type(error).__name__)
    InvalidArgumentError
    """


def problem(what: str, *, got: object, expected: object, fix: str) -> str:
    """The one form of every message: what is wrong, what was got, what was expected, how to fix it."""
    return f"{what}: got {got}, expected {expected}. {fix}"


def shape_of(tensor: torch.Tensor) -> tuple[int, ...]:
    """A shape as people write it: a plain tuple."""
    return tuple(tensor.shape)


def type_name(value: object) -> str:
    """How to name a value's type in a message; a tensor also shows its shape and dtype."""
    if isinstance(value, torch.Tensor):
        return f"a tensor of shape {shape_of(value)} and dtype {value.dtype}"
    if isinstance(value, type):
        return f"the class {value.__name__}"
    return type(value).__name__


def check_positive_int(name: str, value: Any, *, minimum: int = 1) -> int:
    """`value` as an int of at least `minimum`, or the error that says why not."""
    expected = f"an int of at least {minimum}"
    fix = f"Pass `{name}` as a whole number."
    if isinstance(value, bool):
        raise TypeError(problem(f"`{name}` must be an integer", got=value, expected=expected, fix=fix))
    try:
        number = operator.index(value)
    except TypeError:
        message = problem(f"`{name}` must be an integer", got=repr(value), expected=expected, fix=fix)
        raise TypeError(message) from None
    if number < minimum:
        raise ValueError(problem(f"`{name}` is too small", got=number, expected=expected, fix=fix))
    return number


def check_dtype(name: str, value: Any) -> torch.dtype:
    """`value` as a torch dtype, or the error that says why not."""
    if isinstance(value, torch.dtype):
        return value
    raise TypeError(
        problem(
            f"`{name}` must be a torch dtype",
            got=repr(value),
            expected="torch.float32 or the like",
            fix=f"Pass `{name}=torch.float32`.",
        )
    )
