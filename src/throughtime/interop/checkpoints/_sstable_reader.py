"""A sorted table, the file of both versions of checkpoints: blocks of keys and values, and a block that finds them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from throughtime._file_limits import INDEX_ENTRIES, INDEX_KEY_BYTES, KEY_BYTES
from throughtime.interop.checkpoints._corruption import Damaged
from throughtime.interop.checkpoints._crc32c import crc32c, masked
from throughtime.interop.checkpoints._protobuf import read_varint
from throughtime.interop.checkpoints._snappy import decompress

MAGIC = bytes.fromhex("57fb808b247547db")
FOOTER = 48
# Behind every block: how it is compressed, and its checksum.
TRAILER = 5


class _Handle(NamedTuple):
    """Where a block is."""

    offset: int
    size: int


class Table:
    """A table on disk: its index is read at once, the rest on demand."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._size = path.stat().st_size
        footer = self._bytes(_Handle(self._size - FOOTER, FOOTER)) if self._size >= FOOTER else b""
        if footer[-len(MAGIC) :] != MAGIC:
            raise Damaged("a file without the mark at the end of a table")
        # First the handle of what describes the blocks, which is never written; then that of their index.
        _, at = _handle(footer, 0)
        index, _ = _handle(footer, at)
        blocks = list(_entries(self._block(index), Allowance()))
        self._last_keys = [key for key, _ in blocks]
        self._handles = [_handle(value, 0)[0] for _, value in blocks]
        self._check_blocks()
        self._kept: tuple[int, dict[bytes, bytes]] = (-1, {})

    def items(self) -> Iterator[tuple[bytes, bytes]]:
        """All keys and values, block after block."""
        allowance = Allowance()
        for handle in self._handles:
            yield from _entries(self._block(handle), allowance)

    def get(self, key: bytes) -> bytes | None:
        """The value of a key, from the only block that may have it."""
        place = bisect_left(self._last_keys, key)
        if place == len(self._handles):
            return None
        # Neighbours are asked for one after the other.
        if self._kept[0] != place:
            self._kept = place, dict(_entries(self._block(self._handles[place]), Allowance()))
        return self._kept[1].get(key)

    def _check_blocks(self) -> None:
        """Raise unless blocks fit in the file beside each other, in the order of their keys: then each is read once."""
        if sum(handle.size + TRAILER for handle in self._handles) > self._size:
            raise Damaged("blocks that overlap")
        if any(one > other for one, other in pairwise(self._last_keys)):
            raise Damaged("blocks whose keys are in no order")

    def _block(self, handle: _Handle) -> bytes:
        """The contents of a block, if its checksum is right."""
        stored = self._bytes(_Handle(handle.offset, handle.size + TRAILER))
        checked, checksum = stored[:-4], int.from_bytes(stored[-4:], "little")
        if masked(crc32c(checked)) != checksum:
            raise Damaged(f"a block at byte {handle.offset:,} whose checksum is wrong")
        contents, kind = checked[:-1], checked[-1]
        if kind not in (0, 1):
            raise Damaged(f"a block compressed in an unknown way, {kind}")
        return decompress(contents) if kind else contents

    def _bytes(self, handle: _Handle) -> bytes:
        # Before anything is read: what a damaged file says of itself may be any number.
        if handle.offset + handle.size > self._size:
            raise Damaged(f"a block that ends at byte {handle.offset + handle.size:,} of {self._size:,}")
        with self._path.open("rb") as file:
            file.seek(handle.offset)
            found = file.read(handle.size)
        if len(found) != handle.size:
            raise Damaged("a file that became shorter while it was read")
        return found


def _handle(data: bytes, at: int) -> tuple[_Handle, int]:
    offset, at = read_varint(data, at)
    size, at = read_varint(data, at)
    return _Handle(offset, size), at


class Allowance:
    """How many entries, and bytes of their keys, may still be read: a few bytes of a block may stand for a long key."""

    def __init__(self) -> None:
        self._entries, self._bytes = INDEX_ENTRIES, INDEX_KEY_BYTES

    def take(self, size: int) -> None:
        """Count one more entry with a key of `size` bytes."""
        self._entries -= 1
        self._bytes -= size
        if size > KEY_BYTES:
            raise Damaged(f"a key of {size:,} bytes, which has at most {KEY_BYTES:,}")
        if self._entries < 0:
            raise Damaged(f"more than {INDEX_ENTRIES:,} entries")
        if self._bytes < 0:
            raise Damaged(f"keys of more than {INDEX_KEY_BYTES:,} bytes in all")


def _entries(block: bytes, allowance: Allowance) -> Iterator[tuple[bytes, bytes]]:
    """Keys and values of a block: of a key only that is stored in which it differs from the one before."""
    if len(block) < 4:
        raise Damaged("a block without an end")
    # At the end are places where a search may begin, which takes whole blocks in other hands, and their number.
    end = len(block) - 4 - 4 * int.from_bytes(block[-4:], "little")
    if end < 0:
        raise Damaged("a block without a beginning")
    at, key = 0, b""
    while at < end:
        shared, at = read_varint(block, at)
        own, at = read_varint(block, at)
        length, at = read_varint(block, at)
        if shared > len(key) or at + own + length > end:
            raise Damaged("a key or a value that ends too early")
        allowance.take(shared + own)
        key = key[:shared] + block[at : at + own]
        at += own + length
        yield key, block[at - length : at]
