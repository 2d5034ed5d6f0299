"""Handles of executables: they connect the forward with the backward pass of the custom operator.

A backward pass gets tensors only. The cell may change or be freed between the two passes; gradients are those of the
step as it was.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
from torch import Tensor

from throughtime._errors import problem
from throughtime._fork_safety import fork_safe_lock
from throughtime._lru import LruCache
from throughtime.runtime.forward import Executable

_SIZE = 1024
_numbers = itertools.count(1)
_given: dict[tuple[int, tuple[int, ...]], int] = {}
_lock = fork_safe_lock()


def _forget(_: int, entry: tuple[Executable, tuple[int, ...]]) -> None:
    executable, places = entry
    del _given[id(executable), places]


_executables: LruCache[int, tuple[Executable, tuple[int, ...]]] = LruCache(_SIZE, _forget)


def handle_of(executable: Executable, places: Sequence[int]) -> Tensor:
    """A number for what runs, and for which of an operator's tensors are its own."""
    key = (id(executable), tuple(places))
    with _lock:
        number = _given.setdefault(key, 0) or next(_numbers)
        _given[key] = number
        _executables.insert(number, (executable, key[1]))
    return torch.tensor(number, device="cpu")


def resolve(handle: Tensor) -> tuple[Executable, tuple[int, ...]]:
    """The executable of a handle, and the places of its tensors among those of the operator."""
    found = _executables.lookup(int(handle))
    if found is None:
        what = "the compiled program of this forward pass was evicted from the cache"
        expected, fix = f"one of the last {_SIZE} programs", "Call backward() before running that many other programs."
        raise RuntimeError(problem(what, got=f"program {int(handle)}", expected=expected, fix=fix))
    return found
