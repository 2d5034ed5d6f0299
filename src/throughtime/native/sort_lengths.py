"""A batch sorted by length, as machine code: a counting sort, and what follows from it."""

from __future__ import annotations

import ctypes
import functools
from array import array
from collections.abc import Callable
from typing import NamedTuple

from throughtime.native.toolchain.llvm_builder import Builder, LlvmValue, integer, module
from throughtime.native.toolchain.module_loader import load

ORDER = ("lengths", "batch", "most", "table")
"""What it is told: one 64-bit number or address each. See `layout/length_sort.py` for the table."""
FACTS = 3
"""At the beginning of the table: the sum of all lengths, the longest, and whether they came sorted."""


def sort_lengths(frame: array[int]) -> None:
    """Fill in the table of a batch that is not empty."""
    _code()(frame.buffer_info()[0])


@functools.cache
def _code() -> Callable[..., None]:
    return load(module([_order()])).function("order", ctypes.c_void_p)


class _Table(NamedTuple):
    """The frame, and where the parts of the table begin."""

    lengths: LlvmValue
    batch: LlvmValue
    most: LlvmValue
    facts: list[LlvmValue]
    rows: LlvmValue
    back: LlvmValue
    length: LlvmValue
    active: LlvmValue
    offset: LlvmValue
    # How many rows have each length; then, where the next row of that length goes.
    place_of: LlvmValue


def _order() -> Builder:
    b = Builder("order", [("frame", "ptr noalias")])
    t = _table(b)
    _count(b, t)
    _sum_up(b, t)
    _place(b, t)
    return b


def _table(b: Builder) -> _Table:
    kinds = {"lengths": "ptr", "batch": "i64", "most": "i64", "table": "ptr"}
    slots = {name: b.advance(b.parameters["frame"], place, 8) for place, name in enumerate(ORDER)}
    frame = {name: b.load(kinds[name], slot) for name, slot in slots.items()}
    batch, most = frame["batch"], frame["most"]
    facts = [b.advance(frame["table"], fact, 8) for fact in range(FACTS)]
    parts = [b.advance(frame["table"], FACTS, 8)]
    for size in (batch, batch, batch, most, most):
        parts.append(b.advance(parts[-1], size, 8))
    return _Table(frame["lengths"], batch, most, facts, *parts)


def _clipped(b: Builder, t: _Table, row: LlvmValue) -> LlvmValue:
    given, zero = b.load("i64", b.advance(t.lengths, row, 8)), integer(0)
    given = b.select(b.compare("sgt", given, zero), given, zero)
    return b.select(b.compare("slt", given, t.most), given, t.most)


def _count(b: Builder, t: _Table) -> None:
    """As many rows run at a step as are longer than it: counted from the longest down."""
    zero, one = integer(0), integer(1)
    entries = b.binary("add", t.most, one)
    with b.loop(entries, stem="clear") as (time, _):
        b.store(zero, b.advance(t.place_of, time.index, 8))
    with b.loop(t.batch, stem="count") as (row, _):
        count = b.advance(t.place_of, _clipped(b, t, row.index), 8)
        b.store(b.binary("add", b.load("i64", count), one), count)
    with b.loop(entries, carry=[zero], stem="longer") as (time, (longer,)):
        here = b.binary("sub", t.most, time.index)
        count = b.advance(t.place_of, here, 8)
        following = b.binary("add", longer, b.load("i64", count))
        b.store(longer, count)
        with b.when(b.compare("slt", here, t.most)):
            b.store(longer, b.advance(t.active, here, 8))
        time.feed(longer, following)


def _sum_up(b: Builder, t: _Table) -> None:
    """Where each step begins among all rows, the sum of all lengths, and the longest."""
    zero, one = integer(0), integer(1)
    total, longest, is_sorted = t.facts
    for fact, first in ((total, zero), (longest, zero), (is_sorted, one)):
        b.store(first, fact)
    with b.when(b.compare("sgt", t.most, zero)), b.loop(t.most, carry=[zero], stem="step") as (time, (sum_,)):
        b.store(sum_, b.advance(t.offset, time.index, 8))
        running = b.load("i64", b.advance(t.active, time.index, 8))
        following = b.binary("add", sum_, running)
        b.store(following, total)
        with b.when(b.compare("sgt", running, zero)):
            b.store(b.binary("add", time.index, one), longest)
        time.feed(sum_, following)


def _place(b: Builder, t: _Table) -> None:
    """Each row to its place; rows of one length stay in their order."""
    with b.loop(t.batch, stem="place") as (row, _):
        own = _clipped(b, t, row.index)
        following = b.advance(t.place_of, own, 8)
        place = b.load("i64", following)
        b.store(b.binary("add", place, integer(1)), following)
        b.store(row.index, b.advance(t.rows, place, 8))
        b.store(place, b.advance(t.back, row.index, 8))
        b.store(own, b.advance(t.length, place, 8))
        with b.when(b.compare("ne", place, row.index)):
            b.store(integer(0), t.facts[2])
