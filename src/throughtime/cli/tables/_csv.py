"""CSV and TSV: a header line, then one row a step; or lines of plain text."""

from __future__ import annotations

import codecs
import csv
import gc
import io
import itertools
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import numpy as np

from throughtime._file_limits import ROW_BYTES, TEXT_BYTES
from throughtime._text import plural
from throughtime.cli._compressed import open_bytes, suffix_of
from throughtime.cli._user_errors import listed, refuse
from throughtime.cli.tables._bounds import (
    PIECE_BYTES,
    LongRowError,
    RowBoundedReader,
    check_column_count,
    check_text_size,
    refuse_long_row,
)
from throughtime.cli.tables._table import File, RowChunk, Values, check_columns, is_number, piece_cells

DELIMITERS = ",;\t|"
_Row = TypeVar("_Row")
_BLOCK = 1 << 16
_LINE_END = re.compile(r"\r\n|\r|\n")
# One cell may be a document: rows have a limit, which is noticed first.
csv.field_size_limit(2 * ROW_BYTES)


class CsvTable(File):
    """A text file of rows; the delimiter is the one that the header line uses most. Spaces around a cell are none."""

    delimiter = ","

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        with self._lines() as (lines, source):
            first = next(filter(str.strip, _ended(lines, source)), "")
        self.delimiter = "\t" if suffix_of(path).startswith(".tsv") else max(DELIMITERS, key=first.count)
        with self._lines() as (lines, source):
            rows = _ended(self._reader(lines), source)
            header: list[str] = next(filter(_holds_something, rows), [])
        check_column_count(path, len(header))
        self.columns = [name.strip() for name in header]
        self._check_text(self.columns)
        # Before their names are compared: numbers may well be alike.
        if self.columns and all(is_number(name) for name in self.columns):
            refuse(
                f"{path} has no header",
                got=f"the first line {first.strip()[:40]!r}",
                expected="the names of the columns",
                fix="Add a first line that names them.",
            )
        check_columns(path, self.columns)

    def pieces(self) -> Iterator[RowChunk]:
        """The rows, with the line at which each ends."""
        size = max(1, piece_cells.value // len(self.columns))
        with self._lines() as (lines, source):
            reader = self._reader(lines)
            next(filter(_holds_something, _ended(reader, source)))
            while True:
                before = reader.line_num
                with _no_search_for_cycles():
                    chunk = _chunk(reader, source, size)
                if not chunk:
                    return
                yield from self._piece(chunk, before, reader.line_num)

    def _reader(self, lines: Iterator[str]) -> Any:
        return csv.reader(lines, delimiter=self.delimiter, strict=True)

    @contextmanager
    def _lines(self) -> Iterator[tuple[Iterator[str], RowBoundedReader]]:
        """The lines of the file, and its bytes; what is no text, or no CSV, is the user's mistake, not a traceback."""
        try:
            with self._open() as opened:
                yield opened
        except UnicodeError:
            self._refuse(f"bytes that are not UTF-8 in line {_first_line_that_is_no_text(self.path)}")
        except LongRowError:
            refuse_long_row(self.place(self._begin_of_mistake()))
        except csv.Error as error:
            refuse(
                f"{self.place(self._begin_of_mistake())} is not CSV",
                got=str(error),
                expected="cells that begin with a quote end with one, with quotes inside doubled",
                fix="Correct the quotes.",
            )

    @contextmanager
    def _open(self) -> Iterator[tuple[Iterator[str], RowBoundedReader]]:
        with (
            RowBoundedReader(open_bytes(self.path)) as source,
            io.TextIOWrapper(source, encoding="utf-8-sig", newline="") as file,
        ):
            yield file, source

    def _begin_of_mistake(self) -> int:
        """The line at which the row begins that is no CSV: a quote that is never closed is noticed at the very end."""
        begun = 1
        with self._open() as (lines, source):
            reader = self._reader(lines)
            try:
                for _ in _ended(reader, source):
                    begun = reader.line_num + 1
            except (csv.Error, LongRowError):
                pass
        return begun

    def _piece(self, chunk: list[list[str]], before: int, after: int) -> Iterator[RowChunk]:
        """Rows that were read from the line after `before` on, up to `after`; nothing if all of them are blank."""
        lines = np.arange(before + 1, after + 1)
        if len(chunk) < len(lines):
            lines = before + np.cumsum([1 + sum(len(_LINE_END.findall(cell)) for cell in row) for row in chunk])
        if {*map(len, chunk)} != {len(self.columns)}:
            kept = [place for place, row in enumerate(chunk) if _holds_something(row)]
            lines, chunk = lines[kept], [chunk[place] for place in kept]
            self._check_widths(chunk, lines)
        if chunk:
            self._check_text(itertools.chain.from_iterable(chunk))
            columns = zip(self.columns, zip(*chunk, strict=True), strict=True)
            yield RowChunk({name: np.array([*map(str.strip, cells)], object) for name, cells in columns}, lines)

    def _check_widths(self, chunk: list[list[str]], lines: Values) -> None:
        width = len(self.columns)
        for row, line in zip(chunk, lines, strict=True):
            if len(row) != width:
                refuse(
                    f"{self.place(line)} is not like the header",
                    got=plural(len(row), "cell"),
                    expected=f"{width}, one for each of {listed(self.columns)}",
                    fix="Correct the line.",
                )

    def _check_text(self, cells: Iterable[str]) -> None:
        if "\0" in "".join(cells):
            self._refuse("NUL bytes, which no text has")

    def _refuse(self, got: str) -> NoReturn:
        refuse(
            f"{self.path} is not a text file",
            got=got,
            expected="a CSV file in UTF-8",
            fix="Save it again as CSV (UTF-8), or give it the suffix of what it is (.parquet, .npz).",
        )


@contextmanager
def _no_search_for_cycles() -> Iterator[None]:
    """Rows are lists by the thousand, none of which holds another: to look for cycles takes as long as to read them."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _holds_something(row: list[str]) -> bool:
    """Whether a row is more than a blank line."""
    return len(row) > 1 or any(map(str.strip, row))


def _ended(rows: Iterator[_Row], source: RowBoundedReader) -> Iterator[_Row]:
    """Rows, or lines, each of which ends within the limit."""
    for row in rows:
        source.row = 0
        yield row


def _chunk(reader: Iterator[list[str]], source: RowBoundedReader, size: int) -> list[list[str]]:
    """The next rows: as many as `size`, or as have the bytes of a piece."""
    chunk: list[list[str]] = []
    until = source.total + PIECE_BYTES
    for row in itertools.islice(reader, size):
        chunk.append(row)
        source.row = 0
        if source.total > until:
            break
    return chunk


def _first_line_that_is_no_text(path: Path) -> int:
    """The line at which bytes are no UTF-8, found block by block: a line may be as long as the file."""
    decoder, line = codecs.getincrementaldecoder("utf-8")(), 1
    with io.BufferedReader(open_bytes(path)) as file:
        while True:
            block = file.read(_BLOCK)
            try:
                decoder.decode(block, final=not block)
            except UnicodeDecodeError as error:
                # The decoder may have kept bytes of the block before, none of which is the end of a line.
                return line + error.object[: error.start].count(b"\n")
            if not block:
                return line
            line += block.count(b"\n")


class TextTable(File):
    """A plain text file, as a table of one cell."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.columns = ["text"]

    def pieces(self) -> Iterator[RowChunk]:
        """The whole text."""
        check_text_size(self.path, self.path.stat().st_size)
        with io.BufferedReader(open_bytes(self.path)) as file:
            # Of a compressed file the size is known once it is read.
            content = file.read(TEXT_BYTES + 1)
        check_text_size(self.path, len(content))
        try:
            text = _LINE_END.sub("\n", content.decode("utf-8-sig"))
        except UnicodeError:
            refuse(
                f"{self.path} is not a text file",
                got=f"bytes that are not UTF-8 in line {_first_line_that_is_no_text(self.path)}",
                expected="plain text in UTF-8",
                fix="Save it again in UTF-8.",
            )
        if text:
            yield RowChunk({"text": np.array([text], object)}, np.array([1]))
