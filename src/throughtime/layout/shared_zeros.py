"""Zeros that everybody reads and nobody writes: a state to begin with, a gradient that nobody gave.

On a GPU, to make some takes as long on the host as a launch of any other kernel; on a CPU, as long as a step of a small
network.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from throughtime._lru import LruCache
from throughtime._torch_internals import current_raw_stream

_IDS: set[int] = set()
_CACHE: LruCache[Any, Tensor] = LruCache(64, lambda _, zeros: _IDS.discard(id(zeros)))
_MOST_BYTES = 1 << 20
"""Of one tensor: what is larger takes longer to fill than to ask for."""


def shared_zeros(size: torch.Size, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Zeros to read from, on a GPU the same as the last time; once for each stream, since others need not wait."""
    if device.type != "cuda" or torch.cuda.is_current_stream_capturing():
        # What a graph reads that somebody records is its own.
        return torch.zeros(size, dtype=dtype, device=device)
    key = (size, dtype, device, current_raw_stream(device.index))
    found = _CACHE.lookup(key)
    if found is None:
        # For everybody, though the first one may only infer.
        with torch.inference_mode(False):
            found = torch.zeros(size, dtype=dtype, device=device)
        if found.nbytes > _MOST_BYTES:
            return found
        found = _CACHE.lookup_or_insert(key, functools.partial(_noted, found))
    return found


def zero_rows(shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """Zeros on a CPU that only a kernel reads, of rows whose number changes from call to call: made once for all."""
    count = math.prod(shape)
    if count * dtype.itemsize > _MOST_BYTES:
        return torch.zeros(shape, dtype=dtype, device="cpu")
    return _all_zeros(dtype)[:count].view(shape)


@functools.cache
def _all_zeros(dtype: torch.dtype) -> Tensor:
    with torch.inference_mode(False):
        return torch.zeros(_MOST_BYTES // dtype.itemsize, dtype=dtype, device="cpu")


def _noted(zeros: Tensor) -> Tensor:
    _IDS.add(id(zeros))
    return zeros


def are_shared_zeros(tensor: Tensor) -> bool:
    """Whether a tensor is known to be nothing but zeros."""
    return id(tensor) in _IDS
