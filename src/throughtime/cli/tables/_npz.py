"""NPZ: arrays by steps and by sequences, read as the same long table without ever holding it whole."""

from __future__ import annotations

import math
import struct
import sys
import tokenize
import warnings
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple, NoReturn

import numpy as np

from throughtime._text import plural
from throughtime.cli._archives import open_archive
from throughtime.cli._user_errors import refuse
from throughtime.cli.tables._bounds import (
    PIECE_BYTES,
    check_cells,
    check_column_count,
    check_expanded,
    counted_briefly,
)
from throughtime.cli.tables._table import File, RowChunk, Values, check_columns, piece_cells

LENGTHS = "lengths"
# What the column with the numbers of the sequences is called.
NAME = "sequence"
# Whole numbers, numbers, text, truth values and dates.
KINDS = "iufUSbM"
KIND_NAMES = {"O": "Python objects", "c": "complex numbers", "V": "records", "m": "spans of time"}
# What reading a damaged archive raises; it has no class of its own for what is encrypted, or compressed in other ways.
_DAMAGE = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    tokenize.TokenError,
    ValueError,
    EOFError,
    OverflowError,
    SyntaxError,
    RuntimeError,
)
SCHEMA = "`lengths` [S], arrays by step [sum of lengths, ...] or padded [S, T, ...], and arrays by sequence [S]"


class _TextError(Exception):
    """Text in an array that cannot be written again."""


class Header(NamedTuple):
    """What an array's file says before its numbers."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    fortran: bool

    @property
    def size(self) -> int:
        """How many numbers it claims to have; numpy's own product would be wrong beyond 64 bits."""
        return math.prod(self.shape)


