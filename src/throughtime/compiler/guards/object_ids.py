"""Unique ids of objects that are compared by identity: never reused, and without holding the objects."""

from __future__ import annotations

import itertools
import weakref
from functools import partial

_numbers = itertools.count(1)
_given: dict[int, tuple[weakref.ref[object], int]] = {}


def serial_number(thing: object) -> int | None:
    """The id of an object; None for objects without weak references, such as a list."""
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
    # Another object may have its address already.
    if place in _given and _given[place][1] == number:
        del _given[place]
