"""Strings: arrays of bytes, handled element by element."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from throughtime.tf1._namespace import exported
from throughtime.tf1.graph._dtypes import as_dtype, bool_, float32, int32, int64, string
from throughtime.tf1.graph._graph import create_op
from throughtime.tf1.ops._convert import convert_to_tensor
from throughtime.tf1.ops._helpers import plain, same_shape_as, torch_dtype
from throughtime.tf1.ops._sparse import SparseTensor
from throughtime.tf1.ops._table import Static, Tensor, Tensors, operation

Text = Any


def _each(function: Callable[..., Any], *arrays: Any) -> Any:
    """An array of what a function gives for each element, arguments broadcast."""
    wide = np.broadcast_arrays(*[np.asarray(one, object) for one in arrays])
    flat = [function(*items) for items in zip(*(one.reshape(-1).tolist() for one in wide), strict=True)]
    return np.array([*flat, None], object)[:-1].reshape(wide[0].shape)


def _text(
    name: str,
    op_name: str,
    function: Callable[[bytes], Any],
    doc: str,
    *others: str,
    dtype: Any = string,
    argument: str = "input",
) -> None:
    def kernel(input: Tensor) -> Tensor:  # noqa: A002
        found = _each(function, input)
        return found if dtype is string else torch.as_tensor(found.astype(dtype.as_numpy_dtype))

    kernel.__doc__ = doc
    operation(
        name,
        *others,
        op_name=op_name,
        dtypes=lambda input: [dtype],  # noqa: A006
        shape_rule=lambda input: [input.shape],  # noqa: A006
        differentiable=False,
    )(kernel)


_text("string_strip", "StringStrip", bytes.strip, "Strings without white space at both ends.")
_text(
    "decode_base64",
    "DecodeBase64",
    lambda text: base64.urlsafe_b64decode(text + b"=" * (-len(text) % 4)),
    "Strings decoded.",
)


@operation(
    "encode_base64",
    op_name="EncodeBase64",
    dtypes=lambda **_: [string],
    shape_rule=same_shape_as("input"),
    differentiable=False,
)
def encode_base64(input: Tensor, pad: Static = False) -> Tensor:  # noqa: A002
    """Strings encoded for the web, with `=` at the end if `pad`."""
    encode = base64.urlsafe_b64encode
    return _each(encode if pad else lambda text: encode(text).rstrip(b"="), input)


def _letters(name: str, op_name: str, function: Callable[[bytes], bytes], doc: str) -> None:
    def kernel(input: Tensor, encoding: Static = "") -> Tensor:  # noqa: A002
        return _each(function if encoding == "" else lambda text: _in_unicode(function, text), input)

    kernel.__doc__ = doc
    operation(
        name, op_name=op_name, dtypes=lambda **_: [string], shape_rule=same_shape_as("input"), differentiable=False
    )(kernel)


def _in_unicode(function: Callable[[bytes], bytes], text: bytes) -> bytes:
    decoded = text.decode()
    return (decoded.lower() if function is bytes.lower else decoded.upper()).encode()


_letters("strings.lower", "StringLower", bytes.lower, "Strings in small letters.")
_letters("strings.upper", "StringUpper", bytes.upper, "Strings in capital letters.")


@operation(
    "strings.length",
    op_name="StringLength",
    dtypes=lambda **_: [int32],
    shape_rule=lambda **given: [given["input"].shape],
    differentiable=False,
    positional=("input", "name", "unit"),
)
def length(input: Tensor, unit: Static = "BYTE") -> Tensor:  # noqa: A002
    """The number of bytes, or of characters."""
    count = len if unit == "BYTE" else lambda text: len(text.decode())
    return torch.as_tensor(_each(count, input).astype(np.int32))


def _broadcast_shape(inputs: Any, **_: Any) -> list[Any]:
    found = None
    for one in inputs:
        if one.shape.sizes is None:
            return [None]
        if one.shape.sizes and found is None:
            found = list(one.shape.sizes)
    return [found or []]


@operation(
    "string_join", op_name="StringJoin", dtypes=lambda **_: [string], shape_rule=_broadcast_shape, differentiable=False
)
def string_join(inputs: Tensors, separator: Static = "") -> Tensor:
    """Strings joined element by element."""
    between = separator.encode() if isinstance(separator, str) else separator
    return _each(lambda *parts: between.join(parts), *inputs)


@operation(
    "as_string",
    op_name="AsString",
    dtypes=lambda **_: [string],
    shape_rule=lambda **given: [given["input"].shape],
    differentiable=False,
)
def as_string(
    input: Tensor,  # noqa: A002
    precision: Static = -1,
    scientific: Static = False,
    shortest: Static = False,
    width: Static = -1,
    fill: Static = "",
) -> Tensor:
    """Numbers as strings, in the format of C's `printf`."""
    flags = fill + (str(width) if width > -1 else "")
    if input.dtype == torch.bool:
        pattern = f"%{flags}s"
        return _each(lambda value: (pattern % ("true" if value else "false")).encode(), input.numpy())
    if input.is_floating_point():
        kind = "e" if scientific else "g" if shortest else "f"
        pattern = f"%{flags}{f'.{precision}' if precision > -1 else ''}{kind}"
    else:
        pattern = f"%{flags}d"
    return _each(lambda value: (pattern % value).encode(), input.numpy())