class NpzTable(File):
    """Arrays as columns: one of [N, F] gives F columns, one by sequence is repeated for each of its steps."""

    unit = "step"
    sequence: str | None = NAME

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.headers = self._headers()
        self.lengths = self._lengths()
        self.empty = int((self.lengths == 0).sum())
        # Lengths are small, numbers by step are not: these are read piece by piece.
        self.by_sequence = self._wholes(
            name for name, header in self.headers.items() if name != LENGTHS and header.shape == self.lengths.shape
        )
        self.by_step = [name for name in self.headers if name != LENGTHS and name not in self.by_sequence]
        self.columns = [NAME, *(c for name in self.by_step for c in self._columns(name)), *self.by_sequence]
        check_columns(path, self.columns)
        check_cells(path, int(self.lengths.sum()), len(self.columns))
        if not self.by_step:
            some = list(self.headers)[:8]
            more = ", ..." if len(self.headers) > len(some) else ""
            self._refuse(f"no array by step among {', '.join(some)}{more}")

    def pieces(self) -> Iterator[RowChunk]:
        """The steps of some sequences at a time: a sequence is never cut."""
        with self._guarded(), open_archive(self.path) as archive:
            streams = {name: _Stream(archive, name, self.headers[name]) for name in self.by_step}
            done, row = 0, 1
            limit = max(1, min(piece_cells.value // len(self.columns), PIECE_BYTES // max(1, self._row_bytes())))
            # Padding is read too, but not returned.
            padded = max((self.headers[name].shape[1] for name in self.by_step if self._is_padded(name)), default=0)
            ends = np.concatenate([[0], np.cumsum(np.maximum(self.lengths, padded))])
            while done < len(self.lengths):
                until = max(done + 1, int(np.searchsorted(ends, ends[done] + limit, "right")) - 1)
                lengths = self.lengths[done:until]
                columns: dict[str, Values] = {NAME: np.repeat(np.arange(done, until), lengths)}
                for name, stream in streams.items():
                    steps = stream.padded(lengths) if self._is_padded(name) else stream.rows(int(lengths.sum()))
                    names = self._columns(name)
                    flat = steps.reshape(len(steps), len(names))
                    columns |= {column: _plain(flat[:, place]) for place, column in enumerate(names)}
                for name, values in self.by_sequence.items():
                    # As objects first: a text takes as much as the longest in an array, but as an object once.
                    columns[name] = np.repeat(_plain(values[done:until]), lengths)
                count = int(lengths.sum())
                if count:
                    yield RowChunk(columns, np.arange(row, row + count))
                done, row = until, row + count

    def _row_bytes(self) -> int:
        """Bytes of one step in all arrays by step."""
        widths = {name: len(self._columns(name)) for name in self.by_step}
        return sum(self.headers[name].dtype.itemsize * width for name, width in widths.items())

    def _headers(self) -> dict[str, Header]:
        """Shapes and dtypes of all arrays, without their numbers; what they claim is what the file has."""
        with self._guarded(), open_archive(self.path) as archive:
            names = [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]
            check_column_count(self.path, len(names))
            headers = {name: self._header(archive, name) for name in names}
        check_expanded(self.path, sum(header.size * header.dtype.itemsize for header in headers.values()))
        # A side of 0 takes no bytes, whatever the others are: each of these may become lengths or names.
        sides = ([max(1, side) for side in header.shape] for header in headers.values())
        check_cells(self.path, sum(map(math.prod, sides)), 1)
        for name, header in headers.items():
            if header.dtype.kind not in KINDS:
                self._refuse(f"`{name}` of {KIND_NAMES.get(header.dtype.kind, str(header.dtype))}")
            if not header.shape:
                self._refuse(f"`{name}`, a scalar")
            if header.fortran:
                self._refuse(
                    f"`{name}` with its columns first", fix=f"Save `numpy.ascontiguousarray({name})` in its place."
                )
        return headers

    def _header(self, archive: zipfile.ZipFile, name: str) -> Header:
        """What an array's file says before its numbers, if these are as many as it says."""
        member = archive.getinfo(f"{name}.npy")
        with archive.open(member.filename) as file:
            header = _read_header(file)
            held = member.file_size - file.tell()
        claimed = header.size * header.dtype.itemsize
        # Objects are pickled: their length is not known, and they are refused anyway.
        if header.dtype.kind in KINDS and claimed != held:
            claims = f"{counted_briefly(claimed, 'byte')} and has {counted_briefly(held, 'byte')}"
            raise ValueError(f"`{name}` of shape {header.shape} claims {claims}")
        return header

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        """What is no NPZ file, or a broken one, is a mistake, wherever that shows."""
        try:
            yield
        except _DAMAGE as error:
            refuse(
                f"{self.path} is not an NPZ file",
                got=str(error)[:200],
                expected="what numpy.savez writes",
                fix="Save it again with numpy.savez.",
            )
        except _TextError as error:
            refuse(
                f"{self.path} has text that is not UTF-8",
                got=str(error),
                expected="text in UTF-8",
                fix="Save it as numpy's own text (dtype U).",
            )

    def _lengths(self) -> Values:
        """Steps of each sequence: as told, or all of a padded array, or one sequence."""
        if LENGTHS in self.headers:
            lengths = self._wholes([LENGTHS])[LENGTHS]
            if lengths.ndim != 1 or lengths.dtype.kind not in "iu" or (lengths < 0).any():
                self._refuse(f"`lengths` of shape {lengths.shape} and dtype {lengths.dtype}")
            # Before they are added up, which may be more than 64 bits hold.
            check_cells(self.path, int(lengths.max(initial=0)), 1)
            return lengths.astype(np.int64)
        padded = [header.shape for header in self.headers.values() if len(header.shape) == 3]
        if padded:
            return np.full(padded[0][0], padded[0][1])
        longest = max((header.shape[0] for header in self.headers.values()), default=0)
        return np.array([longest])

    def _is_padded(self, name: str) -> bool:
        shape = self.headers[name].shape
        return len(shape) > 1 and shape[0] == len(self.lengths) and (len(shape) > 2 or shape[0] != self.lengths.sum())

    def _columns(self, name: str) -> list[str]:
        """One name for a column alone, numbered ones for several."""
        axes = 2 if self._is_padded(name) else 1
        check_column_count(self.path, math.prod(self.headers[name].shape[axes:]))
        shape = self.headers[name].shape
        if self._is_padded(name):
            if len(self.lengths) and shape[1] < self.lengths.max():
                self._refuse(f"`{name}` of shape {shape} and a length of {self.lengths.max()}")
            width = math.prod(shape[2:])
            return [name] if len(shape) == 2 else [f"{name}_{place}" for place in range(width)]
        if shape[0] != self.lengths.sum():
            held = f"{plural(len(self.lengths), 'sequence')} of {plural(int(self.lengths.sum()), 'step')}"
            self._refuse(f"`{name}` of shape {shape} with {held}")
        return [name] if len(shape) == 1 else [f"{name}_{place}" for place in range(math.prod(shape[1:]))]

    def _wholes(self, names: Iterable[str]) -> dict[str, Values]:
        """Whole arrays, the archive opened once: its list of members is read each time."""
        with self._guarded(), open_archive(self.path) as archive:
            return {
                name: _Stream(archive, name, self.headers[name]).rows(self.headers[name].shape[0]) for name in names
            }

    def _refuse(self, got: str, fix: str = "See `throughtime train --help`.") -> NoReturn:
        refuse(f"{self.path} has arrays that do not fit together", got=got, expected=SCHEMA, fix=fix)


class _Stream:
    """An array in a ZIP file, read from its first row to its last."""

    def __init__(self, archive: zipfile.ZipFile, name: str, header: Header) -> None:
        self.file = archive.open(f"{name}.npy")
        _read_header(self.file)
        self.header = header

    def rows(self, count: int) -> Values:
        """The next rows along the first axis."""
        shape = (count, *self.header.shape[1:])
        size = math.prod(shape) * self.header.dtype.itemsize
        return np.frombuffer(self.file.read(size), self.header.dtype).reshape(shape)

    def padded(self, lengths: Values) -> Values:
        """The real steps of the next sequences."""
        rows = self.rows(len(lengths))
        return np.concatenate([row[:length] for row, length in zip(rows, lengths, strict=True)])


def _read_header(file: IO[bytes]) -> Header:
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    with warnings.catch_warnings():
        # Of a header that Python 2 has written numpy says that it takes longer to read.
        warnings.simplefilter("ignore", UserWarning)
        shape, fortran, dtype = read(file)
    if any(side < 0 for side in shape):
        raise ValueError(f"an array of shape {shape}")
    return Header(shape, dtype, fortran and len(shape) > 1)


def _plain(values: Values) -> Values:
    """Numbers as they are; text and booleans as text, like every other table's."""
    if values.dtype.kind in "iuf":
        return values
    if values.dtype.kind == "U":
        _check_characters(values)
    try:
        if values.dtype.kind == "S":
            values = np.char.decode(values, "utf-8")
        elif values.dtype.kind == "U":
            # Half of a surrogate pair is in no text.
            np.char.encode(values, "utf-8")
    except UnicodeError as error:
        raise _TextError(f"{error.object[:40]!r}") from None  # type: ignore[attr-defined]
    return np.array(
        [str(value) for value in (values.astype(str) if values.dtype.kind == "M" else values).tolist()], object
    )


def _check_characters(values: Values) -> None:
    """Numpy believes what a file says: numbers that are no characters would only be noticed deep inside of Python."""
    codes = np.ascontiguousarray(values).view(np.dtype("u4").newbyteorder(values.dtype.byteorder))
    if (codes > sys.maxunicode).any():
        raise ValueError("text with numbers that are no characters")
