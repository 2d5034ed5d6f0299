"""CSV and TSV: a header line, then one row a step; or lines of plain text."""

from __future__ import annotations

import csv
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import numpy as np

from throughtime._words import counted
from throughtime.cli._mistakes import listed, refuse
from throughtime.cli.tables._table import CELLS, File, Piece, check_columns, is_number

DELIMITERS = ",;\t|"
# One cell may be a document.
csv.field_size_limit(2**31 - 1)


class CsvTable(File):
    """A text file of rows; the delimiter is the one that the header line uses most."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.columns: list[str] = []
        with path.open(encoding="utf-8-sig", newline="") as file:
            first = next(self._guarded(file), "")
        self.delimiter = "\t" if path.suffix.lower() == ".tsv" else max(DELIMITERS, key=first.count)
        self.columns = [name.strip() for name in next(self._rows(), (0, []))[1]]
        check_columns(path, self.columns)
        if all(is_number(name) for name in self.columns):
            refuse(
                f"{path} has no header",
                got=f"the first line {first.strip()[:40]!r}",
                expected="the names of the columns",
                fix="Add a first line that names them.",
            )

    def pieces(self) -> Iterator[Piece]:
        """The rows, with the line at which each ends."""
        size = max(1, CELLS // len(self.columns))
        rows = self._rows()
        next(rows)
        while chunk := list(itertools.islice(rows, size)):
            yield self._piece(chunk)

    def _rows(self) -> Iterator[tuple[int, list[str]]]:
        """All rows that hold something, the header among them, with the line at which each ends."""
        begun = 1
        with self.path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(self._guarded(file), delimiter=self.delimiter, strict=True)
            try:
                for row in reader:
                    if row:
                        yield reader.line_num, row
                    begun = reader.line_num + 1
            except csv.Error as error:
                refuse(
                    f"{self.place(begun)} is not CSV",
                    got=str(error),
                    expected="cells that begin with a quote end with one, with quotes inside doubled",
                    fix="Correct the quotes.",
                )

    def _piece(self, chunk: list[tuple[int, list[str]]]) -> Piece:
        width = len(self.columns)
        for line, row in chunk:
            if len(row) != width:
                refuse(
                    f"{self.place(line)} is not like the header",
                    got=counted(len(row), "cell"),
                    expected=f"{width}, one for each of {listed(self.columns)}",
                    fix="Correct the line.",
                )
        columns = zip(*(row for _, row in chunk), strict=True)
        texts = {name: np.array(cells, object) for name, cells in zip(self.columns, columns, strict=True)}
        return Piece(texts, np.array([line for line, _ in chunk]))

    def _guarded(self, lines: Iterator[str]) -> Iterator[str]:
        """The same lines; bytes that are not text are the user's mistake, not a traceback."""
        try:
            for line in lines:
                if "\0" in line:
                    self._refuse("NUL bytes, which no text has")
                yield line
        except UnicodeError:
            self._refuse("bytes that are not UTF-8")

    def _refuse(self, got: str) -> NoReturn:
        refuse(
            f"{self.path} is not a text file",
            got=got,
            expected="a CSV file in UTF-8",
            fix="Save it again as CSV (UTF-8), or give it the suffix of what it is (.parquet, .npz).",
        )


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
                got="bytes that are not UTF-8",
                expected="plain text in UTF-8",
                fix="Save it again in UTF-8.",
            )
        if text:
            yield Piece({"text": np.array([text], object)}, np.array([1]))
