"""Checkpoints of version 2: `PREFIX.index`, a table of what is where, and `PREFIX.data-00000-of-00001`, the numbers."""

from __future__ import annotations

from itertools import pairwise
from math import prod
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from throughtime._errors import problem
from throughtime.interop.checkpoints._corruption import Damaged, explained, missing_file
from throughtime.interop.checkpoints._crc32c import crc32c, masked
from throughtime.interop.checkpoints._dtypes import STRING, DType, by_number, known
from throughtime.interop.checkpoints._partitioned_variables import Shape, Slice, check_cover, joined
from throughtime.interop.checkpoints._protobuf import Message, as_text, read_varints
from throughtime.interop.checkpoints._sstable_reader import Table
from throughtime.interop.checkpoints._variable import Value, Variable, read_shape, tensor_of, text_array

_T = TypeVar("_T")

# What a reader of today understands; files that ask for more come from a time to come.
VERSION = 1
_BIG_ENDIAN = 1


class Entry(NamedTuple):
    """What the index says of a variable, or of one slice of it."""

    dtype: DType
    shape: Shape
    shard: int
    offset: int
    size: int
    checksum: int
    slices: list[Slice]

    @classmethod
    def read(cls, data: bytes, most_slices: int) -> Entry:
        """An entry as it is stored, with no more slices than this; whatever it says of itself agrees."""
        message = Message(data)
        if len(message.parts(7)) > most_slices:
            raise Damaged("more slices than the index has entries")
        found = cls(
            by_number(message.number(1)),
            read_shape(message.message(2)),
            message.number(3),
            message.number(4),
            message.number(5),
            message.number(6),
            [Slice.read(each) for each in message.messages(7)],
        )
        if found.dtype.torch and not found.slices and prod(found.shape) * found.dtype.itemsize != found.size:
            raise Damaged(f"{found.size:,} bytes for {found.dtype.name} of shape {found.shape}")
        return found


class Bundle:
    """The variables of a checkpoint of version 2."""

    def __init__(self, prefix: Path) -> None:
        self._prefix = prefix
        self.index = prefix.with_name(f"{prefix.name}.index")
        with explained(self.index):
            entries = dict(Table(self.index).items())
            header = Message(_found(entries.pop(b"", None), "a table without a header"))
            self._shards = header.number(1)
            _check_header(self.index, header)
            self._entries = _read_entries(entries)
            # What begins with a zero is the key of a slice.
            names = [key for key in self._entries if not key.startswith(b"\0")]
            self.variables = {as_text(key): self._variable(self._entries[key]) for key in names}

    def read(self, name: str) -> Value:
        """A variable's numbers, or texts, if their checksum is right."""
        entry = self._entries[name.encode()]
        with explained(self.index, name):
            if not entry.slices:
                return self._read(name, entry)
            check_cover(entry.shape, entry.slices)
            parts = [self._part(name, entry, each) for each in entry.slices]
            self._check_size(parts)
        return joined(entry.shape, entry.slices, [self._numbers(name, part) for part in parts])

    def _part(self, name: str, whole: Entry, where: Slice) -> Entry:
        """The entry of a slice."""
        found: Entry = _found(self._entries.get(where.key(name)), "a slice that is not there")
        if (found.dtype, found.shape) != (whole.dtype, where.shape(whole.shape)) or found.slices:
            raise Damaged(f"a slice of {found.dtype.name} of shape {found.shape}")
        return found

    def _check_size(self, parts: list[Entry]) -> None:
        """Slices do not share bytes: all of them take no more than their files have."""
        paths = {self._shard(part.shard) for part in parts}
        if not all(path.is_file() for path in paths):
            # What is missing is said where it is read.
            return
        held, claimed = sum(path.stat().st_size for path in paths), sum(part.size for part in parts)
        if claimed > held:
            raise Damaged(f"slices of {claimed:,} bytes in files of {held:,}")

    def _shard(self, number: int) -> Path:
        return self._prefix.with_name(f"{self._prefix.name}.data-{number:05}-of-{self._shards:05}")

    def _read(self, name: str, entry: Entry) -> Value:
        return self._texts(name, entry) if entry.dtype is STRING else self._numbers(name, entry)

    def _numbers(self, name: str, entry: Entry) -> Tensor:
        with explained(self.index, name):
            dtype = known(entry.dtype)
        path, data = self._data(name, entry)
        if masked(crc32c(data)) != entry.checksum:
            raise ValueError(_wrong_checksum(name, path))
        return tensor_of(data, dtype, entry.shape)

    def _texts(self, name: str, entry: Entry) -> Value:
        """Texts lie behind their lengths, and a checksum of these."""
        path, data = self._data(name, entry)
        stored = data.tobytes()
        with explained(path, name):
            lengths, at = _lengths(data, prod(entry.shape))
            ends = at + 4 + np.concatenate([[0], np.cumsum(lengths)])
            if ends[-1] != len(stored):
                raise Damaged(f"{len(stored):,} bytes of text that should be {ends[-1]:,}")
        # A length takes four bytes in a checksum; one of 4 GiB and more takes eight.
        sizes = (lengths.astype("<u4").tobytes(),) if len(stored) < 1 << 32 else map(_length_bytes, lengths.tolist())
        if masked(crc32c(b"".join(sizes) + stored[at:])) != entry.checksum:
            raise ValueError(_wrong_checksum(name, path))
        return text_array(entry.shape, [stored[start:end] for start, end in pairwise(ends.tolist())])

    def _data(self, name: str, entry: Entry) -> tuple[Path, NDArray[np.uint8]]:
        """The file in which a variable lies, and its bytes."""
        path = self._shard(entry.shard)
        with explained(self.index, name):
            if entry.shard >= self._shards:
                raise Damaged(f"a variable in file {entry.shard} of {self._shards}")
        if not path.is_file():
            why, fix = f"the numbers of {name!r}", "Copy all files that begin with the name of the checkpoint."
            raise missing_file(path, why, fix)
        with explained(path, name):
            # Before any memory is taken: what a damaged file says of itself may be any number.
            size = path.stat().st_size
            if entry.offset + entry.size > size:
                raise Damaged(f"a file of {size:,} bytes, without byte {entry.offset + entry.size:,}")
            data = np.fromfile(path, np.uint8, entry.size, offset=entry.offset)
            if len(data) != entry.size:
                raise Damaged("a file that became shorter while it was read")
        return path, data

    def _variable(self, entry: Entry) -> Variable:
        # A variable in slices has no bytes of its own.
        size = prod(entry.shape) * entry.dtype.itemsize if entry.slices else entry.size
        return Variable(entry.dtype.name, entry.shape, size)


