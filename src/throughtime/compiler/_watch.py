"""What a cell is made of: its tensors, by path, and everything else that decides what a step computes.

A compiled step is used again only for a cell of the same structure, so a changed option, activation, mode or
parametrisation is noticed at the next call; tensors are looked up anew at every call.
"""

from __future__ import annotations

import copy
import types
from collections import deque
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from throughtime.compiler._errors import Uncompilable

_EMPTY_CELL = types.CellType()
# Packages whose classes nobody changes.
_FOREIGN = frozenset({"throughtime", "torch", "builtins", "collections", "abc", "typing", "enum"})
# Hooks that run within a step.
HOOKS = frozenset({"_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"})
# What every module has for torch's own use, and what lazy ones have besides.
BOOKKEEPING = frozenset(vars(nn.Module())) - HOOKS - {"training"} | {"_load_hook", "_initialize_hook", "_glance"}
_SEQUENCES = (list, tuple, deque)
_UNORDERED = (set, frozenset)
_PLAIN = frozenset({bool, int, float, str, type(None), torch.dtype, torch.device})
_FUNCTIONS = frozenset({types.FunctionType, types.BuiltinFunctionType})
_PRIMITIVES = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.Size, type)


class Anatomy:
    """The tensors of a cell in a fixed order, and a hashable description of all the rest."""

    def __init__(self, cell: Any, visit: Callable[[Any], None] | None = None) -> None:
        """`visit` is shown everything on the way whose parts may change: objects, classes, collections, functions."""
        self._visit = visit or (lambda _: None)
        self.paths: list[str] = []
        self.tensors: list[Tensor] = []
        # Objects known by identity only: kept, so that their identities are not given to others.
        self.kept: list[Any] = []
        self._seen: dict[int, int] = {}
        self._tensor_index: dict[int, int] = {}
        parts: list[Any] = []
        self._describe(cell, "", parts)
        self.structure = tuple(parts)

    def end_visits(self) -> None:
        """Let go of whoever was shown the parts."""
        self._visit = lambda _: None

    def same_as(self, other: Anatomy) -> bool:
        """Whether nothing differs, and the tensors are the very same."""
        same = all(one is two for one, two in zip(self.tensors, other.tensors, strict=False))
        return same and self.structure == other.structure

    def _describe(self, thing: Any, path: str, parts: list[Any]) -> None:
        kind = type(thing)
        # The common kinds first: a cell is looked at again at every call.
        if kind in _PLAIN:
            # The type as well: 1, 1.0 and True are equal but do not compute the same.
            parts.append((kind, thing))
        elif isinstance(thing, Tensor):
            parts.append(self._tensor(thing, path))
        elif kind in _FUNCTIONS:
            self._describe_function(thing, parts)
        elif isinstance(thing, _PRIMITIVES):
            parts.append((kind, thing))
        elif isinstance(thing, _SEQUENCES):
            self._visit(thing)
            self._describe_all(kind, [(f"{path}[{index}]", part) for index, part in enumerate(thing)], parts)
        elif isinstance(thing, dict):
            self._visit(thing)
            self._describe_all(kind, [(f"{path}[{key!r}]", part) for key, part in thing.items()], parts)
        elif _is_walked(thing):
            self._describe_object(thing, path, parts)
        else:
            self._describe_other(thing, path, parts)

    def _describe_other(self, thing: Any, path: str, parts: list[Any]) -> None:
        kind = type(thing)
        self._visit(thing)
        if isinstance(thing, types.MethodType):
            self._describe_all(thing.__func__, [(f"{path}.__self__", thing.__self__)], parts)
        elif isinstance(thing, np.ndarray):
            parts.append((kind, thing.shape, str(thing.dtype), hash(thing.tobytes())))
        else:
            self.kept.append(thing)
            parts.append((kind, frozenset(map(id, thing)) if isinstance(thing, _UNORDERED) else id(thing)))

    def _describe_all(self, kind: Any, named: list[tuple[str, Any]], parts: list[Any]) -> None:
        """The parts of a collection, with their names."""
        parts.append((kind, tuple(name for name, _ in named)))
        for name, part in named:
            self._describe(part, name, parts)

    def _tensor(self, tensor: Tensor, path: str) -> Any:
        """A number for each tensor, so that one which is used twice is known to be one."""
        index = self._tensor_index.get(id(tensor))
        if index is None:
            index = self._tensor_index[id(tensor)] = len(self.tensors)
            self.tensors.append(tensor)
            self.paths.append(path)
        return index, tensor.shape, tensor.dtype, tensor.device, tensor.requires_grad

    def _describe_object(self, thing: Any, path: str, parts: list[Any]) -> None:
        if id(thing) in self._seen:
            parts.append(("again", self._seen[id(thing)]))
            return
        self._seen[id(thing)] = len(self._seen)
        self._visit(thing)
        # The object itself may hold tensors by the same id after it is gone: it is alive as long as the cell is.
        parts.append(type(thing))
        self._describe_class(type(thing), parts)
        prefix = f"{path}." if path else ""
        for name, part in watched(thing):
            parts.append(name)
            self._describe(part, prefix + name, parts)

    def _describe_function(self, function: Any, parts: list[Any]) -> None:
        """A function, and the plain values that a user's function sees from outside."""
        parts.append(function)
        if isinstance(function, types.FunctionType) and not _is_foreign(function):
            self._visit(function)
            parts.append(function.__code__)
            parts += [(type(value), value) for value in seen_from_outside(function) if type(value) in _PLAIN]

    def _describe_class(self, kind: type, parts: list[Any]) -> None:
        """What a user's class itself says: methods may be replaced, and numbers may stand there."""
        for base in _own_bases(kind):
            self._visit(base)
            for name, part in vars(base).items():
                if name == "__call__" or not name.startswith("__"):
                    parts.append(name)
                    self._describe(_plain_function(part), f"{kind.__name__}.{name}", parts)


