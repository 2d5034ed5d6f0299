"""Numbers for objects that are known by identity alone: never given twice, and nobody is kept alive for one."""

from __future__ import annotations

import itertools
import weakref
from functools import partial

_numbers = itertools.count(1)
_given: dict[int, tuple[weakref.ref[object], int]] = {}


def serial_number(thing: object) -> int | None:
    """The number of an object; None for one that cannot be watched until its end, such as a list."""
    known = _given.get(id(thing))
    if known is not None and known[0]() is thing:
        return known[1]
    try:
        number = next(_numbers)
        _given[id(thing)] = (weakref.ref(thing, partial(_forget, id(thing), number)), number)
    except TypeError:
        return None
    return number


def _forget(place: int, number: int, _: object) -> None:
    # Another may have been given its place already.
    if place in _given and _given[place][1] == number:
        del _given[place]