def _found(value: _T | None, otherwise: str) -> _T:
    if value is None:
        raise Damaged(otherwise)
    return value


def _read_entries(stored: dict[bytes, bytes]) -> dict[bytes, Entry]:
    """All entries of an index; each slice that one names has an entry of its own."""
    entries, most_slices = {}, len(stored)
    for key, value in stored.items():
        entries[key] = Entry.read(value, most_slices)
        most_slices -= len(entries[key].slices)
    return entries


def _check_header(path: Path, header: Message) -> None:
    if header.number(2) == _BIG_ENDIAN:
        what, fix = f"{path} was written on a big-endian machine", "Load it with TensorFlow there, and save it here."
        raise ValueError(problem(what, got="big-endian numbers", expected="little-endian ones", fix=fix))
    needed = header.message(3).number(2)
    if needed > VERSION:
        what, fix = f"{path} needs a newer reader", "Save it with an older TensorFlow."
        raise ValueError(problem(what, got=f"version {needed}", expected=f"at most {VERSION}", fix=fix))


def _lengths(data: NDArray[np.uint8], count: int) -> tuple[NDArray[np.int64], int]:
    """The lengths of `count` texts, and where these lengths end; a length takes a byte at least."""
    if count > len(data):
        raise Damaged(f"{len(data):,} bytes for {count:,} texts")
    ends = np.flatnonzero(data < 0x80)[:count]
    if len(ends) < count:
        raise Damaged("a number that does not end")
    at = int(ends[-1]) + 1 if count else 0
    lengths = read_varints(data[:at].data)
    if (lengths > len(data)).any():
        raise Damaged(f"a text of {int(lengths.max()):,} bytes in {len(data):,}")
    return lengths.astype(np.int64), at


def _length_bytes(length: int) -> bytes:
    return length.to_bytes(4 if length < 1 << 32 else 8, "little")


def _wrong_checksum(name: str, path: Path) -> str:
    return problem(
        f"{name!r} in {path} is damaged",
        got="numbers whose checksum is wrong",
        expected="those that were saved",
        fix="Copy the file once more, or take another checkpoint.",
    )
