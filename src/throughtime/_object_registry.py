"""Numbers for objects: cells in compiled graphs, executables in handles, objects in the keys of caches.

Unlike an `id`, a number is never given to a second object. The registry does not keep objects alive.
"""

from __future__ import annotations

import itertools
import weakref
from functools import partial

_numbers = itertools.count(1)
_by_id: dict[int, tuple[weakref.ref[object], int]] = {}
_by_number: weakref.WeakValueDictionary[int, object] = weakref.WeakValueDictionary()


def object_number(thing: object) -> int | None:
    """The number of an object; None for an object without weak references, such as a list."""
    known = _by_id.get(id(thing))
    if known is not None and known[0]() is thing:
        return known[1]
    try:
        number = next(_numbers)
        _by_id[id(thing)] = (weakref.ref(thing, partial(_forget, id(thing), number)), number)
    except TypeError:
        return None
    _by_number[number] = thing
    return number


def find_object(number: int) -> object | None:
    """The object with a number; None if it does not exist any more."""
    return _by_number.get(number)


def _forget(place: int, number: int, _: weakref.ref[object]) -> None:
    # A new object may have the same id already.
    if place in _by_id and _by_id[place][1] == number:
        del _by_id[place]
