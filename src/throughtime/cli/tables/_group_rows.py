"""Rows gathered into sequences, one at a time: what lies in memory is one piece and one sequence."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from throughtime.cli._user_errors import refuse
from throughtime.cli.tables._table import RowChunk, Table, Values
from throughtime.cli.tables._timestamps import instants

# The share of rows that may have the moment of the row before.
TWICE = 0.01


@dataclass(frozen=True)
class Rows:
    """The rows of one sequence."""

    name: str
    piece: RowChunk

    def __len__(self) -> int:
        return len(self.piece)


def rows_of(table: Table, sequence: str | None, order: str | None = None) -> Iterator[Rows]:
    """Sequence after sequence, as they stand in the table; all rows are one sequence if nothing names them."""
    parts: list[RowChunk] = []
    current = ""
    seen: set[int] = set()
    for piece in table.pieces():
        names = names_in(table, piece, sequence)
        starts = [0, *(np.flatnonzero(names[1:] != names[:-1]) + 1), len(names)]
        for start, end in itertools.pairwise(starts):
            name = str(names[start])
            if parts and name != current:
                yield _joined(table, current, parts, order, sequence)
                parts = []
            if not parts and sequence is not None:
                _check_new(table, sequence, name, int(piece.lines[start]), seen)
            current = name
            parts.append(cut_piece(piece, start, end))
    if parts:
        yield _joined(table, current, parts, order, sequence)


def sorted_rows(table: Table, sequence: str | None, order: str | None = None) -> Iterator[Rows]:
    """The same for a table whose sequences are mixed: all of it is held in memory."""
    whole = join(list(table.pieces()))
    names = names_in(table, whole, sequence)
    places: dict[str, list[int]] = {}
    for place, name in enumerate(names):
        places.setdefault(str(name), []).append(place)
    for name, rows in places.items():
        columns = {column: values[rows] for column, values in whole.columns.items()}
        yield _joined(table, name, [RowChunk(columns, whole.lines[rows])], order, sequence)


def names_in(table: Table, piece: RowChunk, sequence: str | None) -> Values:
    """The sequence of each row; all are of one if no column says."""
    if sequence is None:
        return np.zeros(len(piece), object)
    names = piece.texts(sequence)
    nameless = np.flatnonzero(names == "")
    if len(nameless):
        refuse(
            f"{table.place(piece.lines[nameless[0]])}, column `{sequence}` is empty",
            got="a row of no sequence",
            expected="the name of its sequence",
            fix="Fill it in, or remove the row.",
        )
    return names


def join(pieces: list[RowChunk]) -> RowChunk:
    """Several pieces as one."""
    if len(pieces) == 1:
        return pieces[0]
    columns = {name: np.concatenate([piece.columns[name] for piece in pieces]) for name in pieces[0].columns}
    return RowChunk(columns, np.concatenate([piece.lines for piece in pieces]))


def cut_piece(piece: RowChunk, start: int, end: int) -> RowChunk:
    """Some of the rows of a piece."""
    return RowChunk({name: values[start:end] for name, values in piece.columns.items()}, piece.lines[start:end])


def _joined(table: Table, name: str, parts: list[RowChunk], order: str | None, sequence: str | None) -> Rows:
    rows = Rows(name, join(parts))
    if order is not None:
        _check_order(table, rows, order, sequence)
    return rows


def _check_new(table: Table, sequence: str, name: str, line: int, seen: set[int]) -> None:
    """A sequence whose rows stand in two places would be read as two."""
    # A hash instead of the name: a few dozen bytes a sequence, however long its name.
    if hash(name) in seen:
        refuse(
            f"{table.place(line)}: the rows of a sequence are not together",
            got=f"`{sequence}` {name!r} again",
            expected="all rows of a sequence one after another",
            fix=f"Sort the file by `{sequence}`.",
        )
    seen.add(hash(name))


def _check_order(table: Table, rows: Rows, order: str, sequence: str | None, *, may_repeat: bool = False) -> None:
    """Time does not run backwards, as far as numbers and dates of the form 2024-05-01 can tell, nor stand still."""
    values = rows.piece.columns[order]
    if sequence is None and not may_repeat:
        _check_moments(table, rows, order)
    times = instants(values)
    if times is None:
        return
    back = np.flatnonzero(times[1:] < times[:-1])
    if len(back):
        place = int(back[0])
        _refuse_back(table, rows.piece.lines[place + 1], order, (values[place], values[place + 1]), sequence)


def check_forward(table: Table, order: str) -> None:
    """Time does not run backwards in a table whose rows are one sequence."""
    before: RowChunk | None = None
    for piece in table.pieces():
        whole = piece if before is None else join([before, piece])
        _check_order(table, Rows("", whole), order, None, may_repeat=True)
        before = cut_piece(piece, len(piece) - 1, len(piece))


def _refuse_back(table: Table, line: int, order: str, pair: tuple[object, object], sequence: str | None) -> NoReturn:
    # To sort a file of many sequences by time would mix them: that is not the first advice.
    fix = (
        f"Train with `--sequence COLUMN`, which says what rows belong together (add one if there is none); if all "
        f"are one sequence, sort the file by `{order}`, or train with `--ignore {order}`."
        if sequence is None
        else f"Sort the rows of each sequence by `{order}`, or train with another `--sequence COLUMN`."
    )
    refuse(
        f"{table.place(line)}: `{order}` goes back",
        got=f"{pair[1]!s} after {pair[0]!s}",
        expected="rows in the order of time within each sequence",
        fix=fix,
    )


def _check_moments(table: Table, rows: Rows, order: str) -> None:
    """Rows of which no column names the sequence have a moment each; where clocks are changed, a few come twice."""
    values = rows.piece.columns[order]
    again = np.flatnonzero(values[1:] == values[:-1])
    if len(again) > TWICE * len(rows):
        refuse(
            f"{table.place(rows.piece.lines[again[0] + 1])}: `{order}` repeats",
            got=f"{values[again[0]]!s} again, as in {len(again):,} of {len(rows):,} rows",
            expected="one row a moment, or a column that names the series of each row",
            fix=f"Name that column with `--sequence COLUMN`; if the rows are one sequence, say `--ignore {order}`.",
        )
