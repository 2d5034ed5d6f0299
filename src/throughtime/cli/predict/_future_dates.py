"""Dates that follow on others: as far from each other as those before, and written in the same way."""

from __future__ import annotations

import calendar
import itertools
import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from throughtime.cli.tables._table import Values
from throughtime.cli.tables._timestamps import date_of, dates_of, ticks

MONTHS = 12
# Year and month; the day; hour, minute and second with its fraction; a time zone.
_FORM = re.compile(
    r"\d{4}-\d\d(?P<day>-\d\d)?(?P<gap>[T ])?(?P<clock>\d\d(:\d\d(:\d\d)?)?)?(?P<part>[.,]\d+)?(?P<zone>\D.*)?"
)


class Stride(NamedTuple):
    """From one date to the next: a number of months or, where these differ, a span of time."""

    months: int
    span: timedelta
    at_ends: bool = False

    def after(self, date: datetime, count: int) -> datetime:
        """The date a number of strides later."""
        if not self.months:
            return date + count * self.span
        month = MONTHS * date.year + date.month - 1 + count * self.months
        year, month = divmod(month, MONTHS)
        days = calendar.monthrange(year, month + 1)[1]
        return date.replace(year=year, month=month + 1, day=days if self.at_ends else min(date.day, days))


def stride_of(dates: Sequence[datetime]) -> Stride | None:
    """The distance between dates, if it is always the same."""
    pairs = list(itertools.pairwise(dates))
    if not pairs:
        return None
    at_ends = all(date.day == calendar.monthrange(date.year, date.month)[1] for date in dates)
    months = {MONTHS * (late.year - early.year) + late.month - early.month for early, late in pairs}
    alike = {(0 if at_ends else date.day, date.timetz()) for date in dates}
    if len(months) == len(alike) == 1 and min(months) > 0:
        return Stride(months.pop(), timedelta(), at_ends)
    moments = ticks(list(dates)).tolist()
    spans = {late - early for early, late in itertools.pairwise(moments)}
    return Stride(0, timedelta(microseconds=spans.pop())) if len(spans) == 1 and min(spans) > 0 else None


def dates_after(values: Values, count: int, usual: Stride | None = None) -> list[str] | None:
    """The dates that follow, or None if they cannot be told; `usual` is for dates without a stride of their own."""
    dates = dates_of(values)
    stride = None if dates is None else stride_of(dates) or usual
    if dates is None or stride is None:
        return None
    try:
        later = [stride.after(dates[-1], ahead) for ahead in range(1, count + 1)]
    except (ValueError, OverflowError):
        # After the year 9999.
        return None
    texts = [_written_like(str(values[-1]).strip(), date) for date in later]
    # Hours after a day that was written without one would be lost.
    return texts if [date_of(text) for text in texts] == later else None


def _written_like(text: str, date: datetime) -> str:
    """A date in the form of another one."""
    form = _FORM.fullmatch(text)
    if form is None:
        return ""
    clock = date.time().isoformat("microseconds")
    part = form["part"] or ""
    digits = clock[9:].ljust(len(part), "0")[: max(0, len(part) - 1)]
    day = date.date().isoformat()[: 10 if form["day"] else 7]
    return f"{day}{form['gap'] or ''}{clock[: len(form['clock'] or '')]}{part[:1]}{digits}{form['zone'] or ''}"
