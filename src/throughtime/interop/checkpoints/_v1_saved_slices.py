"""Checkpoints of version 1: one table, or some, whose values are the slices of variables."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from throughtime._file_limits import INDEX_ENTRIES
from throughtime.interop.checkpoints._corruption import Damaged, explained
from throughtime.interop.checkpoints._dtypes import STRING, DType, by_number, known
from throughtime.interop.checkpoints._partitioned_variables import Shape, Slice, check_cover, joined
from throughtime.interop.checkpoints._protobuf import Bytes, Message, read_varints
from throughtime.interop.checkpoints._sstable_reader import Table
from throughtime.interop.checkpoints._variable import Value, Variable, read_shape, tensor_of, text_array

# Of the message that holds numbers: its bytes as they are, or a field for each kind.
_CONTENT = 4
_AS_BYTES = {"float32": 5, "float64": 6, "complex64": 9, "complex128": 12}
_AS_NUMBERS = {"int64": 10, "bool": 11, "float16": 13, "bfloat16": 13, "uint32": 16, "uint64": 17}
_OTHER_NUMBERS, _TEXTS = 7, 8


_Place = tuple[Path, Table, Slice]


class _Stored(NamedTuple):
    """A variable, and which slices of it are in which table."""

    dtype: DType
    shape: Shape
    slices: list[_Place]


class SavedSlices:
    """The variables of a checkpoint of version 1."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._stored: dict[str, _Stored] = {}
        self._described = 0
        self._first = paths[0]
        for path in paths:
            with explained(path):
                self._add(path, Table(path))
        self.variables = {
            name: Variable(found.dtype.name, found.shape, prod(found.shape) * found.dtype.itemsize)
            for name, found in self._stored.items()
        }

    def _add(self, path: Path, table: Table) -> None:
        """Note what a table says it has."""
        header = table.get(b"")
        if header is None:
            raise Damaged("a table without a header")
        for described in Message(header).message(1).messages(1):
            self._count(1 + len(described.parts(4)))
            dtype, shape = by_number(described.number(3)), read_shape(described.message(2))
            stored = self._stored.setdefault(described.text(1), _Stored(dtype, shape, []))
            if (stored.dtype, stored.shape) != (dtype, shape):
                raise Damaged(f"{described.text(1)!r} of shape {shape} in one file and {stored.shape} in another")
            stored.slices.extend((path, table, Slice.read(each)) for each in described.messages(4))

    def _count(self, described: int) -> None:
        """Account for variables and slices before they are read."""
        self._described += described
        if self._described > INDEX_ENTRIES:
            raise Damaged(f"more than {INDEX_ENTRIES:,} variables and slices")

    def read(self, name: str) -> Value:
        """A variable's numbers, or texts; the checksum of the block that has them is right."""
        dtype, shape, places = self._stored[name]
        slices = [where for _, _, where in places]
        with explained(places[0][0] if places else self._first, name):
            if not slices:
                raise Damaged("a variable without a slice")
            check_cover(shape, slices)
            if dtype is STRING and len(places) != 1:
                raise Damaged("text in slices")
        pieces = self._pieces(name, dtype, shape, places)
        numbers = [piece for piece in pieces if isinstance(piece, Tensor)]
        return joined(shape, slices, numbers) if numbers else pieces[0]

    def _pieces(self, name: str, dtype: DType, shape: Shape, places: list[_Place]) -> list[Value]:
        """What each slice holds. In the order of their keys, so that every block is read once."""
        keyed = sorted((where.key(name), place) for place, (_, _, where) in enumerate(places))
        pieces: dict[int, Value] = {}
        for key, place in keyed:
            path, table, where = places[place]
            with explained(path, name):
                value = table.get(key)
                if value is None:
                    raise Damaged("a slice that is not there")
                pieces[place] = _read(Message(value).message(2).message(3), dtype, where.shape(shape))
        return [pieces[place] for place in range(len(places))]


def _read(message: Message, dtype: DType, shape: Shape) -> Value:
    """What one slice holds."""
    if dtype is STRING:
        texts = [bytes(text) for text in message.parts(_TEXTS)]
        if len(texts) != prod(shape):
            raise Damaged(f"{len(texts)} texts for shape {shape}")
        return text_array(shape, texts)
    numbers, data = known(dtype), _bytes(message, dtype)
    if len(data) != prod(shape) * dtype.itemsize:
        raise Damaged(f"{len(data):,} bytes for {dtype.name} of shape {shape}")
    # A copy: the block that it lies in is not to be kept, nor to be written to.
    return tensor_of(data.copy(), numbers, shape)


def _bytes(message: Message, dtype: DType) -> NDArray[np.uint8]:
    """The numbers as they lie in memory."""
    if _CONTENT in message or dtype.name in _AS_BYTES:
        field = _CONTENT if _CONTENT in message else _AS_BYTES[dtype.name]
        return np.frombuffer(message.part(field), np.uint8)
    packed: Bytes = message.part(_AS_NUMBERS.get(dtype.name, _OTHER_NUMBERS))
    # The lowest bytes are the number, whatever its sign.
    return read_varints(packed).astype(f"<u{dtype.itemsize}").view(np.uint8)
