"""CSV and TSV: a header line, then one row a step; or lines of plain text."""

from __future__ import annotations

import csv
import gc
import itertools
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from throughtime._words import counted
from throughtime.cli._mistakes import listed, refuse
from throughtime.cli.tables._table import CELLS, File, Piece, Values, check_columns, is_number

DELIMITERS = ",;\t|"
_LINE_END = re.compile(r"\r\n|\r|\n")
# One cell may be a document.
csv.field_size_limit(2**31 - 1)


class CsvTable(File):
    """A text file of rows; the delimiter is the one that the header line uses most. Spaces around a cell are none."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        with self._lines() as lines:
            first = next(filter(str.strip, lines), "")
        self.delimiter = "\t" if path.suffix.lower() == ".tsv" else max(DELIMITERS, key=first.count)
        with self._lines() as lines:
            self.columns = [name.strip() for name in next(filter(_holds_something, self._reader(lines)), [])]
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

    def pieces(self) -> Iterator[Piece]:
        """The rows, with the line at which each ends."""
        size = max(1, CELLS // len(self.columns))
        with self._lines() as lines:
            reader = self._reader(lines)
            next(filter(_holds_something, reader))
            while True:
                before = reader.line_num
                with _no_search_for_cycles():
                    chunk = list(itertools.islice(reader, size))
                if not chunk:
                    return
                yield from self._piece(chunk, before, reader.line_num)

    def _reader(self, lines: Iterator[str]) -> Any:
        return csv.reader(lines, delimiter=self.delimiter, strict=True)

    @contextmanager
    def _lines(self) -> Iterator[Iterator[str]]:
        """The lines of the file; what is no text, or no CSV, is the user's mistake, not a traceback."""
        try:
            with self.path.open(encoding="utf-8-sig", newline="") as file:
                yield file
        except UnicodeError:
            self._refuse(f"bytes that are not UTF-8 in line {_first_line_that_is_no_text(self.path)}")
        except csv.Error as error:
            refuse(
                f"{self.place(self._begin_of_mistake())} is not CSV",
                got=str(error),
                expected="cells that begin with a quote end with one, with quotes inside doubled",
                fix="Correct the quotes.",
            )

    def _begin_of_mistake(self) -> int:
        """The line at which the row begins that is no CSV: a quote that nobody closes is noticed at the very end."""
        begun = 1
        with self.path.open(encoding="utf-8-sig", newline="") as file:
            reader = self._reader(file)
            try:
                for _ in reader:
                    begun = reader.line_num + 1
            except csv.Error:
                pass
        return begun

    def _piece(self, chunk: list[list[str]], before: int, after: int) -> Iterator[Piece]:
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
            yield Piece({name: np.array([*map(str.strip, cells)], object) for name, cells in columns}, lines)

    def _check_widths(self, chunk: list[list[str]], lines: Values) -> None:
        width = len(self.columns)
        for row, line in zip(chunk, lines, strict=True):
            if len(row) != width:
                refuse(
                    f"{self.place(line)} is not like the header",
                    got=counted(len(row), "cell"),
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


def _first_line_that_is_no_text(path: Path) -> int:
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                line.decode("utf-8")
            except UnicodeError:
                return number
    return number


class TextTable(File):
    """A plain text file, as a table of one cell."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.columns = ["text"]

    def pieces(self) -> Iterator[Piece]:
        """The whole text."""
        try:
            text = self.path.read_text(encoding="utf-8-sig")
        except UnicodeError:
            refuse(
                f"{self.path} is not a text file",
                got=f"bytes that are not UTF-8 in line {_first_line_that_is_no_text(self.path)}",
                expected="plain text in UTF-8",
                fix="Save it again in UTF-8.",
            )
        if text:
            yield Piece({"text": np.array([text], object)}, np.array([1]))
