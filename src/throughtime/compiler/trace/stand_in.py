"""A stand-in for a cell: a copy with other tensors. Objects without tensors are shared with the cell."""

from __future__ import annotations

import copy
import functools
import types
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor, nn

from throughtime.compiler.errors import Uncompilable
from throughtime.compiler.guards.fingerprint import PRIMITIVES, SEQUENCES, is_walked, slots_of, unwatched, watched


def with_tensors(cell: Any, replace: Callable[[Tensor], Tensor], named: Sequence[tuple[str, Any]] = ()) -> Any:
    """A copy of the cell with its tensors replaced.

    Objects without tensors are shared: `mode is FAST` must hold for a stand-in too. An object with tensors among the
    `named` ones, which functions of the cell reach by name, would lose its identity: that raises `Uncompilable`.
    """
    shadows = _StandIns(replace)
    made = shadows.of(cell)
    for path, thing in named:
        if id(thing) in shadows.made and thing is not cell:
            reason = f"it holds a {type(thing).__name__} with tensors that is also known as `{path}` outside of it"
            raise Uncompilable(f"{reason}, and might look which one it has")
    return made


def _holds_tensors(thing: Any) -> bool:
    """Whether an object holds a tensor or a module, directly or inside of its parts."""
    seen: set[int] = set()
    waiting = [thing]
    while waiting:
        part = waiting.pop()
        if isinstance(part, Tensor | nn.Module):
            return True
        if id(part) not in seen:
            seen.add(id(part))
            waiting += _parts(part)
    return False


def _parts(thing: Any) -> list[Any]:
    if isinstance(thing, SEQUENCES):
        return list(thing)
    if isinstance(thing, dict | types.MappingProxyType):
        return list(thing.values())
    if isinstance(thing, types.MethodType):
        return [thing.__self__]
    if isinstance(thing, functools.partial):
        return [thing.func, thing.args, thing.keywords]
    if isinstance(thing, PRIMITIVES) or not is_walked(thing):
        return []
    return [part for _, part in watched(thing)]


class _StandIns:
    def __init__(self, replace: Callable[[Tensor], Tensor]) -> None:
        self._replace = replace
        self.made: dict[int, Any] = {}

    def of(self, thing: Any) -> Any:
        """The stand-in of an object; objects without tensors are their own."""
        if isinstance(thing, Tensor):
            return self._replace(thing)
        if isinstance(thing, PRIMITIVES) or not _holds_tensors(thing):
            return thing
        if isinstance(thing, (*SEQUENCES, dict, types.MappingProxyType)):
            return self._collection(thing)
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
        made = self.made.get(id(thing))
        if made is not None:
            return made
        made = self.made[id(thing)] = self._blank(thing)
        if made is thing:
            return thing
        for name in slots_of(thing):
            if hasattr(thing, name):
                # Bypasses the checks of a frozen dataclass.
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

    def _blank(self, thing: object) -> Any:
        """An object of the same class without attributes, or a copy if the class does not allow that."""
        try:
            return object.__new__(type(thing))
        except TypeError:
            pass
        try:
            return copy.copy(thing)
        except Exception as error:
            raise Uncompilable(f"a {type(thing).__name__} inside it cannot be copied ({error})") from error
