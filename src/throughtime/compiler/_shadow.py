"""A stand-in for a cell, to run a step with: what the step changes, it changes there."""

from __future__ import annotations

import array
import copy
import functools
import types
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
from torch import Tensor, nn

from throughtime.compiler._errors import Uncompilable
from throughtime.compiler._watch import PRIMITIVES, SEQUENCES, UNORDERED, is_walked, slots_of, unwatched, watched


def shadow(cell: Any, replace: Callable[[Tensor], Tensor]) -> Any:
    """A copy of the cell with its tensors replaced, sharing everything else; what a step changes, it changes here."""
    return _Shadows(replace).of(cell)


class _Shadows:
    def __init__(self, replace: Callable[[Tensor], Tensor]) -> None:
        self._replace = replace
        self._made: dict[int, Any] = {}

    def of(self, thing: Any) -> Any:
        """The shadow of anything an object may hold; what holds no tensors is itself."""
        if isinstance(thing, Tensor):
            return self._replace(thing)
        if isinstance(thing, PRIMITIVES):
            return thing
        if isinstance(thing, (*SEQUENCES, dict, types.MappingProxyType)):
            return self._collection(thing)
        if isinstance(thing, (*UNORDERED, np.ndarray, bytearray, array.array)):
            return copy.copy(thing)
        if isinstance(thing, types.MethodType | functools.partial):
            return self._bound(thing)
        return self._object(thing) if is_walked(thing) else thing

    def _bound(self, thing: Any) -> Any:
        if isinstance(thing, types.MethodType):
            return types.MethodType(thing.__func__, self.of(thing.__self__))
        return type(thing)(self.of(thing.func), *self.of(thing.args), **self.of(thing.keywords))

    def _collection(self, thing: Any) -> Any:
        if isinstance(thing, types.MappingProxyType):
            return types.MappingProxyType(self.of(dict(thing)))
        if isinstance(thing, dict):
            made = copy.copy(thing)
            made.update((key, self.of(part)) for key, part in thing.items())
            return made
        parts = [self.of(part) for part in thing]
        if isinstance(thing, deque):
            return type(thing)(parts, thing.maxlen)
        return type(thing)(*parts) if hasattr(thing, "_fields") else type(thing)(parts)

    def _object(self, thing: Any) -> Any:
        made = self._made.get(id(thing))
        if made is not None:
            return made
        made = self._made[id(thing)] = self._blank(thing)
        if made is thing:
            return thing
        for name in slots_of(thing):
            if hasattr(thing, name):
                # Past the door of a frozen dataclass.
                object.__setattr__(made, name, self.of(getattr(thing, name)))
        if isinstance(thing, nn.Module):
            self._fill_module(made, thing)
        elif hasattr(thing, "__dict__"):
            vars(made).update((name, self.of(part)) for name, part in list(vars(thing).items()))
        return made

    def _fill_module(self, made: nn.Module, module: nn.Module) -> None:
        attributes = vars(module)
        vars(made).update(attributes)
        for group in ("_parameters", "_buffers", "_modules"):
            vars(made)[group] = {name: self.of(part) for name, part in attributes[group].items()}
        vars(made).update((name, self.of(part)) for name, part in watched(module) if name in attributes)
        vars(made).update((name, copy.copy(attributes[name])) for name in unwatched(module) if name in attributes)

    def _blank(self, thing: Any) -> Any:
        """An object of the same class without attributes, or a copy where a class makes none."""
        try:
            return object.__new__(type(thing))
        except TypeError:
            pass
        try:
            return copy.copy(thing)
        except Exception as error:
            raise Uncompilable(f"a {type(thing).__name__} inside it cannot be copied ({error})") from error
