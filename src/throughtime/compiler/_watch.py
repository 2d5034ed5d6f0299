"""What a cell is made of: its tensors, by path, and everything else that decides what a step computes.

A compiled step is used again only for a cell of the same structure, so a changed option, activation, mode or
parametrisation is noticed at the next call; tensors are looked up anew at every call.
"""

from __future__ import annotations

import copy
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from throughtime.compiler._errors import Uncompilable

# Hooks that run within a step.
_HOOKS = frozenset({"_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"})
# What every module has for torch's own use, and what lazy ones have besides.
BOOKKEEPING = frozenset(vars(nn.Module())) - _HOOKS - {"training"} | {"_load_hook", "_initialize_hook"}
_SEQUENCES = (list, tuple)
_PLAIN = frozenset({bool, int, float, str, type(None), torch.dtype, torch.device})
_FUNCTIONS = frozenset({types.FunctionType, types.BuiltinFunctionType})
_PRIMITIVES = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.Size, type)


class Anatomy:
    """The tensors of a cell in a fixed order, and a hashable description of all the rest."""

    def __init__(self, cell: Any) -> None:
        self.paths: list[str] = []
        self.tensors: list[Tensor] = []
        # Objects known by identity only: kept, so that their identities are not given to others.
        self.kept: list[Any] = []
        self._seen: dict[int, int] = {}
        self._tensor_index: dict[int, int] = {}
        parts: list[Any] = []
        self._describe(cell, "", parts)
        self.structure = tuple(parts)

    def _describe(self, thing: Any, path: str, parts: list[Any]) -> None:
        kind = type(thing)
        # The common kinds first: a cell is looked at again at every call.
        if kind in _PLAIN:
            # The type as well: 1, 1.0 and True are equal but do not compute the same.
            parts.append((kind, thing))
        elif isinstance(thing, Tensor):
            parts.append(self._tensor(thing, path))
        elif kind in _FUNCTIONS:
            parts.append(thing)
        elif isinstance(thing, _PRIMITIVES):
            parts.append((kind, thing))
        elif isinstance(thing, _SEQUENCES):
            parts.append((kind, len(thing)))
            for index, part in enumerate(thing):
                self._describe(part, f"{path}[{index}]", parts)
        elif isinstance(thing, dict):
            parts.append((kind, tuple(map(str, thing))))
            for key, part in thing.items():
                self._describe(part, f"{path}[{key!r}]", parts)
        elif isinstance(thing, nn.Module) or _is_walked(thing):
            self._describe_object(thing, path, parts)
        elif isinstance(thing, types.MethodType):
            parts.append(thing.__func__)
            self._describe(thing.__self__, f"{path}.__self__", parts)
        else:
            self.kept.append(thing)
            parts.append((kind, id(thing)))

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
        # The object itself may hold tensors by the same id after it is gone: it is alive as long as the cell is.
        parts.append(type(thing))
        prefix = f"{path}." if path else ""
        for name, part in watched(thing):
            parts.append(name)
            self._describe(part, prefix + name, parts)


def watched(thing: Any) -> list[tuple[str, Any]]:
    """The attributes of an object that may decide what a step computes."""
    attributes: dict[str, Any] = vars(thing)
    if not isinstance(thing, nn.Module):
        return list(attributes.items())
    unwatched = getattr(thing, "unwatched", ())
    found = [*thing._parameters.items(), *thing._buffers.items(), *thing._modules.items()]
    for name, part in attributes.items():
        if name not in BOOKKEEPING and name not in unwatched and (name not in _HOOKS or part):
            found.append((name, part))
    return found


def _is_walked(thing: Any) -> bool:
    """Whether to look inside of an object: those of classes written by a user, which have a plain `__dict__`."""
    opaque = types.FunctionType | types.BuiltinFunctionType | types.MethodType | types.ModuleType | np.ndarray
    if isinstance(thing, opaque | torch.Generator):
        return False
    return hasattr(thing, "__dict__") and not callable(getattr(type(thing), "__array__", None))


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
        if isinstance(thing, _SEQUENCES):
            parts = [self.of(part) for part in thing]
            return type(thing)(*parts) if hasattr(thing, "_fields") else type(thing)(parts)
        if isinstance(thing, dict):
            made = copy.copy(thing)
            made.update((key, self.of(part)) for key, part in thing.items())
            return made
        if isinstance(thing, nn.Module) or _is_walked(thing):
            return self._object(thing)
        if isinstance(thing, types.MethodType):
            return types.MethodType(thing.__func__, self.of(thing.__self__))
        return thing

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