def seen_from_outside(function: types.FunctionType) -> list[Any]:
    """The code of a function, its defaults, the globals that it names, and what it closes over."""
    code = function.__code__
    defaults = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    outside = [function.__globals__.get(name) for name in code.co_names]
    closed = [cell.cell_contents for cell in function.__closure__ or () if cell != _EMPTY_CELL]
    return [code, *defaults, *outside, *closed]


def _plain_function(part: Any) -> Any:
    """The function of a property, a classmethod or a staticmethod; anything else is itself."""
    if isinstance(part, property):
        return part.fget
    return part.__func__ if isinstance(part, classmethod | staticmethod) else part


@lru_cache(maxsize=1024)
def _own_bases(kind: type) -> tuple[type, ...]:
    """The classes of a user that a class is made of."""
    return tuple(base for base in kind.__mro__ if not _is_foreign(base))


def _is_foreign(thing: Any) -> bool:
    return str(thing.__module__).partition(".")[0] in _FOREIGN


def watched(thing: Any) -> list[tuple[str, Any]]:
    """The attributes of an object that may decide what a step computes."""
    attributes: dict[str, Any] = vars(thing)
    if not isinstance(thing, nn.Module):
        return list(attributes.items())
    unwatched = getattr(thing, "unwatched", ())
    found = [*thing._parameters.items(), *thing._buffers.items(), *thing._modules.items()]
    # All at once: another thread may note something at the cell meanwhile.
    for name, part in list(attributes.items()):
        if name not in BOOKKEEPING and name not in unwatched and (name not in HOOKS or part):
            found.append((name, part))
    return found


def _is_walked(thing: Any) -> bool:
    """Whether to look inside of an object: those of classes written by a user, which have a plain `__dict__`."""
    if isinstance(thing, nn.Module):
        return True
    if isinstance(thing, _UNORDERED):
        return False
    opaque = types.FunctionType | types.BuiltinFunctionType | types.MethodType | types.ModuleType | np.ndarray
    if isinstance(thing, opaque | torch.Generator):
        return False
    return hasattr(thing, "__dict__") and not callable(getattr(type(thing), "__array__", None))


def hooked_module(cell: Any) -> str | None:
    """The class of a module inside the cell with hooks, which are there to see every step."""
    for module in cell.modules() if isinstance(cell, nn.Module) else ():
        if any(vars(module).get(hooks) for hooks in HOOKS):
            return type(module).__name__
    return None


def changed_attribute(cell: Any, before: dict[str, Anatomy]) -> str | None:
    """The first attribute of the cell that is not what it was."""
    after = anatomies(cell)
    for name in {**before, **after}:
        if name not in before or name not in after or not before[name].same_as(after[name]):
            return name
    return None


def anatomies(cell: Any) -> dict[str, Anatomy]:
    """Every attribute of a cell as it is now."""
    return {name: Anatomy(part) for name, part in watched(cell)} if hasattr(cell, "__dict__") else {}


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
        if isinstance(thing, _PRIMITIVES):
            return thing
        if isinstance(thing, (*_SEQUENCES, dict)):
            return self._collection(thing)
        if isinstance(thing, (*_UNORDERED, np.ndarray)):
            return copy.copy(thing)
        if isinstance(thing, types.MethodType):
            return types.MethodType(thing.__func__, self.of(thing.__self__))
        return self._object(thing) if _is_walked(thing) else thing

    def _collection(self, thing: Any) -> Any:
        if isinstance(thing, dict):
            made = copy.copy(thing)
            made.update((key, self.of(part)) for key, part in thing.items())
            return made
        parts = [self.of(part) for part in thing]
        return type(thing)(*parts) if hasattr(thing, "_fields") else type(thing)(parts)

    def _object(self, thing: Any) -> Any:
        made = self._made.get(id(thing))
        if made is not None:
            return made
        try:
            made = object.__new__(type(thing))
            self._made[id(thing)] = made
            vars(made).update(vars(thing))
        except TypeError as error:
            raise Uncompilable(f"a {type(thing).__name__} inside it cannot be copied ({error})") from error
        if not isinstance(thing, nn.Module):
            for name, part in list(vars(made).items()):
                vars(made)[name] = self.of(part)
            return made
        for group in ("_parameters", "_buffers", "_modules"):
            vars(made)[group] = {name: self.of(part) for name, part in vars(thing)[group].items()}
        for name, part in watched(thing):
            if name in vars(thing):
                vars(made)[name] = self.of(part)
        for name in getattr(thing, "unwatched", ()):
            if name in vars(thing):
                vars(made)[name] = copy.copy(vars(thing)[name])
        return made
