"""What a cell is made of: its tensors, by path, and everything else that decides what a step computes.

A compiled step is used again only for a cell of the same structure, so a changed option, activation, mode or
parametrisation is noticed at the next call; tensors are looked up anew at every call.
"""

from __future__ import annotations

import array
import enum
import functools
import random
import sys
import types
from collections import deque
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from throughtime._object_registry import object_number
from throughtime.compiler.guards.reachable_globals import global_names, is_installed, named_by

_EMPTY_CELL = types.CellType()
# Packages whose classes nobody changes.
_FOREIGN = frozenset({"throughtime", "torch", "builtins", "collections", "abc", "typing", "enum"})
# Hooks that run within a step.
HOOKS = frozenset({"_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"})
# What every module has for torch's own use, and what lazy ones have besides.
BOOKKEEPING = frozenset(vars(nn.Module())) - HOOKS - {"training"} | {
    "_load_hook",
    "_initialize_hook",
    "_build_hook",
    "_in_build",
    "_glance",
}
SEQUENCES = (list, tuple, deque)
UNORDERED = (set, frozenset)
_PLAIN = frozenset({bool, int, float, str, type(None), torch.dtype, torch.device})
_FUNCTIONS = frozenset({types.FunctionType, types.BuiltinFunctionType})
# Compared by value, and one and the same wherever they are: `mode is Mode.FAST` must hold for a stand-in too.
PRIMITIVES = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.Size, enum.Enum, type)
# Memory without names.
BUFFERS = (bytearray, array.array, memoryview, np.ndarray, np.generic)
# Nobody changes what these hold, or it does not matter to a step. What ctypes makes is plain memory.
_HARMLESS = (sys.stdlib_module_names | {"torch", "numpy"}) - {"ctypes", "_ctypes", "mmap"}


# Tensors that compute as tensors do.
_ORDINARY = (Tensor, nn.Parameter)
# Objects with attributes that nobody looks into.
_MACHINERY = frozenset("logging io _io threading _thread weakref concurrent asyncio multiprocessing tempfile".split())


