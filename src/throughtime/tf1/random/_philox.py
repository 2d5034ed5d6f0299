"""Philox 4x32-10, keyed and counted as TensorFlow does (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3").

The key is the first seed; the 128-bit counter is the second seed (high half) and a position (low half). One position
gives a block of four 32-bit numbers. An operation reserves positions for each run; the next run continues behind them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint32]

_ROUNDS = 10
_MULTIPLIERS = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_KEY_STEPS = 0x9E3779B9, 0xBB67AE85
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_WORD = 0xFFFFFFFF
_LONG = 0xFFFFFFFFFFFFFFFF


def philox_blocks(seed: int, seed2: int, positions: NDArray[np.uint64]) -> Words:
    """The blocks `[n, 4]` at these positions of the stream that two seeds select."""
    key = [seed & _WORD, seed >> 32 & _WORD]
    high = seed2 & _LONG
    shape = positions.shape
    counter = [
        positions & _LOW,
        positions >> _HALF,
        np.full(shape, high & _WORD, np.uint64),
        np.full(shape, high >> 32, np.uint64),
    ]
    for _ in range(_ROUNDS):
        counter = _round(counter, key)
        key = [(word + step) & _WORD for word, step in zip(key, _KEY_STEPS, strict=True)]
    return np.stack(counter, axis=-1).astype(np.uint32)


def _round(counter: list[NDArray[np.uint64]], key: list[int]) -> list[NDArray[np.uint64]]:
    first, second = counter[0] * _MULTIPLIERS[0], counter[2] * _MULTIPLIERS[1]
    return [
        (second >> _HALF) ^ counter[1] ^ np.uint64(key[0]),
        second & _LOW,
        (first >> _HALF) ^ counter[3] ^ np.uint64(key[1]),
        first & _LOW,
    ]


class PhiloxStream:
    """The random numbers of one operation in one session: two seeds, and the position that the next run begins at."""

    def __init__(self, seed: int, seed2: int) -> None:
        self.seed = seed
        self.seed2 = seed2
        self.position = 0

    def reserve(self, positions: int) -> int:
        """Reserve positions for one run; returns the first."""
        first = self.position
        self.position += positions
        return first

    def blocks(self, first: int, count: int, stride: int = 1) -> Words:
        """`count` blocks `[count, 4]`, `stride` positions apart."""
        return self.blocks_at(np.uint64(first) + np.arange(count, dtype=np.uint64) * np.uint64(stride))

    def blocks_at(self, positions: NDArray[Any]) -> Words:
        """The blocks `[n, 4]` at these positions."""
        return philox_blocks(self.seed, self.seed2, positions)
