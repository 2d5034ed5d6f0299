"""Whether a cell is what it was at the last call, at a glance.

To describe a cell takes as long as a small unroll. Nearly always nothing has changed, and that is seen without
describing anything: every collection, object and class that was on the way still holds the very same things.
"""

from __future__ import annotations

import types
from collections import deque
from collections.abc import Mapping
from operator import is_
from typing import Any

import numpy as np
from torch import nn

from throughtime.compiler._watch import HOOKS, Anatomy, seen_from_outside

_UNSETTLED = (set, frozenset, np.ndarray)


class Structure:
    """The description of a cell as a key: compared as a whole, but hashed only once."""

    def __init__(self, parts: tuple[Any, ...]) -> None:
        self._parts = parts
        self._hash = hash(parts)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Structure) and self._parts == other._parts


class Glance:
    """A cell as it was described last; it stays with the cell, but not with copies of it."""

    def __init__(self, cell: nn.Module) -> None:
        self._mappings: list[tuple[Mapping[str, Any], tuple[str, ...], tuple[Any, ...]]] = []
        self._sequences: list[tuple[Any, tuple[Any, ...]]] = []
        self._functions: list[tuple[types.FunctionType, list[Any]]] = []
        self._kinds: list[tuple[Any, type]] = []
        self._settled = True
        self._owner = cell
        # Among the attributes of the cell from the beginning: they are about to be noted.
        vars(cell)["_glance"] = self
        self.anatomy = Anatomy(cell, self._note)
        self.structure = Structure(self.anatomy.structure)
        self.modules = list(cell.modules())
        self._tensors = [(t, t.shape, t.dtype, t.device, t.requires_grad) for t in self.anatomy.tensors]

    @staticmethod
    def last(cell: nn.Module) -> Glance | None:
        """The last description of the cell, if it still holds."""
        last: Glance | None = vars(cell).get("_glance")
        # A shallow copy shares the attributes of the cell, this one among them.
        return last if last is not None and last._owner is cell and last._holds() else None

    def _holds(self) -> bool:
        """Whether nothing has changed. This runs at every call: loops and no function calls."""
        for mapping, names, values in self._mappings:
            if len(mapping) != len(values):
                return False
            if not all(map(is_, mapping.values(), values)) or not all(map(is_, mapping, names)):
                return False
        for tensor, shape, dtype, device, requires_grad in self._tensors:
            if tensor.requires_grad is not requires_grad or tensor.dtype is not dtype:
                return False
            if tensor.shape != shape or tensor.device != device:
                return False
        for thing, kind in self._kinds:
            if type(thing) is not kind:
                return False
        return (
            self._settled
            and all(_same(sequence, parts) for sequence, parts in self._sequences)
            and all(_same(seen_from_outside(function), values) for function, values in self._functions)
        )

    def _note(self, thing: Any) -> None:
        if isinstance(thing, _UNSETTLED):
            # They change without any of their parts being replaced.
            self._settled = False
        elif isinstance(thing, list | deque):
            self._sequences.append((thing, tuple(thing)))
        elif isinstance(thing, dict):
            self._note_mapping(thing)
        elif isinstance(thing, types.FunctionType):
            self._functions.append((thing, seen_from_outside(thing)))
        elif isinstance(thing, type):
            self._note_mapping(vars(thing))
        elif hasattr(thing, "__dict__"):
            self._kinds.append((thing, type(thing)))
            attributes = vars(thing)
            self._note_mapping(attributes)
            if isinstance(thing, nn.Module):
                for name in ("_parameters", "_buffers", "_modules", *HOOKS):
                    self._note_mapping(attributes[name])

    def _note_mapping(self, mapping: Mapping[str, Any]) -> None:
        self._mappings.append((mapping, tuple(mapping), tuple(mapping.values())))

    def __deepcopy__(self, _: Any) -> None:
        """A copy of the cell is described anew."""

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        return type(None), ()


def _same(things: Any, others: Any) -> bool:
    """Whether both have the very same parts in the same order."""
    return len(things) == len(others) and all(map(is_, things, others))
