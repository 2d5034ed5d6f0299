"""Columns of the calendar: they are known beforehand, so they are never guessed to be what is to be learned."""

from __future__ import annotations

import re

_NAMES = frozenset(
    "year yr fiscalyear fy decade quarter qtr month mon mnth monthofyear week weekofyear isoweek weeknumber weekday "
    "dayofweek dow day dayofmonth dom dayofyear doy hour hr hourofday minute minuteofhour".split()
)
_MARKS = re.compile(r"[^a-z]+")


def is_calendar(name: str) -> bool:
    """Whether a column is called after a part of the calendar.

    >>> from throughtime.cli.tables._calendar import is_calendar
    >>> [is_calendar(name) for name in ("Year", "day_of_week", "Month", "yearly sales")]
    [True, True, True, False]
    """
    return _MARKS.sub("", name.lower()) in _NAMES


def is_year(name: str) -> bool:
    """Whether a column is called after the part of the calendar that never starts again."""
    return _MARKS.sub("", name.lower()) in ("year", "yr", "fiscalyear", "fy")
