"""The wire format of protocol buffers: scalars of every kind, to bytes and from bytes."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, NamedTuple

from throughtime._errors import problem, type_name
from throughtime.interop.checkpoints._protobuf import read_varint, varint

VARINT, EIGHT_BYTES, DELIMITED, FOUR_BYTES = 0, 1, 2, 5
_WORD = 1 << 64


class Scalar(NamedTuple):
    """How one kind of scalar is stored: wire type, default, and the conversions."""

    wire: int
    default: Any
    check: Callable[[str, Any], Any]
    encode: Callable[[Any], bytes]
    decode: Callable[[Any], Any]


def _wrong(name: str, value: Any, expected: str) -> TypeError:
    fix = f"Assign {expected} to `{name}`."
    return TypeError(problem(f"`{name}` has another type", got=type_name(value), expected=expected, fix=fix))


def _whole(name: str, value: Any) -> int:
    try:
        return int(value.__index__())
    except AttributeError:
        raise _wrong(name, value, "an int") from None


def _flag(name: str, value: Any) -> bool:
    return bool(_whole(name, value)) if not hasattr(value, "dtype") else bool(value)


def _real(name: str, value: Any) -> float:
    if isinstance(value, str | bytes) or not hasattr(value, "__float__"):
        raise _wrong(name, value, "a float")
    return float(value)


def _single(name: str, value: Any) -> float:
    number = _real(name, value)
    # As protocol buffers have it: what does not fit four bytes is infinite, the rest is rounded.
    try:
        return float(struct.unpack("<f", struct.pack("<f", number))[0])
    except OverflowError:
        return float("inf") if number > 0 else float("-inf")


def _text(name: str, value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode()
    if not isinstance(value, str):
        raise _wrong(name, value, "a str")
    return str(value)


def _data(name: str, value: Any) -> bytes:
    if not isinstance(value, bytes | bytearray | memoryview):
        raise _wrong(name, value, "bytes")
    return bytes(value)


def _signed(number: int) -> int:
    return number - _WORD if number >> 63 else number


def _whole_number(decode: Callable[[int], Any]) -> Scalar:
    return Scalar(VARINT, 0, _whole, lambda value: varint(value % _WORD), decode)


SCALARS = {
    **dict.fromkeys(("int32", "int64", "enum"), _whole_number(_signed)),
    **dict.fromkeys(("uint32", "uint64"), _whole_number(int)),
    "bool": Scalar(VARINT, False, _flag, lambda value: varint(int(value)), bool),
    "float": Scalar(
        FOUR_BYTES, 0.0, _single, lambda value: struct.pack("<f", value), lambda data: struct.unpack("<f", data)[0]
    ),
    "double": Scalar(
        EIGHT_BYTES, 0.0, _real, lambda value: struct.pack("<d", value), lambda data: struct.unpack("<d", data)[0]
    ),
    "string": Scalar(DELIMITED, "", _text, str.encode, lambda data: bytes(data).decode()),
    "bytes": Scalar(DELIMITED, b"", _data, bytes, bytes),
}


def key_of(number: int, wire: int) -> bytes:
    """What stands before a field: its number and its wire type."""
    return varint(number << 3 | wire)


def delimited(data: bytes) -> bytes:
    """Bytes behind their length."""
    return varint(len(data)) + data


def read_value(data: memoryview, at: int, wire: int) -> tuple[Any, int]:
    """A field's value of this wire type (an int, or bytes), and where the next field begins."""
    if wire == VARINT:
        return read_varint(data, at)
    length, at = read_varint(data, at) if wire == DELIMITED else ({EIGHT_BYTES: 8, FOUR_BYTES: 4}.get(wire, -1), at)
    if length < 0 or at + length > len(data):
        fix = "Pass what `SerializeToString` returned."
        raise ValueError(problem("not a message", got=f"wire type {wire}", expected="a whole field", fix=fix))
    return data[at : at + length], at + length


def unpacked(scalar: Scalar, data: memoryview) -> list[Any]:
    """All numbers of a packed field."""
    found, at = [], 0
    while at < len(data):
        value, at = read_value(data, at, scalar.wire)
        found.append(scalar.decode(value))
    return found
