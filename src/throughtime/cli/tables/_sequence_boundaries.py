"""Where time starts again, another sequence begins: the column that changes there names them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from throughtime.cli.tables._table import RowChunk, Table, Values
from throughtime.cli.tables._timestamps import instants

# Blocks and restarts are kept by their places: a few dozen bytes each.
MOST = 1_000_000


class _Boundaries:
    """The places at which a column changes, as long as none of its values comes back."""

    def __init__(self, name: str) -> None:
        self.name, self.usable = name, True
        self.starts: list[int] = []
        self._seen: set[int] = set()
        self._last: str | None = None

    def take(self, piece: RowChunk, row: int) -> None:
        """Account for some more rows, the first of them being `row`."""
        texts = piece.texts(self.name)
        places = np.flatnonzero(np.concatenate([[texts[0] != self._last], texts[1:] != texts[:-1]]))
        for place in places:
            known = hash(texts[place])
            if texts[place] == "" or known in self._seen or len(self.starts) >= MOST:
                self.usable = False
                return
            self._seen.add(known)
            self.starts.append(row + int(place))
        self._last = str(texts[-1])


def sequence_by_restarts(table: Table, order: str, candidates: Iterable[str]) -> str | None:
    """The column whose every value is one block of rows in which `order` never goes back, if it goes back at all.

    The first that changes exactly where time starts again: a second one would say the same. Else the only one that
    changes there and elsewhere: a sequence may begin later than another ends.
    """
    columns = [_Boundaries(name) for name in candidates]
    restarts: list[int] = []
    row, last = 0, None
    for piece in table.pieces():
        times = instants(piece.columns[order])
        if times is None or len(restarts) > MOST:
            return None
        restarts += [row + int(place) for place in np.flatnonzero(_goes_back(times, last))]
        for column in columns:
            column.take(piece, row)
        columns = [column for column in columns if column.usable]
        row, last = row + len(piece), times[-1]
    if not restarts:
        return None
    exact = [column for column in columns if column.starts[1:] == restarts]
    if exact:
        return exact[0].name
    # What differs from row to row is a number of rows, not of sequences.
    wider = [column for column in columns if 2 * len(column.starts) <= row and {*restarts} <= {*column.starts}]
    return wider[0].name if len(wider) == 1 else None


def _goes_back(times: Values, last: Any) -> Values:
    first = last is not None and type(last) is type(times[0]) and times[0] < last
    return np.concatenate([[first], times[1:] < times[:-1]])
