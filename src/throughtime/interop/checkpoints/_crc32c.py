"""The checksum of a checkpoint, CRC-32C: Python has none, and byte by byte it would take minutes.

A register that meets zeros changes by a linear map of its bits. So a long message is laid out in rows of `width` words,
and every column is folded on its own: what has been met so far is moved down by one row, which is two looks into
tables, and the next row is added. The one row that is left has the checksum of the whole, and is folded again in
shorter rows.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

_POLYNOMIAL = 0x82F63B78
_ONES = 0xFFFFFFFF
# Words in a row, from long messages to short ones: long rows cost less a word, and two tables each to set up.
_WIDTHS = (32768, 1024, 64)
# Rows below which the plain loop is as fast.
_FEW = 4

Words = NDArray[np.uint32]


def crc32c(data: bytes | memoryview | NDArray[np.uint8], before: int = 0) -> int:
    """The checksum of `data`, or of what had the checksum `before`, with `data` behind it."""
    register = before ^ _ONES
    rest = np.frombuffer(data, np.uint8)
    for width in _WIDTHS:
        rows = len(rest) // (4 * width)
        if rows >= _FEW:
            end = rows * 4 * width
            folded = _folded(rest[:end].view("<u4").reshape(rows, width), register)
            rest, register = np.concatenate([folded.view(np.uint8), rest[end:]]), 0
    table = _byte_table()
    for byte in rest.tobytes():
        register = table[(register ^ byte) & 0xFF] ^ (register >> 8)
    return register ^ _ONES


def masked(checksum: int) -> int:
    """A checksum as it is stored: a checksum of data that hold their own checksum would be no good."""
    return ((checksum >> 15 | checksum << 17) + 0xA282EAD8) & _ONES


def _folded(rows: Words, register: int) -> Words:
    """One row that leaves the register as all of them do; the first word meets what was there before."""
    width = rows.shape[1]
    low, high = _tables(width)
    total: Words = rows[0].astype("<u4")
    total[0] ^= register
    place, moved, other = np.empty(width, np.intp), np.empty(width, "<u4"), np.empty(width, "<u4")
    for row in rows[1:]:
        np.bitwise_and(total, 0xFFFF, out=place, casting="unsafe")
        np.take(low, place, out=moved, mode="wrap")
        np.right_shift(total, 16, out=place, casting="unsafe")
        np.take(high, place, out=other, mode="wrap")
        np.bitwise_xor(moved, other, out=total)
        np.bitwise_xor(total, row, out=total)
    return total


@cache
def _tables(width: int) -> tuple[Words, Words]:
    """What becomes of the low and of the high half of a register that meets `width` words of zeros."""
    moved = _after_words(width)
    tables = [np.zeros(1, "<u4"), np.zeros(1, "<u4")]
    for bit, image in enumerate(moved):
        half = tables[bit // 16]
        tables[bit // 16] = np.concatenate([half, half ^ np.uint32(image)])
    return tables[0], tables[1]


def _after_words(count: int) -> list[int]:
    """What becomes of each bit of a register after a number of words of zeros, by repeated squaring of that map."""
    table, step = _byte_table(), []
    for bit in range(32):
        register = 1 << bit
        for _ in range(4):
            register = table[register & 0xFF] ^ (register >> 8)
        step.append(register)
    result = [1 << bit for bit in range(32)]
    while count:
        if count & 1:
            result = [_apply(step, image) for image in result]
        step = [_apply(step, image) for image in step]
        count >>= 1
    return result


def _apply(images: list[int], register: int) -> int:
    found = 0
    for bit, image in enumerate(images):
        if register >> bit & 1:
            found ^= image
    return found


@cache
def _byte_table() -> tuple[int, ...]:
    """What becomes of a register after each byte."""
    table = []
    for byte in range(256):
        register = byte
        for _ in range(8):
            register = (register >> 1) ^ (_POLYNOMIAL if register & 1 else 0)
        table.append(register)
    return tuple(table)
