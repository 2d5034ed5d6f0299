"""Everything that a step may change while it is traced, put back afterwards.

The step runs on a stand-in, but shares with the cell whatever holds no tensors, so that an object is still the one it
is compared with; and its functions see what they close over, and global variables. A step that changes any of it is
refused, and then it must be as it was.
"""

from __future__ import annotations

import array
import contextlib
import copy
import types
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from operator import is_
from typing import Any

import numpy as np

from throughtime.compiler._errors import Uncompilable
from throughtime.compiler._watch import Anatomy, is_walked, slots_of

_MISSING = object()
_MEMORY = (bytearray, array.array, np.ndarray)


Undo = Callable[[], bool]
"""Puts something back to what it was; whether there was anything to put back."""


@contextlib.contextmanager
def undone(cell: Any, named: Sequence[tuple[str, Any]]) -> Iterator[None]:
    """What the cell holds, and what its functions see or get at by a name, is afterwards what it was before.

    Whoever changes something that is `named`, and no part of the cell, is refused: nothing else would tell.
    """
    undo: list[Undo] = []
    Anatomy(cell, lambda thing: undo.extend(_ways_back(thing))).end_visits()
    outside = [(path, way) for path, thing in named if not isinstance(thing, _MEMORY) for way in _ways_back(thing)]
    changed: list[str] = []
    try:
        yield
    finally:
        changed += [path for path, put_back in outside if put_back()]
        for put_back in undo:
            put_back()
    if changed:
        raise Uncompilable(f"a step changes something that is no part of the cell (`{changed[0]}`)")


def _ways_back(thing: Any) -> Iterator[Undo]:
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


def _contents(thing: Any) -> Undo:
    if isinstance(thing, _MEMORY):
        memory: Any = copy.copy(thing)
        content = bytes(thing)

        def put_memory_back() -> bool:
            if bytes(thing) == content:
                return False
            thing[:] = memory
            return True

        return put_memory_back
    parts = list(thing.items() if isinstance(thing, dict) else thing)

    def put_back() -> bool:
        if isinstance(thing, dict):
            if _same(thing, [key for key, _ in parts]) and _same(thing.values(), [part for _, part in parts]):
                return False
        elif _same(thing, parts):
            return False
        thing.clear()
        thing.update(parts) if isinstance(thing, dict | set) else thing.extend(parts)
        return True

    return put_back


def _closed_over(cell: types.CellType) -> Undo:
    content = _content(cell)

    def put_back() -> bool:
        changed = _content(cell) is not content
        if changed:
            cell.cell_contents = content
        return changed

    return put_back


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return _MISSING


def _class_attributes(kind: type) -> Undo:
    attributes = dict(vars(kind))

    def put_back() -> bool:
        changed = [name for name, part in vars(kind).items() if attributes.get(name, _MISSING) is not part]
        for name in changed:
            if name in attributes:
                setattr(kind, name, attributes[name])
            else:
                delattr(kind, name)
        return bool(changed)

    return put_back


def _slot(thing: Any, name: str) -> Undo:
    content = getattr(thing, name, _MISSING)

    def put_back() -> bool:
        changed = content is not _MISSING and getattr(thing, name, _MISSING) is not content
        if changed:
            # Past the door of a frozen dataclass.
            object.__setattr__(thing, name, content)
        return changed

    return put_back


def _same(things: Any, others: Any) -> bool:
    return len(things) == len(others) and all(map(is_, things, others))
