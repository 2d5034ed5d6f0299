"""A sorted table, as `Table` reads it and TensorFlow does."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from throughtime.interop.checkpoints._crc32c import crc32c, masked
from throughtime.interop.checkpoints._protobuf import varint
from throughtime.interop.checkpoints._sstable_reader import FOOTER, MAGIC

# Bytes of a block, roughly.
_BLOCK = 16384
# The interval of keys that are written in full.
_RESTART = 16


def table_of(entries: Iterable[tuple[bytes, bytes]]) -> bytes:
    """A table, of sorted entries: blocks, an index of them by their last keys, and where that is."""
    table, index = bytearray(), []
    for last, block in _blocks(entries):
        index.append((last, _put(table, block)))
    nothing = _put(table, _block([]))
    handles = nothing + _put(table, _block(index))
    return bytes(table) + handles.ljust(FOOTER - len(MAGIC), b"\0") + MAGIC


def _blocks(entries: Iterable[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
    """Blocks of about the same size, each with its last key."""
    gathered: list[tuple[bytes, bytes]] = []
    size = 0
    for key, value in entries:
        gathered.append((key, value))
        size += len(key) + len(value)
        if size > _BLOCK:
            yield key, _block(gathered)
            gathered, size = [], 0
    if gathered:
        # Nothing follows: one byte that is above all keys will do, as in TensorFlow's own files.
        yield _above(gathered[-1][0]), _block(gathered)


def _block(entries: list[tuple[bytes, bytes]]) -> bytes:
    """Keys and values; of a key only what differs from the one before, except for some at which a search may begin."""
    block, restarts, before = bytearray(), [], b""
    for count, (key, value) in enumerate(entries):
        if count % _RESTART == 0:
            restarts.append(len(block))
            before = b""
        shared = _shared(before, key)
        block += varint(shared) + varint(len(key) - shared) + varint(len(value)) + key[shared:] + value
        before = key
    numbers = [*(restarts or [0]), len(restarts) or 1]
    return bytes(block) + b"".join(number.to_bytes(4, "little") for number in numbers)


def _put(table: bytearray, block: bytes) -> bytes:
    """Append a block, not compressed, with its checksum; return where it is."""
    handle = varint(len(table)) + varint(len(block))
    stored = block + b"\0"
    table += stored + masked(crc32c(stored)).to_bytes(4, "little")
    return handle


def _above(key: bytes) -> bytes:
    """A short key that is not below this one; no byte of a name is as large as a byte can be."""
    return bytes([key[0] + 1]) if key else key


def _shared(before: bytes, key: bytes) -> int:
    """How many bytes two keys have in common."""
    pairs = zip(before, key, strict=False)
    return next((count for count, (one, other) in enumerate(pairs) if one != other), min(len(before), len(key)))
