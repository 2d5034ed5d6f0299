"""Columns of Arrow that are legal but odd, as numbers or text: bytes, dictionaries, extensions, nanoseconds."""

from __future__ import annotations

from typing import Any

# What pyarrow and Python raise for values that Python has no words for: dates beyond the calendar, unknown time zones,
# casts that do not exist.
UNREADABLE = (ValueError, ArithmeticError, LookupError, TypeError, RuntimeError)


def plain(column: Any) -> Any:
    """The same values in a type that is known: a number, text, a truth value, a date or a time."""
    import pyarrow as pa  # noqa: PLC0415

    if isinstance(column.type, pa.BaseExtensionType):
        column = column.storage
    if pa.types.is_dictionary(column.type):
        kind = column.type.value_type
        if _is_bytes(kind):
            return pa.DictionaryArray.from_arrays(column.indices, column.dictionary.cast(pa.large_string()))
        return column if _is_text(kind) else plain(column.dictionary_decode())
    if _is_bytes(column.type):
        if pa.types.is_fixed_size_binary(column.type):
            column = column.cast(pa.binary())
        # Many programs write text as bytes; the cast raises where they are not UTF-8.
        return column.cast(pa.large_string())
    if _is_in_nanoseconds(column.type):
        return _with_all_digits(column)
    return column


def _with_all_digits(column: Any) -> Any:
    """Times in nanoseconds: in microseconds, which is where Python's end, or as text where digits would be lost."""
    import pyarrow as pa  # noqa: PLC0415

    try:
        return column.cast(_in_microseconds(column.type))
    except pa.ArrowInvalid:
        return column.cast(pa.string())


def _is_text(kind: Any) -> bool:
    import pyarrow as pa  # noqa: PLC0415

    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_bytes(kind: Any) -> bool:
    import pyarrow as pa  # noqa: PLC0415

    known = (
        pa.types.is_binary,
        pa.types.is_large_binary,
        pa.types.is_fixed_size_binary,
        pa.types.is_binary_view,
    )
    return any(is_kind(kind) for is_kind in known)


def _is_in_nanoseconds(kind: Any) -> bool:
    import pyarrow as pa  # noqa: PLC0415

    timed = pa.types.is_timestamp(kind) or pa.types.is_time64(kind) or pa.types.is_duration(kind)
    return bool(timed and kind.unit == "ns")


def _in_microseconds(kind: Any) -> Any:
    import pyarrow as pa  # noqa: PLC0415

    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", tz=kind.tz)
    return pa.time64("us") if pa.types.is_time64(kind) else pa.duration("us")
