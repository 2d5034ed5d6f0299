"""Snappy, by which the blocks of a table may be compressed: pieces as they are, and copies of what came before."""

from __future__ import annotations

from throughtime._file_limits import BLOCK_BYTES
from throughtime.interop.checkpoints._corruption import Damaged
from throughtime.interop.checkpoints._protobuf import read_varint

# A copy of 64 bytes takes three: nothing grows more.
_GROWTH = 22


def decompress(data: bytes) -> bytes:
    """What was compressed."""
    size, at = read_varint(data, 0)
    if size > min(_GROWTH * len(data), BLOCK_BYTES):
        raise Damaged(f"{len(data):,} compressed bytes that say they were {size:,}")
    found = bytearray()
    while at < len(data):
        kind = data[at] & 3
        at = _literal(data, at, found) if kind == 0 else _copy(data, at, kind, found)
        if len(found) > size:
            break
    if len(found) != size:
        raise Damaged(f"a compressed block of {len(found):,} bytes or more that says it has {size:,}")
    return bytes(found)


def _literal(data: bytes, at: int, found: bytearray) -> int:
    """Append a piece as it is, and return where the next one begins."""
    length, at = data[at] >> 2, at + 1
    if length >= 60:
        # It did not fit beside the kind: the next bytes have it.
        count = length - 59
        length, at = _number(data, at, count), at + count
    end = at + length + 1
    if end > len(data):
        raise Damaged("a compressed block that ends too early")
    found += data[at:end]
    return end


def _copy(data: bytes, at: int, kind: int, found: bytearray) -> int:
    """Append what is `offset` bytes back, and return where the next piece begins."""
    tag = data[at]
    if kind == 1:
        length, offset, end = (tag >> 2 & 7) + 4, (tag >> 5 << 8) | _number(data, at + 1, 1), at + 2
    else:
        count = 2 if kind == 2 else 4
        length, offset, end = (tag >> 2) + 1, _number(data, at + 1, count), at + 1 + count
    if not 0 < offset <= len(found):
        raise Damaged("a compressed block that copies what is not there")
    # A copy may reach into itself: then what is there repeats.
    start = len(found) - offset
    piece = found[start : start + length]
    found += (piece * (length // len(piece) + 1))[:length]
    return end


def _number(data: bytes, at: int, count: int) -> int:
    if at + count > len(data):
        raise Damaged("a compressed block that ends too early")
    return int.from_bytes(data[at : at + count], "little")