@operation(
    "string_to_number",
    op_name="StringToNumber",
    spellings={"input": "string_tensor"},
    dtypes=lambda string_tensor, out_type: [out_type],
    shape_rule=lambda string_tensor, out_type: [string_tensor.shape],
    differentiable=False,
    positional=("string_tensor", "out_type", "name", "input"),
)
def string_to_number(string_tensor: Tensor, out_type: Static = float32) -> Tensor:
    """Strings as numbers."""
    kind = as_dtype(out_type)
    read: Callable[[bytes], Any] = int if kind.is_integer else float
    return torch.as_tensor(_each(read, string_tensor).astype(kind.as_numpy_dtype))


@operation(
    "substr",
    op_name="Substr",
    dtypes=lambda **_: [string],
    shape_rule=lambda **given: [given["input"].shape],
    differentiable=False,
    positional=("input", "pos", "len", "name", "unit"),
)
def substr(input: Tensor, pos: Tensor, len: Tensor, unit: Static = "BYTE") -> Tensor:  # noqa: A002
    """A part of each string."""

    def part(text: bytes, first: int, count: int) -> bytes:
        first = max(first + text.__len__(), 0) if first < 0 else first
        if first > text.__len__():
            raise ValueError(f"pos {first} out of range for string {text!r}")
        return text[first : first + count]

    return _each(part, input, pos.numpy(), len.numpy())


def _rewrite(text: str) -> bytes:
    return text.encode().replace(b"\\0", b"\\g<0>")


@operation(
    "regex_replace",
    op_name="StaticRegexReplace",
    scope="StaticRegexReplace",
    dtypes=lambda **_: [string],
    shape_rule=lambda **given: [given["input"].shape],
    differentiable=False,
)
def regex_replace(input: Tensor, pattern: Static, rewrite: Static, replace_global: Static = True) -> Tensor:  # noqa: A002
    """Matches of a pattern replaced."""
    compiled, new = re.compile(pattern.encode()), _rewrite(rewrite)
    return _each(lambda text: compiled.sub(new, text, 0 if replace_global else 1), input)


@operation(
    "strings.regex_full_match",
    op_name="StaticRegexFullMatch",
    dtypes=lambda **_: [bool_],
    shape_rule=lambda **given: [given["input"].shape],
    differentiable=False,
)
def regex_full_match(input: Tensor, pattern: Static) -> Tensor:  # noqa: A002
    """Whether a pattern matches the whole string."""
    compiled = re.compile(pattern.encode())
    return torch.as_tensor(_each(lambda text: compiled.fullmatch(text) is not None, input).astype(bool))


def _joined_shape(inputs: Any, axis: Any, keepdims: Any, separator: Any) -> list[Any]:
    sizes = inputs.shape.sizes
    if sizes is None:
        return [[] if axis is None else None]
    over = (
        set(range(len(sizes)))
        if axis is None
        else {one % len(sizes) for one in (axis if isinstance(axis, list | tuple) else [axis])}
    )
    return [[1 if at in over else size for at, size in enumerate(sizes) if keepdims or at not in over]]


@operation(
    "reduce_join",
    op_name="ReduceJoin",
    spellings={"reduction_indices": "axis", "keep_dims": "keepdims"},
    dtypes=lambda **_: [string],
    shape_rule=_joined_shape,
    differentiable=False,
    positional=("inputs", "axis", "keep_dims", "separator", "name", "reduction_indices", "keepdims"),
)
def reduce_join(inputs: Tensor, axis: Static = None, keepdims: Static = False, separator: Static = "") -> Tensor:
    """Strings joined along axes."""
    array: Any = np.asarray(inputs, object)
    over = (
        list(range(array.ndim))
        if axis is None
        else [one % array.ndim for one in (axis if isinstance(axis, list | tuple) else [axis])]
    )
    for place in over:
        array = np.apply_along_axis(
            lambda row: np.array([separator.encode().join(row.tolist()), None], object)[:1], place, array
        )
    return array if keepdims else array.reshape([size for at, size in enumerate(array.shape) if at not in over])


@operation(
    "strings.unsorted_segment_join",
    op_name="UnsortedSegmentJoin",
    dtypes=lambda **_: [string],
    shape_rule=lambda **given: [(given["num_segments"],)],
    differentiable=False,
)
def unsorted_segment_join(inputs: Tensor, segment_ids: Tensor, num_segments: Static, separator: Static = "") -> Tensor:
    """Strings of each segment joined."""
    parts: list[list[bytes]] = [[] for _ in range(int(plain(num_segments)))]
    for text, number in zip(np.asarray(inputs).tolist(), segment_ids.tolist(), strict=True):
        parts[number].append(text)
    return np.array([*(separator.encode().join(part) for part in parts), None], object)[:-1]  # type: ignore[return-value]


