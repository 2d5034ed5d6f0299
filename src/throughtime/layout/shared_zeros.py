"""Read-only zeros that calls share: an initial state, a missing gradient.

On a GPU, filling a tensor costs the host a kernel launch; on a CPU, as much as a step of a small network.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor

from throughtime._lru import LruCache
from throughtime._torch_internals import current_raw_stream

_SHARED: dict[int, Tensor] = {}
"""The tensors of `_CACHE` by their `id`. They are held here, so no other tensor can have one of these ids."""
_CACHE: LruCache[Any, Tensor] = LruCache(64, lambda _, zeros: _SHARED.__delitem__(id(zeros)))
_LARGEST_BYTES = 1 << 20
"""Larger tensors are not shared: filling them takes longer than the launch."""


def shared_zeros(size: torch.Size, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Zeros to read from. On a GPU they are cached, for each stream: another stream need not wait for the fill."""
    if device.type != "cuda" or torch.cuda.is_current_stream_capturing():
        # A CUDA graph must own the memory that it reads.
        return torch.zeros(size, dtype=dtype, device=device)
    key = (size, dtype, device, current_raw_stream(device.index))
    found = _CACHE.lookup(key)
    if found is None:
        # Not an inference tensor, even if the first call is inference: later calls may train.
        with torch.inference_mode(False):
            zeros = torch.zeros(size, dtype=dtype, device=device)
        found = zeros if zeros.nbytes > _LARGEST_BYTES else _CACHE.lookup_or_insert(key, partial(_share, zeros))
    return found


def _share(zeros: Tensor) -> Tensor:
    _SHARED[id(zeros)] = zeros
    return zeros


def zero_rows(shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """Zeros on a CPU that only a kernel reads, for any number of rows: views of one tensor."""
    count = math.prod(shape)
    if count * dtype.itemsize > _LARGEST_BYTES:
        return torch.zeros(shape, dtype=dtype, device="cpu")
    return _all_zeros(dtype)[:count].view(shape)


@cache
def _all_zeros(dtype: torch.dtype) -> Tensor:
    with torch.inference_mode(False):
        return torch.zeros(_LARGEST_BYTES // dtype.itemsize, dtype=dtype, device="cpu")


def are_shared_zeros(tensor: Tensor) -> bool:
    """Whether a tensor is one of the shared ones, so that all of its rows are equal."""
    return _SHARED.get(id(tensor)) is tensor