class CellFingerprint:
    """The tensors of a cell in a fixed order, and a hashable description of all the rest."""

    def __init__(self, cell: Any, visit: Callable[[Any], None] | None = None) -> None:
        """`visit` is shown everything on the way whose parts may change: objects, classes, collections, functions."""
        self._visit = visit or (lambda _: None)
        self.paths: list[str] = []
        self.tensors: list[Tensor] = []
        # Objects known by identity only: kept, so that their identities are not given to others.
        self.kept: list[Any] = []
        # What changes without anybody seeing it, if there is such a thing: a step might look at it.
        self.opaque: str | None = None
        # Whether what is described is no part of the cell, but seen by its functions: tensors there are not its own.
        self._outside = False
        self._seen: dict[int, int] = {}
        self._tensor_index: dict[int, int] = {}
        # What functions of the cell get at by a name, and may compare with a part of the cell.
        self.named: list[tuple[str, Any]] = []
        parts: list[Any] = []
        self._describe(cell, "", parts)
        parts += [(path, self._seen[id(thing)]) for path, thing in self.named if id(thing) in self._seen]
        self.structure = tuple(parts)

    @property
    def strange_tensor(self) -> str | None:
        """The class of a tensor that may compute in a way of its own."""
        return next((type(tensor).__name__ for tensor in self.tensors if type(tensor) not in _ORDINARY), None)

    def end_visits(self) -> None:
        """Let go of whoever was shown the parts."""
        self._visit = lambda _: None

    def same_as(self, other: CellFingerprint) -> bool:
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
            parts.append((kind, id(thing)) if self._outside else self._tensor(thing, path))
        elif kind in _FUNCTIONS:
            self._describe_function(thing, path, parts)
        elif isinstance(thing, PRIMITIVES):
            parts.append((kind, thing))
            if isinstance(thing, type):
                self._describe_class(thing, parts)
        elif isinstance(thing, SEQUENCES):
            self._visit(thing)
            self._describe_all(kind, [(f"{path}[{index}]", part) for index, part in enumerate(thing)], parts)
        elif isinstance(thing, dict | types.MappingProxyType):
            self._visit(thing)
            self._describe_all(kind, [(f"{path}[{key!r}]", part) for key, part in thing.items()], parts)
        elif is_walked(thing):
            self._describe_object(thing, path, parts)
        else:
            self._describe_other(thing, path, parts)

    def _describe_other(self, thing: Any, path: str, parts: list[Any]) -> None:
        kind = type(thing)
        self._visit(thing)
        if isinstance(thing, types.MethodType):
            self._describe_all(thing.__func__, [(f"{path}.__self__", thing.__self__)], parts)
        elif isinstance(thing, functools.partial):
            named = {"func": thing.func, "args": thing.args, "keywords": thing.keywords}
            self._describe_all(kind, [(f"{path}.{name}", part) for name, part in named.items()], parts)
        elif isinstance(thing, BUFFERS):
            shape, dtype = getattr(thing, "shape", None), getattr(thing, "dtype", None)
            contents = thing.tobytes() if hasattr(thing, "tobytes") else bytes(thing)
            parts.append((kind, shape, str(dtype), hash(contents)))
        elif isinstance(thing, UNORDERED):
            self.kept.append(thing)
            parts.append((kind, frozenset(map(id, thing))))
            for part in sorted(thing, key=id):
                self._describe_outside(part, path, parts)
        else:
            self.kept.append(thing)
            parts.append((kind, id(thing)))
            if (
                isinstance(thing, Iterator | random.SystemRandom | torch.jit.ScriptModule)
                or kind.__module__.partition(".")[0] not in _HARMLESS
            ):
                self.opaque = self.opaque or f"a {kind.__name__} (`{path}`)"

    def _describe_outside(self, thing: Any, path: str, parts: list[Any]) -> None:
        """What functions of the cell see, which is no part of it."""
        outside, self._outside = self._outside, True
        self._describe(thing, path, parts)
        self._outside = outside

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
        kind = None if type(tensor) in _ORDINARY else type(tensor)
        return index, kind, tensor.shape, tensor.dtype, tensor.device, tensor.requires_grad

    def _describe_object(self, thing: Any, path: str, parts: list[Any]) -> None:
        if self._is_known(thing, parts):
            return
        self._visit(thing)
        # Its class and its parts, not its id: the structure may outlive it, and equal cells are to have equal ones.
        parts.append(type(thing))
        self._describe_class(type(thing), parts)
        prefix = f"{path}." if path else ""
        for name, part in watched(thing):
            parts.append(name)
            self._describe(part, prefix + name, parts)

    def _describe_function(self, function: Any, path: str, parts: list[Any]) -> None:
        """A function, and what a user's sees from outside; of globals, which things they are, not what is in them."""
        parts.append(function)
        if not isinstance(function, types.FunctionType) or _is_foreign(function) or self._is_known(function, parts):
            return
        self._visit(function)
        parts.append(function.__code__)
        for value in _globals_of(function):
            self._describe_global(value, path, parts)
        self.named += named_by(function)
        for value in (*_held_by(function), vars(function)):
            self._describe_outside(value, path, parts)

    def _describe_global(self, value: Any, path: str, parts: list[Any]) -> None:
        """What a function gets at by a global name: what it is, not what is in it."""
        if isinstance(value, types.FunctionType) and is_installed(value):
            parts.append(value)
        elif type(value) in _FUNCTIONS or is_known_by_value(value):
            self._describe_outside(value, path, parts)
        elif isinstance(value, Tensor):
            # Nobody computes with it, or the cell is refused: it may be another at every call.
            parts.append((type(value), value.shape, value.dtype, value.device, value.requires_grad))
        else:
            number = object_number(value)
            # Those that draw random numbers are asked for their state.
            if number is None or is_generator(value):
                self.kept.append(value)
            parts.append((type(value), id(value) if number is None else number))

    def _describe_class(self, kind: type, parts: list[Any]) -> None:
        """What a user's class itself says: methods may be replaced, and numbers may stand there."""
        opaque = self.opaque
        for base in _own_bases(kind):
            if self._is_known(base, parts):
                continue
            self._visit(base)
            for name, part in vars(base).items():
                if name == "__call__" or not name.startswith("__"):
                    parts.append(name)
                    self._describe_outside(_plain_function(part), f"{kind.__name__}.{name}", parts)
        # Classes hold all kinds of things for other ends than a step.
        self.opaque = opaque

    def _is_known(self, thing: Any, parts: list[Any]) -> bool:
        """Whether something has been described before, on another way."""
        if id(thing) in self._seen:
            parts.append(("again", self._seen[id(thing)]))
            return True
        self._seen[id(thing)] = len(self._seen)
        return False


def is_known_by_value(thing: Any) -> bool:
    """Whether something is a number, a word or the like, or a tuple of these."""
    if type(thing) is tuple:
        return all(map(is_known_by_value, thing))
    return isinstance(thing, (*PRIMITIVES, np.generic)) and not isinstance(thing, type)


def seen_from_outside(function: types.FunctionType) -> list[Any]:
    """The code of a function, what it holds, and the globals that it names."""
    return [function.__code__, *_held_by(function), *_globals_of(function)]


