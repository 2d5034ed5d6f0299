"""Operations that move elements and do not compute with them: they take strings, too.

The kernel of such an operation runs on the positions of the elements, which then select the strings.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import torch


def takes_strings(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Let a kernel that only moves elements take arrays of strings."""

    @functools.wraps(kernel)
    def moved(*args: Any, **kwargs: Any) -> Any:
        first = args[0] if args else kwargs.get("values")
        if isinstance(first[0] if type(first) is list else first, torch.Tensor):
            return kernel(*args, **kwargs)
        pool: list[Any] = []
        places = [_positions(value, pool) for value in args]
        keywords = {name: _positions(value, pool) for name, value in kwargs.items()}
        result = kernel(*places, **keywords)
        flat = np.array([*pool, None], object)[:-1]
        return (
            tuple(_selected(flat, one) for one in result)
            if isinstance(result, tuple | list)
            else _selected(flat, result)
        )

    moved.takes_strings = True  # type: ignore[attr-defined]
    return moved


def measures_strings(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a kernel that takes arrays of strings as they are and gives numbers."""
    kernel.takes_strings = "measured"  # type: ignore[attr-defined]
    return kernel


def _positions(value: Any, pool: list[Any]) -> Any:
    if isinstance(value, list) and any(isinstance(one, np.ndarray) for one in value):
        return [_positions(one, pool) for one in value]
    if not isinstance(value, np.ndarray) or value.dtype != object:
        return value
    start = len(pool)
    pool.extend(value.reshape(-1).tolist())
    return torch.arange(start, len(pool)).reshape(value.shape)


def _selected(flat: np.ndarray[Any, Any], places: torch.Tensor) -> np.ndarray[Any, Any]:
    return flat[places.numpy()] if places.ndim else np.array(flat[int(places)], object)
