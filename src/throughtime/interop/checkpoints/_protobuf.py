"""Protocol buffers as they lie in a file: numbers of varying length, and messages of numbered fields."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from throughtime.interop.checkpoints._corruption import Damaged

Bytes = bytes | memoryview

# Ten times seven bits hold 64.
_MOST_BYTES = 10
_VARINT, _EIGHT, _BYTES, _FOUR = 0, 1, 2, 5


def read_varint(data: Bytes, at: int) -> tuple[int, int]:
    """The number that begins at `at`, seven bits a byte, lowest first, and where what follows begins."""
    value = 0
    for index, byte in enumerate(data[at : at + _MOST_BYTES]):
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, at + index + 1
    raise Damaged("a number that does not end")


def read_varints(data: Bytes) -> NDArray[np.uint64]:
    """All numbers of a packed field, at once."""
    found = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(found < 0x80)
    starts = np.concatenate([[0], ends[:-1] + 1]) if len(ends) else ends
    lengths = ends - starts + 1
    if (ends[-1] + 1 if len(ends) else 0) != len(found) or lengths.max(initial=0) > _MOST_BYTES:
        raise Damaged("a number that does not end")
    values = np.zeros(len(ends), np.uint64)
    for index in range(int(lengths.max(initial=0))):
        there = lengths > index
        part = found[starts[there] + index].astype(np.uint64) & np.uint64(0x7F)
        values[there] |= part << np.uint64(7 * index)
    return values


class Message:
    """A message's fields by number. What is not there has its default, as protocol buffers have it."""

    def __init__(self, data: Bytes) -> None:
        self._fields: dict[int, list[int | Bytes]] = {}
        at = 0
        while at < len(data):
            tag, at = read_varint(data, at)
            value, at = _value(data, at, tag & 7)
            self._fields.setdefault(tag >> 3, []).append(value)

    def __contains__(self, field: int) -> bool:
        return field in self._fields

    def number(self, field: int) -> int:
        """A whole number, not below 0; the last one, if there are several."""
        found: Any = self._fields.get(field, [0])[-1]
        if not isinstance(found, int):
            raise Damaged("bytes in the place of a number")
        return found

    def signed(self, field: int) -> int:
        """A whole number of 64 bits with its sign."""
        found = self.number(field)
        return found - (1 << 64) if found >> 63 else found

    def parts(self, field: int) -> list[Bytes]:
        """All bytes of a field that may be there several times."""
        found: list[Any] = self._fields.get(field, [])
        if any(isinstance(part, int) for part in found):
            raise Damaged("a number in the place of bytes")
        return found

    def part(self, field: int) -> Bytes:
        """The bytes of a field."""
        return (self.parts(field) or [b""])[-1]

    def text(self, field: int) -> str:
        """The text of a field."""
        return as_text(self.part(field))

    def messages(self, field: int) -> Iterator[Message]:
        """All messages of a field, one at a time: each takes many times the memory of its bytes."""
        return map(Message, self.parts(field))

    def message(self, field: int) -> Message:
        """The message of a field, which is empty if it is not there."""
        return Message(self.part(field))


def as_text(data: Bytes) -> str:
    """Bytes as a name."""
    try:
        return bytes(data).decode()
    except UnicodeDecodeError:
        raise Damaged("a name that is no text") from None


def _value(data: Bytes, at: int, kind: int) -> tuple[int | Bytes, int]:
    """A field's value, and where the next one begins."""
    if kind == _VARINT:
        return read_varint(data, at)
    if kind == _BYTES:
        length, at = read_varint(data, at)
    elif kind in (_EIGHT, _FOUR):
        length = 8 if kind == _EIGHT else 4
    else:
        raise Damaged("a field of an unknown kind")
    end = at + length
    if end > len(data):
        raise Damaged("a field that ends too early")
    part = data[at:end]
    return (part if kind == _BYTES else int.from_bytes(part, "little")), end


def varint(value: int) -> bytes:
    """A number as `read_varint` reads it."""
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def field(number: int, value: int | bytes) -> bytes:
    """A field as it is written; a number that is its default is left out."""
    if isinstance(value, bytes):
        return varint(number << 3 | _BYTES) + varint(len(value)) + value
    return varint(number << 3 | _VARINT) + varint(value) if value else b""


def fixed(number: int, value: int) -> bytes:
    """A number of four bytes."""
    return varint(number << 3 | _FOUR) + value.to_bytes(4, "little")
