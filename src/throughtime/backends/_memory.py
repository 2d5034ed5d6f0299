"""Memory for streams that is used again.

A large tensor of torch is fresh memory from the system every time, and the first touch of every page of it costs more
than what is computed into it: a third of the time of a product. Streams live for one unroll, and the next unroll
needs the same: what they are given here comes back when the last tensor on it is gone.
"""

from __future__ import annotations

import ctypes
import math
import os
import threading
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

# Below this size torch's memory is used again by the C library anyway.
SMALLEST_BYTES = 1 << 17
_ALIGNMENT = 64
# How much larger than wanted a piece of memory may be.
_SLACK = 1.5


class Reuse:
    """Pieces of memory that nobody uses now, up to a share of what the machine has."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._free: list[np.ndarray[Any, Any]] = []
        self._lock = threading.Lock()

    @property
    def free_bytes(self) -> int:
        """How much is held for later."""
        with self._lock:
            return sum(memory.nbytes for memory in self._free)

    def take(self, nbytes: int) -> np.ndarray[Any, Any]:
        """Memory of at least so many bytes: the smallest piece that fits, or a new one."""
        with self._lock:
            fitting = [memory for memory in self._free if nbytes <= memory.nbytes <= _SLACK * nbytes]
            if fitting:
                best = min(fitting, key=lambda memory: memory.nbytes)
                self._free = [memory for memory in self._free if memory is not best]
                return best
        memory = np.empty(_rounded(nbytes) + _ALIGNMENT, dtype=np.uint8)
        start = -memory.ctypes.data % _ALIGNMENT
        return memory[start : start + _rounded(nbytes)]

    def give(self, memory: np.ndarray[Any, Any]) -> None:
        """Memory comes back; what has not been wanted for longest makes room."""
        with self._lock:
            self._free.append(memory)
            while sum(piece.nbytes for piece in self._free) > self._most_bytes:
                self._free.pop(0)

    def clear(self) -> None:
        """Let go of everything."""
        with self._lock:
            self._free.clear()


def _rounded(nbytes: int) -> int:
    """A little more, so that slightly different sizes can share: at most an eighth."""
    step = 1 << max(12, nbytes.bit_length() - 4)
    return -(-nbytes // step) * step


REUSE = Reuse(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 8 if hasattr(os, "sysconf") else 1 << 30)


@lru_cache(maxsize=1024)
def _block_type(nbytes: int) -> Any:
    """A buffer of this size that gives its memory back when the last tensor on it is gone."""

    def give_back(block: Any) -> None:
        REUSE.give(block.memory)

    return type("Block", (ctypes.c_char * nbytes,), {"__del__": give_back})


def empty(shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Like `torch.empty`, from memory that has been used before if there is some."""
    count = math.prod(shape)
    nbytes = count * dtype.itemsize
    if nbytes < SMALLEST_BYTES or device.type != "cpu":
        return torch.empty(shape, dtype=dtype, device=device)
    memory = REUSE.take(nbytes)
    block = _block_type(memory.nbytes).from_buffer(memory)
    block.memory = memory
    tensor: Tensor = torch.frombuffer(block, dtype=dtype, count=count).view(shape)
    if torch.are_deterministic_algorithms_enabled() and torch.utils.deterministic.fill_uninitialized_memory:  # type: ignore[attr-defined]
        # As torch fills its own: a value that nobody wrote must not pass for one.
        tensor.fill_(math.nan if dtype.is_floating_point else torch.iinfo(dtype).max if dtype != torch.bool else True)
    return tensor
