"""What every reader gives: named columns, in pieces that fit in memory."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, Protocol

import numpy as np

from throughtime._file_limits import NAME_CHARACTERS
from throughtime._setting import Setting
from throughtime.cli._user_errors import refuse
from throughtime.cli.tables._bounds import check_column_count

# Cells in one piece: large enough for numpy to be quick, small enough to forget about.
piece_cells = Setting(250_000)

Values = np.ndarray[Any, Any]

# Beyond this a square is no number any more.
LARGEST = 1e150
# How tables say that a number is not known, besides saying nothing.
UNKNOWN = frozenset({"", "na", "n/a", "#n/a", "<na>", "nan", "null", "none", "?"})


@dataclass(frozen=True)
class RowChunk:
    """Some rows of a table: columns of text (object arrays) or numbers, and the `lines` at which the rows stood."""

    columns: dict[str, Values]
    lines: Values

    def __len__(self) -> int:
        return len(self.lines)

    def numbers(self, name: str, table: Table) -> Values:
        """A column as float64; NaN where nothing is known, and a mistake with its line where there is no number."""
        values = self.columns[name]
        if values.dtype == object:
            try:
                numbers = np.array([number_of(text) for text in values], np.float64)
            except ValueError:
                _refuse_number(table, name, *first_bad_number(values, self.lines))
        else:
            numbers = values.astype(np.float64)
        wild = np.abs(numbers) > LARGEST
        if wild.any():
            _refuse_number(table, name, self.lines[wild][0], str(values[wild][0]))
        return numbers

    def texts(self, name: str) -> Values:
        """A column as text; whole numbers are written without a point, so that 3 and 3.0 are one category."""
        values = self.columns[name]
        return values if values.dtype == object else np.array([text_of(value) for value in values.tolist()], object)


class Table(Protocol):
    """A file of named columns; `sequence` is the one in which the format itself names the sequences, if it does."""

    path: Path
    columns: list[str]
    sequence: str | None
    # Sequences that have a name but no step, as far as the table has been read: there is nothing in them to learn.
    empty: int

    def pieces(self) -> Iterator[RowChunk]:
        """The rows from first to last, some at a time."""
        ...

    def place(self, line: int) -> str:
        """Where one of the lines of a piece is, for a person to find it."""
        ...


class File:
    """What tables of one file have in common; `unit` is what their lines count."""

    sequence: str | None = None
    empty = 0
    unit = "line"

    def __init__(self, path: Path) -> None:
        self.path = path

    def place(self, line: int) -> str:
        """The file, by the path that was given, and the line."""
        return f"{self.path}, {self.unit} {line}"


def text_of(value: Any) -> str:
    """A value as a category's name."""
    if isinstance(value, float):
        if math.isnan(value):
            return ""
        return str(int(value)) if value.is_integer() else f"{value:g}"
    return str(value)


def number_of(text: str) -> float:
    """The number in a cell; NaN where the cell says that it is not known."""
    try:
        return float(text or "nan")
    except ValueError:
        if text.strip().lower() in UNKNOWN:
            return math.nan
        raise


def is_number(text: str) -> bool:
    """Whether a cell holds a number, or says that none is known."""
    try:
        number_of(text)
    except ValueError:
        return False
    return True


def first_bad_number(values: Values, lines: Values) -> tuple[int, str]:
    """The line and text of the first cell that is not a number."""
    return next((int(line), text) for line, text in zip(lines, values, strict=True) if not is_number(text))


def _refuse_number(table: Table, name: str, line: int, text: str) -> NoReturn:
    refuse(
        f"{table.place(line)}, column `{name}` is not a number",
        got=repr(text),
        expected=f"a number of at most {LARGEST:g}, or nothing for a missing one",
        fix="Correct the cell.",
    )


def check_columns(path: Path, columns: list[str]) -> None:
    """Every column has a name of its own."""
    fix = "Give every column a name of its own in the first line."
    if not columns:
        refuse(f"{path} has no columns", got="an empty file", expected="a header line and rows", fix=fix)
    check_column_count(path, len(columns))
    seen: set[str] = set()
    for place, name in enumerate(columns, 1):
        if not name:
            refuse(f"{path}, column {place} has no name", got="an empty name", expected="text", fix=fix)
        if len(name) > NAME_CHARACTERS:
            got, expected = f"one of {len(name):,} characters", f"at most {NAME_CHARACTERS:,}"
            refuse(f"{path}, column {place} has too long a name", got=got, expected=expected, fix=fix)
        if name in seen:
            refuse(f"{path} has two columns of one name", got=repr(name), expected="different names", fix=fix)
        seen.add(name)
