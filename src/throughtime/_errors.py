"""Errors that say what was got, what was expected and how to fix it."""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np
import torch


class InvalidArgumentError(ValueError):
    """A value known only at run time is wrong: a length vector, an index, a token.

    It is a `ValueError`, so code written for TensorFlow's class and code written for Python's both catch it.

    >>> import torch, throughtime as tt
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
    try:
        # What torch.compile or torch.export trace as an int must stay what it is: `index` would make a constant of it.
        is_open = isinstance(value, torch.SymInt)
        number: int = value if is_open or type(value) is int else operator.index(value)
        if isinstance(value, bool):
            raise TypeError
    except TypeError:
        fix = f"Pass `{name}` as a whole number."
        raise TypeError(problem(f"`{name}` must be an integer", got=repr(value), expected=expected, fix=fix)) from None
    if number < minimum:
        fix = f"Pass a larger `{name}`."
        raise ValueError(problem(f"`{name}` is too small", got=number, expected=expected, fix=fix))
    return number


def check_number(name: str, value: Any, *, minimum: float | None = None) -> Any:
    """`value`, if it is a real number (or a tensor of one) of at least `minimum`."""
    scalar = isinstance(value, torch.Tensor) and value.ndim == 0
    if isinstance(value, bool) or not (scalar or isinstance(value, int | float | np.integer | np.floating)):
        fix = f"Pass `{name}` as a float."
        raise TypeError(problem(f"`{name}` must be a number", got=repr(value), expected="a real number", fix=fix))
    if not scalar and (math.isnan(value) or (minimum is not None and value < minimum)):
        expected = "a real number" if minimum is None else f"a number of at least {minimum}"
        fix = f"Correct `{name}`, or leave it out."
        raise ValueError(problem(f"`{name}` is out of range", got=value, expected=expected, fix=fix))
    return value


def check_flag(name: str, value: Any) -> bool:
    """`value`, if it is True or False: text, lists and the like are arguments in the wrong place."""
    if not isinstance(value, bool | np.bool_):
        fix = f"Pass `{name}=True`, or leave it out."
        got = type_name(value) if isinstance(value, torch.Tensor) else repr(value)
        raise TypeError(problem(f"`{name}` must be True or False", got=got, expected="a bool", fix=fix))
    return bool(value)


def check_callable(name: str, value: Any, *, expected: str, fix: str) -> None:
    """Raise a `TypeError` unless `value` can be called."""
    if not callable(value):
        raise TypeError(problem(f"`{name}` must be callable", got=repr(value), expected=expected, fix=fix))


def check_name(name: str, value: Any) -> str | None:
    """`value`, if it is text or None."""
    if value is not None and not isinstance(value, str):
        fix = "It names the variables for checkpoints; the cell owns its parameters."
        raise TypeError(problem(f"`{name}` must be a name", got=type_name(value), expected="a str or None", fix=fix))
    return value


def check_dtype(name: str, value: Any) -> torch.dtype:
    """`value` as a torch dtype, or the error that says why not."""
    if not isinstance(value, torch.dtype):
        expected, fix = "torch.float32 or the like", f"Pass `{name}=torch.float32`."
        raise TypeError(problem(f"`{name}` must be a torch dtype", got=repr(value), expected=expected, fix=fix))
    return value


def check_floating_dtype(name: str, value: Any, what: str, fix: str) -> torch.dtype:
    """`value` as a dtype of floating point numbers; `what` is of nothing else."""
    dtype = check_dtype(name, value)
    if not dtype.is_floating_point:
        what = f"RNN cell only supports floating point {what}"
        raise ValueError(problem(what, got=dtype, expected="torch.float32 or the like", fix=fix))
    return dtype


def check_device(name: str, value: Any) -> torch.device:
    """`value` as a device that tensors can be made on here."""
    try:
        found = torch.device(value)
    except (TypeError, RuntimeError):
        expected, fix = "a torch.device, or a name such as 'cuda:0'", "Correct the name."
        raise ValueError(problem(f"`{name}` is unknown", got=repr(value), expected=expected, fix=fix)) from None
    if found.type == "cpu":
        return found
    try:
        torch.empty(0, device=found)
    except (RuntimeError, AssertionError, NotImplementedError):
        fix = "See torch.cuda.is_available() and torch.cuda.device_count()."
        expected = "a device of this machine, such as 'cpu'"
        raise ValueError(problem(f"`{name}` is not available", got=str(found), expected=expected, fix=fix)) from None
    return found
