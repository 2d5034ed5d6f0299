"""A choice by a flag that is a Python value or a tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from throughtime.tf1._namespace import lookup
from throughtime.tf1.ops._convert import constant_value, is_tensor


def static_flag(flag: Any) -> bool | None:
    """A flag's value if it is known now."""
    if not is_tensor(flag):
        return bool(flag)
    value = constant_value(flag)
    return None if value is None else bool(value)


def either(flag: Any, true_fn: Callable[[], Any], false_fn: Callable[[], Any]) -> Any:
    """What one of two functions makes: chosen now if the flag is known, else when the session runs."""
    known = static_flag(flag)
    if known is None:
        return lookup("cond")(flag, true_fn, false_fn)
    return true_fn() if known else false_fn()