def _globals_of(function: types.FunctionType) -> list[Any]:
    known = function.__globals__
    return [known.get(name) for name in global_names(function.__code__)]


def _held_by(function: types.FunctionType) -> list[Any]:
    """The defaults of a function, and what it closes over."""
    held = [] if function.__defaults__ is None else list(function.__defaults__)
    if function.__kwdefaults__:
        held += function.__kwdefaults__.values()
    if function.__closure__:
        held += [cell.cell_contents for cell in function.__closure__ if cell != _EMPTY_CELL]
    return held


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


def unwatched(module: nn.Module) -> frozenset[str]:
    """The attributes that a class of ours says do not decide what a step computes.

    The step of somebody else's may well look at its name.
    """
    kind = type(module)
    names = getattr(kind, "unwatched", None)
    if not isinstance(names, frozenset):
        return frozenset()
    return names if kind.__module__.partition(".")[0] == "throughtime" else names - {"name"}


def watched(thing: Any) -> list[tuple[str, Any]]:
    """The attributes of an object that may decide what a step computes."""
    slots = [(name, getattr(thing, name)) for name in slots_of(thing) if hasattr(thing, name)]
    attributes: dict[str, Any] = vars(thing) if hasattr(thing, "__dict__") else {}
    if not isinstance(thing, nn.Module):
        return [*slots, *attributes.items()]
    skipped = unwatched(thing)
    found = [*slots, *thing._parameters.items(), *thing._buffers.items(), *thing._modules.items()]
    # All at once: another thread may note something at the cell meanwhile.
    for name, part in list(attributes.items()):
        if name not in BOOKKEEPING and name not in skipped and (name not in HOOKS or part):
            found.append((name, part))
    return found


def slots_of(thing: Any) -> tuple[str, ...]:
    """The attributes that the class of an object keeps in slots, if it is a user's."""
    kind: type = type(thing)
    return _slots(kind)


@lru_cache(maxsize=1024)
def _slots(kind: type) -> tuple[str, ...]:
    found: list[str] = []
    for base in _own_bases(kind):
        if base.__module__.partition(".")[0] not in _HARMLESS:
            names = vars(base).get("__slots__", ())
            for name in (names,) if isinstance(names, str) else tuple(names):
                private = name.startswith("__") and not name.endswith("__")
                found.append(f"_{base.__name__.lstrip('_')}{name}" if private else name)
    return tuple(name for name in found if name not in ("__dict__", "__weakref__"))


def is_generator(thing: Any) -> bool:
    """Whether something draws random numbers outside of torch."""
    # Without naming numpy's: that would import them.
    return isinstance(thing, random.Random) or type(thing).__module__.startswith("numpy.random")


_OPAQUE = (types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.ModuleType, torch.Generator)


def is_walked(thing: Any) -> bool:
    """Whether to look inside of an object: those of classes written by a user, with attributes or slots."""
    if isinstance(thing, nn.Module):
        return not isinstance(thing, torch.jit.ScriptModule)
    if isinstance(thing, (*UNORDERED, *BUFFERS, *_OPAQUE, functools.partial)) or is_generator(thing):
        return False
    if not hasattr(thing, "__dict__"):
        return bool(slots_of(thing))
    machinery = type(thing).__module__.partition(".")[0] in _MACHINERY
    return not machinery and not callable(getattr(type(thing), "__array__", None))


def hooked_module(cell: Any) -> str | None:
    """The class of a module inside the cell with hooks, which are there to see every step."""
    for module in cell.modules() if isinstance(cell, nn.Module) else ():
        if any(vars(module).get(hooks) for hooks in HOOKS):
            return type(module).__name__
    return None


def norm_over_rows(cell: Any) -> str | None:
    """The class of a batch norm inside the cell that takes its statistics of the rows at hand."""
    for module in cell.modules() if isinstance(cell, nn.Module) else ():
        if isinstance(module, _BatchNorm) and (module.training or module.running_mean is None):
            return type(module).__name__
    return None


def changed_attribute(cell: Any, before: dict[str, CellFingerprint]) -> str | None:
    """The first attribute of the cell that is not what it was."""
    after = anatomies(cell)
    for name in {**before, **after}:
        if name not in before or name not in after or not before[name].same_as(after[name]):
            return name
    return None


def anatomies(cell: Any) -> dict[str, CellFingerprint]:
    """Every attribute of a cell as it is now, and its class."""
    parts = dict(watched(cell))
    return {
        type(cell).__name__: CellFingerprint(type(cell)),
        **{name: CellFingerprint(part) for name, part in parts.items()},
    }
