"""TFRecord framing: length, masked CRC-32C of the length, data, masked CRC-32C of the data."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import BinaryIO

from throughtime._errors import problem
from throughtime.interop.checkpoints._crc32c import crc32c, masked

_HEADER = struct.Struct("<QI")
_CHECKSUM = struct.Struct("<I")
_LENGTH = struct.Struct("<Q")
# Bytes read at a time: a damaged length must not make the reader allocate more than the file has.
_CHUNK = 1 << 24


def framed(data: bytes) -> bytes:
    """A record as it is stored."""
    length = _LENGTH.pack(len(data))
    return length + _CHECKSUM.pack(masked(crc32c(length))) + data + _CHECKSUM.pack(masked(crc32c(data)))


def read_records(file: BinaryIO, name: str) -> Iterator[bytes]:
    """The records of a file; a record that is cut off or damaged raises ValueError with its position."""
    at = 0
    while head := file.read(_HEADER.size):
        length, checksum = _HEADER.unpack(head) if len(head) == _HEADER.size else (-1, 0)
        if length < 0 or masked(crc32c(head[:8])) != checksum:
            raise _damaged(name, at, "a length that does not match its checksum")
        data, tail = _exactly(file, length), file.read(_CHECKSUM.size)
        if len(data) < length or len(tail) < _CHECKSUM.size:
            raise _damaged(name, at, "a record that is cut off")
        if masked(crc32c(data)) != _CHECKSUM.unpack(tail)[0]:
            raise _damaged(name, at, "data that do not match their checksum")
        yield data
        at += _HEADER.size + length + _CHECKSUM.size


def _exactly(file: BinaryIO, length: int) -> bytes:
    """`length` bytes, or those that are left."""
    parts = []
    while length > 0 and (part := file.read(min(length, _CHUNK))):
        parts.append(part)
        length -= len(part)
    return b"".join(parts)


def _damaged(name: str, at: int, got: str) -> ValueError:
    fix = "Write the file again; what comes before this record can be read."
    return ValueError(problem(f"{name} is damaged at byte {at:,}", got=got, expected="a whole record", fix=fix))
