"""Time in a column: numbers, or dates as ISO 8601 writes them, with or without a time of day and a time zone."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache

import numpy as np

from throughtime.cli.tables._table import Values, is_number, number_of

_DATE = re.compile(r"\d{4}-\d\d|\d{8}T")
# `fromisoformat` takes any letter or digit between a day and an hour.
_STRICT = re.compile(r"\d{4}-\d\d(-\d\d([T ]\d.*)?)?|\d{8}T.*")
_MONTH = re.compile(r"\d{4}-\d\d")
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - dates without a zone are compared with each other only
_TICK = timedelta(microseconds=1)


# Sequences that were recorded together have the same dates.
@lru_cache(maxsize=1 << 16)
def date_of(text: str) -> datetime | None:
    """The moment that a cell names, if it is a date."""
    text = text.strip()
    if not _STRICT.fullmatch(text):
        return None
    try:
        return datetime.fromisoformat(f"{text}-01" if _MONTH.fullmatch(text) else text)
    except ValueError:
        return None


def dates_of(values: Values) -> list[datetime] | None:
    """A column as moments, if it holds nothing but dates: all with a time zone, or none."""
    if values.dtype != object:
        return None
    found: list[datetime] = []
    for text in values:
        date = date_of(text)
        if date is None or (found and (date.tzinfo is None) != (found[0].tzinfo is None)):
            return None
        found.append(date)
    return found


def instants(values: Values) -> Values | None:
    """A column as numbers that grow with time, or None if it does not tell the time in a way that is known here."""
    if values.dtype != object:
        return values
    if all(map(is_number, values)):
        return np.array([number_of(text) for text in values], np.float64)
    dates = dates_of(values)
    if dates is None:
        # Dates with something after them still sort as text.
        return values if all(map(_DATE.match, values)) else None
    return ticks(dates)


def ticks(dates: list[datetime]) -> Values:
    """Microseconds since 1970; clocks of different zones are compared by what they mean."""
    if dates and dates[0].tzinfo is not None:
        dates = [date.astimezone(UTC).replace(tzinfo=None) for date in dates]
    return np.array([(date - _EPOCH) // _TICK for date in dates], np.int64)


class Clock:
    """Whether a column tells the time: dates alone, which go forward in every sequence and never back."""

    def __init__(self) -> None:
        self.dates = True
        self.back = False
        self._forward = False
        self._last: dict[str, int] = {}

    @property
    def runs(self) -> bool:
        """A date that stays as it is throughout each sequence is no clock."""
        return self.dates and self._forward and not self.back

    def take(self, values: Values, names: Values, starts: Values) -> None:
        """Account for some more rows, whose sequences have these names and begin at these places."""
        dates = dates_of(values) if self.dates else None
        if dates is None:
            self.dates = False
            return
        times = ticks(dates)
        for start, end in zip(starts, [*starts[1:], len(times)], strict=True):
            before = self._last.get(names[start], times[start])
            steps = np.diff(times[start:end], prepend=before)
            self.back = self.back or bool((steps < 0).any())
            self._forward = self._forward or bool((steps > 0).any())
            self._last[names[start]] = int(times[end - 1])
