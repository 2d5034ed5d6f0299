"""Whether a cell is what it was at the last call, at a glance.

To describe a cell takes as long as a small unroll. Nearly always nothing has changed, and that is seen without
describing anything: every collection, object and class that was on the way still holds the very same things.
"""

from __future__ import annotations

import functools
import types
from collections import deque
from collections.abc import Mapping
from itertools import chain
from operator import is_, methodcaller
from typing import Any

from torch import nn

from throughtime.compiler.guards.fingerprint import (
    BUFFERS,
    HOOKS,
    UNORDERED,
    CellFingerprint,
    is_walked,
    seen_from_outside,
    slots_of,
)

_UNSETTLED = (*UNORDERED, *BUFFERS)
_values = methodcaller("values")


class Structure:
    """The description of a cell as a key: compared as a whole, but hashed only once."""

    def __init__(self, parts: tuple[Any, ...]) -> None:
        self._parts = parts
        self._hash = hash(parts)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Structure) and self._parts == other._parts


class GuardCache:
    """A cell as it was described last; it stays with the cell, but not with copies of it.

    It holds nothing that holds the cell: without the cell it must not stay either.
    """

    def __init__(self, cell: nn.Module) -> None:
        # Collections that were empty, and the others: their sizes, and the parts of all of them in one row. Noted
        # before they are described: what another thread changes meanwhile does not look the same at the next call.
        self._empty: list[Any] = []
        self._mappings: list[Mapping[str, Any]] = []
        self._sizes: list[int] = []
        self._names: list[str] = []
        self._values: list[Any] = []
        self._sequences: list[Any] = []
        self._lengths: list[int] = []
        self._parts: list[Any] = []
        self._objects: list[Any] = []
        self._kinds: list[type] = []
        self._functions: list[tuple[types.FunctionType, list[Any]]] = []
        self._slots: list[tuple[Any, tuple[str, ...], tuple[Any, ...]]] = []
        self._settled = True
        self._kind = type(cell)
        self._note_parts(_own_attributes(cell))
        self.fingerprint = CellFingerprint(cell, lambda thing: self._note(thing, cell))
        self.fingerprint.end_visits()
        self.structure = Structure(self.fingerprint.structure)
        self.modules = list(cell.modules())[1:]
        self._tensors = [(t, t.shape, t.dtype, t.device, t.requires_grad) for t in self.fingerprint.tensors]
        # Last, when it is whole: another thread may look for it.
        vars(cell)["_glance"] = self

    @staticmethod
    def last(cell: nn.Module) -> GuardCache | None:
        """The last description of the cell, if it still holds."""
        last: GuardCache | None = vars(cell).get("_glance")
        return last if last is not None and last._holds(cell) else None

    # These run at every call: loops of C where there is one, plain ones elsewhere, and few function calls.

    def _holds(self, cell: nn.Module) -> bool:
        """Whether nothing has changed."""
        mappings = (_own_attributes(cell), *self._mappings)
        return (
            self._settled
            and type(cell) is self._kind
            and not any(self._empty)
            and [*map(len, mappings)] == self._sizes
            and all(map(is_, chain.from_iterable(map(_values, mappings)), self._values))
            and all(map(is_, chain.from_iterable(mappings), self._names))
            and self._same_tensors()
            and (not self._sequences or self._same_sequences())
            and (not self._objects or all(map(is_, map(type, self._objects), self._kinds)))
            and (
                not self._functions or all(_same(seen_from_outside(thing), values) for thing, values in self._functions)
            )
            and (not self._slots or all(_same(_in_slots(thing, names), values) for thing, names, values in self._slots))
        )

    def _same_sequences(self) -> bool:
        return [*map(len, self._sequences)] == self._lengths and all(
            map(is_, chain.from_iterable(self._sequences), self._parts)
        )

    def _same_tensors(self) -> bool:
        for tensor, shape, dtype, device, requires_grad in self._tensors:
            if tensor.requires_grad is not requires_grad or tensor.dtype is not dtype:
                return False
            if tensor.shape != shape or tensor.device != device:
                return False
        return True

    def _note(self, thing: Any, cell: nn.Module) -> None:
        if isinstance(thing, _UNSETTLED):
            # They change without any of their parts being replaced.
            self._settled = False
        elif isinstance(thing, list | deque):
            self._note_sequence(thing)
        elif isinstance(thing, dict | types.MappingProxyType):
            self._note_mapping(thing)
        elif isinstance(thing, types.FunctionType):
            self._functions.append((thing, seen_from_outside(thing)))
        elif isinstance(thing, type):
            self._note_mapping(vars(thing))
        else:
            self._note_object(thing, cell)

    def _note_object(self, thing: Any, cell: nn.Module) -> None:
        names = ("func", "args", "keywords") if isinstance(thing, functools.partial) else slots_of(thing)
        if names:
            self._slots.append((thing, names, _in_slots(thing, names)))
        if is_walked(thing) and hasattr(thing, "__dict__"):
            attributes = vars(thing)
            if thing is not cell:
                self._objects.append(thing)
                self._kinds.append(type(thing))
                self._note_mapping(attributes)
            if isinstance(thing, nn.Module):
                for name in ("_parameters", "_buffers", "_modules", *HOOKS):
                    self._note_mapping(attributes[name])

    def _note_mapping(self, mapping: Mapping[str, Any]) -> None:
        (self._mappings if mapping else self._empty).append(mapping)
        if mapping:
            self._note_parts(mapping)

    def _note_parts(self, mapping: Mapping[str, Any]) -> None:
        self._sizes.append(len(mapping))
        self._names += mapping
        self._values += mapping.values()

    def _note_sequence(self, sequence: Any) -> None:
        (self._sequences if sequence else self._empty).append(sequence)
        if sequence:
            self._lengths.append(len(sequence))
            self._parts += sequence

    def __deepcopy__(self, _: Any) -> None:
        """A copy of the cell is described anew."""

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        return type(None), ()


def _own_attributes(cell: nn.Module) -> dict[str, Any]:
    attributes = vars(cell).copy()
    attributes.pop("_glance", None)
    return attributes


def _in_slots(thing: Any, names: tuple[str, ...]) -> tuple[Any, ...]:
    return tuple([getattr(thing, name, _EMPTY) for name in names])


_EMPTY = object()


def _same(things: Any, others: Any) -> bool:
    """Whether both have the very same parts in the same order."""
    return len(things) == len(others) and all(map(is_, things, others))
