"""A caching allocator for the streams of unrolls, and for scratch memory.

A large tensor of torch is fresh memory from the system every time, and the page faults of its first use cost more than
the computation of its contents: a third of the time of a GEMM. Streams live for one unroll, and the next unroll needs
the same sizes: memory from here comes back when its last tensor is freed.
"""

from __future__ import annotations

import ctypes
import math
from collections import OrderedDict
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from throughtime._fork_safety import fork_safe_rlock

Memory = NDArray[np.uint8]

# Smaller ones take longer to be handed out here than to be touched.
SMALLEST_BYTES = 1 << 18
_ALIGNMENT = 64
# How much larger than wanted a piece of memory may be.
_SLACK = 2
# So much may be held beyond what was once in use, if that is not more than ever: batches whose sizes vary.
_SPARE = 1 << 25


class CachingAllocator:
    """Free pieces of memory; with those in use hardly more than the maximum that was in use at a time."""

    def __init__(self, spare_bytes: int = _SPARE) -> None:
        self._spare_bytes = spare_bytes
        # By size, in the order in which sizes came back; of a size, what came back last is at the end.
        self._free: OrderedDict[int, list[Memory]] = OrderedDict()
        self._used_bytes = self._most_bytes = self._free_bytes = 0
        # A collection of garbage may give memory back while this thread takes some: the lock must let it.
        self._lock = fork_safe_rlock()

    @property
    def free_bytes(self) -> int:
        """How much is held for later."""
        return self._free_bytes

    def take(self, nbytes: int) -> Memory:
        """Memory of at least `nbytes`: the most recently freed of the smallest pieces that fit, or a new one."""
        with self._lock:
            memory = self._fitting(nbytes)
            if memory is None:
                self._make_room(_rounded(nbytes))
                memory = _new(nbytes)
            self._used_bytes += memory.nbytes
            self._most_bytes = max(self._most_bytes, self._used_bytes)
            return memory

    def _make_room(self, nbytes: int) -> None:
        """Let go of what is free before there is more than ever, or too much beside what is in use."""
        wanted = self._used_bytes + nbytes
        most = wanted if wanted > self._most_bytes else self._most_bytes + self._spare_bytes
        while self._free and self._free_bytes + wanted > most:
            # The size that came back longest ago, in one go: what comes back in the meantime is of no matter.
            size, pieces = self._free.popitem(last=False)
            self._free_bytes -= size * len(pieces)

    def _fitting(self, nbytes: int) -> Memory | None:
        size = _rounded(nbytes)
        while size <= _SLACK * nbytes:
            pieces = self._free.get(size)
            if pieces:
                self._free_bytes -= size
                return pieces.pop()
            size = _rounded(size + 1)
        return None

    def give(self, memory: Memory) -> None:
        """Memory comes back."""
        with self._lock:
            self._free.setdefault(memory.nbytes, []).append(memory)
            self._free.move_to_end(memory.nbytes)
            self._free_bytes += memory.nbytes
            self._used_bytes -= memory.nbytes

    def clear(self) -> None:
        """Let go of everything, and forget how much there was."""
        with self._lock:
            self._free.clear()
            self._free_bytes = 0
            self._most_bytes = self._used_bytes


def _new(nbytes: int) -> Memory:
    size = _rounded(nbytes)
    memory = np.empty(size + _ALIGNMENT, dtype=np.uint8)
    start = -_address(memory) % _ALIGNMENT
    return memory[start : start + size]


def _address(memory: Memory) -> int:
    address: int = memory.__array_interface__["data"][0]
    return address


def _rounded(nbytes: int) -> int:
    """A little more, so that slightly different sizes can share: at most an eighth."""
    step = 1 << max(12, nbytes.bit_length() - 4)
    return -(-nbytes // step) * step


REUSE = CachingAllocator()


@lru_cache(maxsize=1024)
def _block_type(nbytes: int) -> Any:
    """A buffer of this size that gives its memory back when the last tensor on it is gone."""

    def give_back(block: Any) -> None:
        REUSE.give(block.memory)

    return type("Block", (ctypes.c_char * nbytes,), {"__del__": give_back})


def empty(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Like `torch.empty`, from memory that has been used before if there is some."""
    count = math.prod(shape)
    nbytes = count * dtype.itemsize
    if nbytes < SMALLEST_BYTES or device.type != "cpu":
        # By its name a size is read twice as fast.
        return torch.empty(size=shape, dtype=dtype, device=device)
    memory = REUSE.take(nbytes)
    block = _block_type(memory.nbytes).from_buffer(memory)
    block.memory = memory
    tensor: Tensor = torch.frombuffer(block, dtype=dtype, count=count).view(shape)
    if torch.are_deterministic_algorithms_enabled() and torch.utils.deterministic.fill_uninitialized_memory:  # type: ignore[attr-defined]
        # As torch fills its own: a value that was never written must show.
        tensor.fill_(math.nan if dtype.is_floating_point else torch.iinfo(dtype).max if dtype != torch.bool else True)
    return tensor


def as_contiguous(tensor: Tensor) -> Tensor:
    """The same values one after another in memory and with their signs, as machine code reads them."""
    return tensor if tensor.is_contiguous() and not tensor.is_neg() else tensor.resolve_neg().contiguous()


class Scratch:
    """Memory for as long as a `with` lasts, which is told the address: that of a cache line. What is in it is left so.

    No tensor: under deterministic algorithms torch fills all it gives, and with threads, which a forked process lacks.
    """

    def __init__(self, nbytes: int) -> None:
        self._free: list[tuple[int, Memory]] | None = None
        if nbytes >= SMALLEST_BYTES:
            memory = REUSE.take(nbytes)
            self._piece = _address(memory), memory
        else:
            # Small pieces are held back by their sizes, one for each thread that ever wanted one at the same time.
            self._free = _SMALL[nbytes >> _SMALL_BITS]
            try:
                self._piece = self._free.pop()
            except IndexError:
                memory = np.empty(((nbytes >> _SMALL_BITS) + 1 << _SMALL_BITS) + _ALIGNMENT, dtype=np.uint8)
                self._piece = -(-_address(memory) // _ALIGNMENT) * _ALIGNMENT, memory

    def __enter__(self) -> int:
        return self._piece[0]

    def __exit__(self, *_: object) -> None:
        if self._free is None:
            REUSE.give(self._piece[1])
        else:
            self._free.append(self._piece)


_SMALL_BITS = 14
_SMALL: list[list[tuple[int, Memory]]] = [[] for _ in range(SMALLEST_BYTES >> _SMALL_BITS)]
