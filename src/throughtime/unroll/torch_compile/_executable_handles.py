"""Handles of executables: they connect the forward with the backward pass of the custom operator.

A backward pass gets tensors only. The cell may change or be freed between the two passes; gradients are those of the
step as it was.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from throughtime._errors import problem
from throughtime._lru import LruCache
from throughtime._object_registry import object_number
from throughtime.runtime.forward import Executable

_SIZE = 1024
_executables: LruCache[int, Executable] = LruCache(_SIZE)


def handle_of(executable: Executable, places: Sequence[int]) -> Tensor:
    """The number of an executable, and the indices of its tensors among those of the operator."""
    number = object_number(executable)
    assert number is not None
    _executables.insert(number, executable)
    return torch.tensor([number, *places], device="cpu")


def resolve(handle: Tensor) -> tuple[Executable, list[int]]:
    """The executable of a handle, and the indices of its tensors among those of the operator."""
    number, *places = handle.tolist()
    found = _executables.lookup(number)
    if found is None:
        what = "the compiled program of this forward pass was evicted from the cache"
        expected, fix = f"one of the last {_SIZE} programs", "Call backward() before running that many other programs."
        raise RuntimeError(problem(what, got=f"program {number}", expected=expected, fix=fix))
    return found, places