@operation(
    "decode_raw",
    op_name="DecodeRaw",
    spellings={"bytes": "input_bytes"},
    dtypes=lambda input_bytes, out_type, little_endian: [out_type],
    shape_rule=lambda input_bytes, out_type, little_endian: [
        None if input_bytes.shape.sizes is None else [*input_bytes.shape.sizes, None]
    ],
    positional=("input_bytes", "out_type", "little_endian", "name", "bytes"),
    differentiable=False,
)
def decode_raw(input_bytes: Tensor, out_type: Static, little_endian: Static = True) -> Tensor:
    """The bytes of strings as numbers."""
    kind = np.dtype(as_dtype(out_type).as_numpy_dtype).newbyteorder("<" if little_endian else ">")
    array: Any = np.asarray(input_bytes, object)
    rows = [np.frombuffer(text, kind) for text in array.reshape(-1).tolist()]
    found = np.stack(rows).reshape(*array.shape, -1) if rows else np.zeros((*array.shape, 0), kind)
    return torch.as_tensor(found.astype(kind.newbyteorder("="))).to(torch_dtype(out_type))


@exported("string_split")
def string_split(
    source: Any,
    sep: Any = None,
    skip_empty: bool = True,
    delimiter: Any = None,
    result_type: str = "SparseTensor",
    name: str | None = None,
) -> SparseTensor:
    """Strings split at separators (each character of `sep`), as a `SparseTensor`."""
    marks = (" " if sep is None else sep) if delimiter is None else delimiter
    marks = marks.encode() if isinstance(marks, str) else marks
    tensor = convert_to_tensor(source, string)

    def pieces(text: bytes) -> list[bytes]:
        if not marks:
            return [bytes([one]) for one in text]
        parts = re.split(b"[" + re.escape(marks) + b"]", text)
        return [part for part in parts if part or not skip_empty]

    def kernel(texts: Any) -> Any:
        rows = [pieces(text) for text in texts.tolist()]
        places = [[row, place] for row, parts in enumerate(rows) for place in range(len(parts))]
        values = np.array([*(part for parts in rows for part in parts), None], object)[:-1]
        shape = [len(rows), max((len(parts) for parts in rows), default=0)]
        return torch.tensor(places, dtype=torch.int64).reshape(-1, 2), values, torch.tensor(shape)

    op = create_op(
        "StringSplit",
        kernel,
        [tensor],
        name=name or "StringSplit",
        dtypes=[int64, string, int64],
        shapes=[(None, 2), (None,), (2,)],
        differentiable=False,
    )
    return SparseTensor(*op.outputs)


@exported("decode_csv", "io.decode_csv")
def decode_csv(
    records: Any,
    record_defaults: Any,
    field_delim: str = ",",
    use_quote_delim: bool = True,
    name: str | None = None,
    na_value: str = "",
    select_cols: Any = None,
) -> list[Any]:
    """Columns of lines of comma-separated values; an empty field has the default of its column."""
    import csv  # noqa: PLC0415

    tensor = convert_to_tensor(records, string)
    defaults = [convert_to_tensor(one) for one in record_defaults]
    kinds = [one.dtype.base_dtype for one in defaults]

    def column(fields: list[str], default: Any, kind: Any, shape: Any) -> Any:
        fallback: Any = default.reshape(-1)[0] if default.shape[0] else None
        if any(field == na_value for field in fields) and fallback is None:
            raise ValueError("a field is required but missing in a record")
        if kind == string:
            return np.array([*(fallback if field == na_value else field.encode() for field in fields), None], object)[
                :-1
            ].reshape(shape)
        read = int if kind.is_integer else float
        values = [fallback.item() if field == na_value else read(field) for field in fields]
        return torch.tensor(values, dtype=torch_dtype(kind)).reshape(shape)

    def kernel(lines: Any, *given: Any) -> Any:
        texts = [text.decode() for text in np.asarray(lines, object).reshape(-1).tolist()]
        quoting: Any = csv.QUOTE_MINIMAL if use_quote_delim else csv.QUOTE_NONE
        rows = list(csv.reader(texts, delimiter=field_delim, quoting=quoting))
        places = range(len(kinds)) if select_cols is None else select_cols
        return tuple(
            column([row[place] for row in rows], one, kind, lines.shape)
            for place, one, kind in zip(places, given, kinds, strict=True)
        )

    op = create_op(
        "DecodeCSV",
        kernel,
        [tensor, *defaults],
        name=name,
        dtypes=kinds,
        shapes=[tensor.shape] * len(kinds),
        differentiable=False,
        attrs={"tuple": True},
    )
    return list(op.outputs)
