"""What a file may make a reader of tables allocate: checked before it does, by the limits of `_file_limits.py`."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import NoReturn

from throughtime._file_limits import (
    CELLS,
    CELLS_PER_BYTE,
    COLUMNS,
    ROW_BYTES,
    TEXT_BYTES,
    most_bytes,
    most_cells,
)
from throughtime._text import plural
from throughtime.cli._user_errors import refuse

# Bytes of text in one piece; more only if a single row has more.
PIECE_BYTES = ROW_BYTES


class LongRowError(Exception):
    """A row of a text file does not end within the limit."""


class RowBoundedReader(io.BufferedReader):
    """The bytes of a text file, as long as rows end: the reader of the rows sets `row` to 0 after each."""

    row = 0
    total = 0

    def read1(self, size: int = -1, /) -> bytes:
        """The next bytes: this is what `TextIOWrapper` calls, some thousand bytes at a time."""
        data = super().read1(size)
        self.row += len(data)
        self.total += len(data)
        if self.row > ROW_BYTES:
            raise LongRowError
        return data


def refuse_long_row(place: str) -> NoReturn:
    """The mistake for a `LongRowError`."""
    refuse(
        f"{place} begins a row that is too long",
        got=f"no end of it in {ROW_BYTES:,} bytes",
        expected=f"rows of at most {ROW_BYTES:,} bytes",
        fix="Check that its lines end and its quotes are closed.",
    )


def check_column_count(path: Path, count: int) -> None:
    """Raise a mistake for more columns than a table may have."""
    if count > COLUMNS:
        fix = "Write one row a step, with a column that names the sequence."
        got, expected = plural(count, "column"), f"at most {COLUMNS:,}"
        refuse(f"{path} has too many columns", got=got, expected=expected, fix=fix)


def check_text_size(path: Path, size: int) -> None:
    """Raise a mistake for a text that is too large to be read whole."""
    if size > TEXT_BYTES:
        got = plural(size, "byte") if size == path.stat().st_size else f"more than {TEXT_BYTES:,} bytes"
        expected = f"at most {TEXT_BYTES:,} in one text file"
        refuse(f"{path} is too large", got=got, expected=expected, fix="Split it into several files in a folder.")


def check_cells(path: Path, rows: int, columns: int) -> None:
    """Raise a mistake for a table that is out of proportion to its file."""
    size = path.stat().st_size
    if rows * columns > most_cells(size):
        refuse(
            f"{path} expands to too large a table",
            got=f"{counted_briefly(rows, 'row')} of {counted_briefly(columns, 'column')} in {plural(size, 'byte')}",
            expected=f"at most {CELLS_PER_BYTE} cells a byte of the file, or {CELLS:,}",
            fix="Check where it comes from, or save it as CSV.",
        )


def check_expanded(path: Path, expanded: int) -> None:
    """Raise a mistake for a compressed file that expands out of proportion."""
    size = path.stat().st_size
    if expanded > most_bytes(size):
        refuse(
            f"{path} expands to too many bytes",
            got=f"{counted_briefly(expanded, 'byte')} in {plural(size, 'byte')}",
            expected=f"at most {most_bytes(size):,}",
            fix="Check where it comes from, or save it with numpy.savez, which does not compress.",
        )


def check_regular(path: Path) -> None:
    """Raise a mistake for what is no file, as a pipe or a device: it cannot be read twice, and may never end."""
    if path.exists() and not path.is_file():
        got, fix = "a pipe or a device", "Save what it gives to a file first."
        refuse(f"{path} is not a file", got=got, expected="a regular file or a folder", fix=fix)


def counted_briefly(count: int, noun: str) -> str:
    """`counted`, also of numbers with hundreds of digits."""
    return plural(count, noun) if count <= sys.maxsize else f"more than {sys.maxsize:,} {noun}s"
