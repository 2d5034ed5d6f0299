"""Where a moment comes several times, several series are mixed: the column that tells them apart names them."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from throughtime.cli.tables._table import Table, Values, is_number
from throughtime.cli.tables._timestamps import instants

# Series told apart, at most.
MOST = 20_000


class _Series:
    """The last moment of each value of a column, as long as each value's moments go forward."""

    def __init__(self, name: str) -> None:
        self.name, self.usable = name, True
        self.last: dict[str, float] = {}
        self.is_text = False

    def take(self, names: Values, times: Values) -> None:
        """Account for some more rows."""
        self.is_text = self.is_text or not all(map(is_number, set(names.tolist())))
        for name, time in zip(names.tolist(), times.tolist(), strict=True):
            if name == "" or self.last.get(name, -np.inf) >= time or len(self.last) > MOST:
                self.usable = False
                return
            self.last[name] = time


def sequence_by_repeats(table: Table, order: str, candidates: Iterable[str]) -> str | None:
    """The first column of which each value has every moment of `order` at most once, if some moments repeat.

    Each of its values has two rows or more on average, since what differs in every row names rows and not series;
    numbers have one at every other moment or more.
    """
    columns = [_Series(name) for name in candidates]
    rows, repeats, last = 0, 0, None
    for piece in table.pieces():
        times = instants(piece.columns[order])
        if times is None or times.dtype == object:
            return None
        repeats += int((times[1:] == times[:-1]).sum()) + (last is not None and times[0] == last)
        for column in columns:
            column.take(piece.texts(column.name), times)
        columns = [column for column in columns if column.usable]
        rows, last = rows + len(piece), times[-1]
    # A quantity may do so by chance; what names series does so at most moments.
    least = {column.name: 2 if column.is_text else max(2, (rows - repeats) / 2) for column in columns}
    found = [column.name for column in columns if 1 < len(column.last) <= rows / least[column.name]]
    return found[0] if repeats and found else None
