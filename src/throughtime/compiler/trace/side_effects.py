"""Side effects of a step during tracing, detected and undone.

The step runs on a stand-in, but shares with the cell all objects without tensors (they may be compared by identity),
closures and globals. A step that changes any of these is refused, and the change is undone.
"""

from __future__ import annotations

import array
import contextlib
import copy
import types
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import is_
from typing import Any

import numpy as np

from throughtime._torch_internals import tree_leaves
from throughtime.compiler.errors import Uncompilable
from throughtime.compiler.guards.fingerprint import CellFingerprint, is_walked, slots_of
from throughtime.compiler.trace.trace import TracedTensor

_MISSING = object()
_MEMORY = (bytearray, array.array, np.ndarray)


Undo = Callable[[], bool]
"""Restores an object; returns whether it had changed."""


@contextlib.contextmanager
def side_effects_undone(cell: object) -> Iterator[None]:
    """Restore what the cell holds and what its functions reach."""
    undo: list[Undo] = []
    CellFingerprint(cell, lambda thing: undo.extend(_ways_back(thing))).end_visits()
    try:
        yield
    finally:
        for put_back in undo:
            put_back()


class OutsideState:
    """Objects that functions of a cell reach by name, and that are not part of the cell.

    A step that changes any of them is refused. A change in the first trace is accepted: a memo is not written again.
    """

    def __init__(self, named: Sequence[tuple[str, object]]) -> None:
        self._things = [(path, thing) for path, thing in named if _is_changeable(thing)]
        self._first = [_Entries(thing) for _, thing in self._things]
        self._is_new = True

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Undo the changes of a trace. New entries stay, since another thread may have added them."""
        before = [_Entries(thing) for _, thing in self._things]
        changed: list[int] = []
        try:
            yield
        finally:
            changed += [place for place, entries in enumerate(before) if entries.put_back()]
        again, self._is_new = not self._is_new, False
        if changed and again:
            place = changed[0]
            # The first trace starts the comparison, and the last one ends it.
            before[place].remove(before[place].changed - self._first[place].known.keys())
            raise Uncompilable(f"a step changes something that is no part of the cell (`{self._things[place][0]}`)")


class _Entries:
    """A snapshot of a dictionary, an object, a class or a collection."""

    def __init__(self, thing: object) -> None:
        self._thing = thing
        self._undo = _contents(thing) if isinstance(thing, list | deque | set) else None
        self.known: dict[Any, Any] = {} if self._undo else dict(self._now())
        # The keys that were replaced since.
        self.changed: set[object] = set()

    def _now(self) -> Any:
        return self._thing if isinstance(self._thing, dict) else vars(self._thing)

    def put_back(self) -> bool:
        """Whether anything has changed."""
        if self._undo is not None:
            return self._undo()
        now = dict(self._now())
        new = [key for key in now if key not in self.known]
        self.changed = {key for key in self.known if now.get(key, _MISSING) is not self.known[key]}
        for key in self.changed:
            self._put(key, self.known[key])
        # Traced tensors are useless after the trace.
        self.remove(key for key in new if any(isinstance(leaf, TracedTensor) for leaf in tree_leaves(now[key])))
        return bool(new or self.changed)

    def _put(self, key: Any, value: Any) -> None:
        if isinstance(self._thing, dict):
            self._thing[key] = value
        else:
            # Bypasses the checks of a frozen dataclass.
            (type if isinstance(self._thing, type) else object).__setattr__(self._thing, key, value)

    def remove(self, keys: Iterable[object]) -> None:
        for key in keys:
            if isinstance(self._thing, dict):
                self._thing.pop(key, None)
            elif key in vars(self._thing):
                delattr(self._thing, key)


def _ways_back(thing: object) -> Iterator[Undo]:
    """For each part of an object that can be changed, a function that restores it."""
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


def _is_changeable(thing: object) -> bool:
    return isinstance(thing, dict | list | deque | set | type) or (is_walked(thing) and hasattr(thing, "__dict__"))


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


def _content(cell: types.CellType) -> object:
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


def _slot(thing: object, name: str) -> Undo:
    content = getattr(thing, name, _MISSING)

    def put_back() -> bool:
        changed = content is not _MISSING and getattr(thing, name, _MISSING) is not content
        if changed:
            # Bypasses the checks of a frozen dataclass.
            object.__setattr__(thing, name, content)
        return changed

    return put_back


def _same(things: Any, others: Any) -> bool:
    return len(things) == len(others) and all(map(is_, things, others))
