"""Everything that a step may change while it is traced, put back afterwards.

The step runs on a stand-in, but shares with the cell whatever holds no tensors, so that an object is still the one it
is compared with; and its functions see what they close over. A step that changes any of it is refused, and then it
must be as it was.
"""

from __future__ import annotations

import array
import contextlib
import copy
import types
from collections import deque
from collections.abc import Callable, Iterator
from operator import is_
from typing import Any

import numpy as np

from throughtime.compiler._watch import Anatomy, is_walked, slots_of

_MISSING = object()


@contextlib.contextmanager
def undone(cell: Any) -> Iterator[None]:
    """What the cell holds, and what its functions see, is afterwards what it was before."""
    undo: list[Callable[[], None]] = []
    Anatomy(cell, lambda thing: undo.extend(_ways_back(thing))).end_visits()
    try:
        yield
    finally:
        for put_back in undo:
            put_back()


def _ways_back(thing: Any) -> Iterator[Callable[[], None]]:
    """For each part of something that can be changed, a function that undoes it; where nothing has, it does nothing."""
    if isinstance(thing, list | deque | dict | set | bytearray | array.array | np.ndarray):
        yield _contents(thing)
    elif isinstance(thing, types.FunctionType):
        yield _contents(vars(thing))
        yield from map(_closed_over, thing.__closure__ or ())
    elif isinstance(thing, type):
        yield _class_attributes(thing)
    elif is_walked(thing):
        if hasattr(thing, "__dict__"):
            yield _contents(vars(thing))
        yield from (_slot(thing, name) for name in slots_of(thing))


def _contents(thing: Any) -> Callable[[], None]:
    if isinstance(thing, bytearray | array.array | np.ndarray):
        memory: Any = copy.copy(thing)
        content = bytes(thing)

        def put_memory_back() -> None:
            if bytes(thing) != content:
                thing[:] = memory

        return put_memory_back
    parts = list(thing.items() if isinstance(thing, dict) else thing)

    def put_back() -> None:
        if isinstance(thing, dict):
            if not _same(thing, [key for key, _ in parts]) or not _same(thing.values(), [part for _, part in parts]):
                thing.clear()
                thing.update(parts)
        elif not _same(thing, parts):
            thing.clear()
            thing.update(parts) if isinstance(thing, set) else thing.extend(parts)

    return put_back


def _closed_over(cell: types.CellType) -> Callable[[], None]:
    content = _content(cell)

    def put_back() -> None:
        if _content(cell) is not content:
            cell.cell_contents = content

    return put_back


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return _MISSING


def _class_attributes(kind: type) -> Callable[[], None]:
    attributes = dict(vars(kind))

    def put_back() -> None:
        for name, part in list(vars(kind).items()):
            if name not in attributes:
                delattr(kind, name)
            elif attributes[name] is not part:
                setattr(kind, name, attributes[name])

    return put_back


def _slot(thing: Any, name: str) -> Callable[[], None]:
    content = getattr(thing, name, _MISSING)

    def put_back() -> None:
        # Past the door of a frozen dataclass.
        if content is not _MISSING and getattr(thing, name, _MISSING) is not content:
            object.__setattr__(thing, name, content)

    return put_back


def _same(things: Any, others: Any) -> bool:
    return len(things) == len(others) and all(map(is_, things, others))
