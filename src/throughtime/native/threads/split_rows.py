"""Rows split into contiguous ranges of about equal cost, one for each thread."""

from __future__ import annotations

import bisect
import itertools

STEP_COST = 1.0
"""What a step costs a range beside its rows, in rows: one row takes as long to multiply as two."""


def cut_rows(lengths: list[int], count: int) -> list[tuple[int, int]]:
    """At most `count` ranges of rows, none of them empty, for rows of these lengths, the longest first."""
    rows = bisect.bisect_left(lengths, True, key=lambda length: length <= 0)
    count = min(count, rows)
    if count <= 1:
        return [(0, rows)] if rows else []
    if lengths[0] == lengths[-1]:
        return list(itertools.pairwise(rows * shard // count for shard in range(count + 1)))
    return _cut(lengths, [0, *itertools.accumulate(lengths)], 0, rows, count)


def _cut(lengths: list[int], total: list[int], start: int, stop: int, count: int) -> list[tuple[int, int]]:
    """Rows `start` to `stop` cut in two where the dearer half is cheapest, and so on; `total` sums up `lengths`."""
    if count == 1:
        return [(start, stop)]
    left = count // 2
    right = count - left

    def before(place: int) -> float:
        return (total[place] - total[start]) / left + STEP_COST * lengths[start]

    def after(place: int) -> float:
        # A shard runs all steps of its first row, which is its longest.
        return (total[stop] - total[place]) / right + STEP_COST * lengths[place]

    # The one grows from place to place, the other falls. At least as many rows on each side as shards.
    places = range(start + left, stop - right + 1)
    place = places[
        min(bisect.bisect_left(places, True, key=lambda place: before(place) >= after(place)), len(places) - 1)
    ]
    if place > places[0] and after(place - 1) <= before(place):
        place -= 1
    return _cut(lengths, total, start, place, left) + _cut(lengths, total, place, stop, right)
