"""The fingerprint of a cell: its tensors by path, and a hashable key of everything else that decides what a step does.

A compiled step is reused only for a cell with an equal key, so a changed option, activation, mode or parametrisation
is noticed at the next call. Tensors are looked up at every call.
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

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from throughtime._object_registry import object_number
from throughtime.compiler.guards.reachable_globals import global_names, is_installed, named_by

_EMPTY_CELL = types.CellType()
# Packages whose classes do not change.
_FOREIGN = frozenset({"throughtime", "torch", "builtins", "collections", "abc", "typing", "enum"})
# Hooks that run within a step.
HOOKS = frozenset({"_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"})
# Attributes of every module that torch uses internally, and those of lazy modules.
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
# Compared by value, and shared with stand-ins: `mode is Mode.FAST` must hold there too.
PRIMITIVES = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.Size, enum.Enum, type)
# Untyped memory.
BUFFERS = (bytearray, array.array, memoryview, np.ndarray, np.generic)
# Modules whose objects do not change, or do not matter to a step. Objects of ctypes are raw memory.
_HARMLESS = (sys.stdlib_module_names | {"torch", "numpy"}) - {"ctypes", "_ctypes", "mmap"}


# Tensor classes without behaviour of their own.
_ORDINARY = (Tensor, nn.Parameter)
# Packages whose objects no step computes with.
_MACHINERY = frozenset("logging io _io threading _thread weakref concurrent asyncio multiprocessing tempfile".split())


class CellFingerprint:
    """The tensors of a cell in a fixed order, and a hashable key of all the rest (`structure`)."""

    def __init__(self, cell: object, visit: Callable[[object], None] | None = None) -> None:
        """`visit` is called with everything whose parts may change: objects, classes, collections, functions."""
        self._visit = visit or (lambda _: None)
        self.paths: list[str] = []
        self.tensors: list[Tensor] = []
        # Objects that the key has by identity: referenced here, so that no other object gets their identity.
        self.referenced: list[object] = []
        # The class of an object whose changes cannot be detected, if there is one: a step might read it.
        self.opaque: str | None = None
        # Whether the current object is not part of the cell but reachable from its functions: its tensors are foreign.
        self._outside = False
        self._seen: dict[int, int] = {}
        self._tensor_index: dict[int, int] = {}
        # Objects that functions of the cell reach by name, and may compare with a part of the cell.
        self.named: list[tuple[str, object]] = []
        parts: list[object] = []
        self._describe(cell, "", parts)
        parts += [(path, self._seen[id(thing)]) for path, thing in self.named if id(thing) in self._seen]
        self.structure = tuple(parts)

    @property
    def tensor_subclass(self) -> str | None:
        """The name of a tensor subclass inside of the cell, which may override operations; None if there is none."""
        return next((type(tensor).__name__ for tensor in self.tensors if type(tensor) not in _ORDINARY), None)

    def end_visits(self) -> None:
        """Release the function that is called with the parts."""
        self._visit = lambda _: None

    def same_as(self, other: CellFingerprint) -> bool:
        """Whether the structures are equal and the tensors are the same objects."""
        same = all(one is two for one, two in zip(self.tensors, other.tensors, strict=False))
        return same and self.structure == other.structure

    def _describe(self, thing: object, path: str, parts: list[object]) -> None:
        kind = type(thing)
        # Frequent kinds first: this runs at every call that the fast check does not decide.
        if kind in _PLAIN:
            # With the type: 1, 1.0 and True are equal, but operations treat them differently.
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

    def _describe_other(self, thing: object, path: str, parts: list[object]) -> None:
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
            self.referenced.append(thing)
            parts.append((kind, frozenset(map(id, thing))))
            for part in sorted(thing, key=id):
                self._describe_outside(part, path, parts)
        else:
            self.referenced.append(thing)
            parts.append((kind, id(thing)))
            if (
                isinstance(thing, Iterator | random.SystemRandom | torch.jit.ScriptModule)
                or kind.__module__.partition(".")[0] not in _HARMLESS
            ):
                self.opaque = self.opaque or f"a {kind.__name__} (`{path}`)"

    def _describe_outside(self, thing: object, path: str, parts: list[object]) -> None:
        """An object that functions of the cell reach, and that is not part of the cell."""
        outside, self._outside = self._outside, True
        self._describe(thing, path, parts)
        self._outside = outside

    def _describe_all(self, kind: object, named: list[tuple[str, object]], parts: list[object]) -> None:
        """The parts of a collection, by name."""
        parts.append((kind, tuple(name for name, _ in named)))
        for name, part in named:
            self._describe(part, name, parts)

    def _tensor(self, tensor: Tensor, path: str) -> object:
        """A number for each tensor, so that shared tensors are recognised."""
        index = self._tensor_index.get(id(tensor))
        if index is None:
            index = self._tensor_index[id(tensor)] = len(self.tensors)
            self.tensors.append(tensor)
            self.paths.append(path)
        kind = None if type(tensor) in _ORDINARY else type(tensor)
        return index, kind, tensor.shape, tensor.dtype, tensor.device, tensor.requires_grad

    def _describe_object(self, thing: object, path: str, parts: list[object]) -> None:
        if self._is_known(thing, parts):
            return
        self._visit(thing)
        # Its class and parts, not its id: the key may outlive the object, and equal cells must have equal keys.
        parts.append(type(thing))
        self._describe_class(type(thing), parts)
        prefix = f"{path}." if path else ""
        for name, part in watched(thing):
            parts.append(name)
            self._describe(part, prefix + name, parts)

    def _describe_function(self, function: object, path: str, parts: list[object]) -> None:
        """A function; of a user's also closure and defaults, and the identity of the globals that it names."""
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

    def _describe_global(self, value: object, path: str, parts: list[object]) -> None:
        """A global of a function: its identity, not its contents."""
        if isinstance(value, types.FunctionType) and is_installed(value):
            parts.append(value)
        elif type(value) in _FUNCTIONS or is_known_by_value(value):
            self._describe_outside(value, path, parts)
        elif isinstance(value, Tensor):
            # No step computes with it, or the cell is refused: it may differ from call to call.
            parts.append((type(value), value.shape, value.dtype, value.device, value.requires_grad))
        else:
            number = object_number(value)
            # Those that draw random numbers are asked for their state.
            if number is None or is_generator(value):
                self.referenced.append(value)
            parts.append((type(value), id(value) if number is None else number))

    def _describe_class(self, kind: type, parts: list[object]) -> None:
        """The methods and plain attributes of a class of a user, which may be replaced."""
        opaque = self.opaque
        for base in _own_bases(kind):
            if self._is_known(base, parts):
                continue
            self._visit(base)
            for name, part in vars(base).items():
                if name == "__call__" or not name.startswith("__"):
                    parts.append(name)
                    self._describe_outside(_plain_function(part), f"{kind.__name__}.{name}", parts)
        # Other attributes of classes do not matter to a step.
        self.opaque = opaque

    def _is_known(self, thing: object, parts: list[object]) -> bool:
        """Whether an object has been described before, along another path."""
        if id(thing) in self._seen:
            parts.append(("again", self._seen[id(thing)]))
            return True
        self._seen[id(thing)] = len(self._seen)
        return False


def is_known_by_value(thing: object) -> bool:
    """Whether an object is compared by value: a number, a string or the like, or a tuple of these."""
    if type(thing) is tuple:
        return all(map(is_known_by_value, thing))
    return isinstance(thing, (*PRIMITIVES, np.generic)) and not isinstance(thing, type)


def seen_from_outside(function: types.FunctionType) -> list[object]:
    """The code of a function, its closure and defaults, and the globals that it names."""
    return [function.__code__, *_held_by(function), *_globals_of(function)]


def _globals_of(function: types.FunctionType) -> list[object]:
    known = function.__globals__
    return [known.get(name) for name in global_names(function.__code__)]


def _held_by(function: types.FunctionType) -> list[object]:
    """The defaults of a function, and what it closes over."""
    held = [] if function.__defaults__ is None else list(function.__defaults__)
    if function.__kwdefaults__:
        held += function.__kwdefaults__.values()
    if function.__closure__:
        held += [cell.cell_contents for cell in function.__closure__ if cell != _EMPTY_CELL]
    return held


def _plain_function(part: object) -> object:
    """The function of a property, a classmethod or a staticmethod; other objects as they are."""
    if isinstance(part, property):
        return part.fget
    return part.__func__ if isinstance(part, classmethod | staticmethod) else part


@lru_cache(maxsize=1024)
def _own_bases(kind: type) -> tuple[type, ...]:
    """The classes of a user among the bases of a class."""
    return tuple(base for base in kind.__mro__ if not _is_foreign(base))


def _is_foreign(thing: object) -> bool:
    return str(thing.__module__).partition(".")[0] in _FOREIGN


def unwatched(module: nn.Module) -> frozenset[str]:
    """The attributes that a class of this package declares irrelevant to what a step computes.

    A class of a user may read them, such as its name.
    """
    kind = type(module)
    names = getattr(kind, "unwatched", None)
    if not isinstance(names, frozenset):
        return frozenset()
    return names if kind.__module__.partition(".")[0] == "throughtime" else names - {"name"}


def watched(thing: object) -> list[tuple[str, object]]:
    """The attributes of an object that may decide what a step computes."""
    slots = [(name, getattr(thing, name)) for name in slots_of(thing) if hasattr(thing, name)]
    attributes: dict[str, object] = vars(thing) if hasattr(thing, "__dict__") else {}
    if not isinstance(thing, nn.Module):
        return [*slots, *attributes.items()]
    skipped = unwatched(thing)
    found = [*slots, *thing._parameters.items(), *thing._buffers.items(), *thing._modules.items()]
    # In one call: another thread may add an attribute to the cell meanwhile.
    for name, part in list(attributes.items()):
        if name not in BOOKKEEPING and name not in skipped and (name not in HOOKS or part):
            found.append((name, part))
    return found


def slots_of(thing: object) -> tuple[str, ...]:
    """The attributes that the class of an object has in slots, if it is a class of a user."""
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


def is_generator(thing: object) -> bool:
    """Whether an object is a random generator outside of torch."""
    # By name: to refer to the classes of numpy would import them.
    return isinstance(thing, random.Random) or type(thing).__module__.startswith("numpy.random")


_OPAQUE = (types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.ModuleType, torch.Generator)


def is_walked(thing: object) -> bool:
    """Whether to describe the parts of an object: of classes of a user, with attributes or slots."""
    if isinstance(thing, nn.Module):
        return not isinstance(thing, torch.jit.ScriptModule)
    if isinstance(thing, (*UNORDERED, *BUFFERS, *_OPAQUE, functools.partial)) or is_generator(thing):
        return False
    if not hasattr(thing, "__dict__"):
        return bool(slots_of(thing))
    machinery = type(thing).__module__.partition(".")[0] in _MACHINERY
    return not machinery and not callable(getattr(type(thing), "__array__", None))


def hooked_module(cell: object) -> str | None:
    """The class of a module inside of the cell that has hooks, which must run at every step; None if there is none."""
    for module in cell.modules() if isinstance(cell, nn.Module) else ():
        if any(vars(module).get(hooks) for hooks in HOOKS):
            return type(module).__name__
    return None


def norm_over_rows(cell: object) -> str | None:
    """The class of a batch norm inside of the cell that uses statistics of the batch; None if there is none."""
    for module in cell.modules() if isinstance(cell, nn.Module) else ():
        if isinstance(module, _BatchNorm) and (module.training or module.running_mean is None):
            return type(module).__name__
    return None


def changed_attribute(cell: object, before: dict[str, CellFingerprint]) -> str | None:
    """The first attribute of the cell that has changed; None if there is none."""
    after = attribute_fingerprints(cell)
    for name in {**before, **after}:
        if name not in before or name not in after or not before[name].same_as(after[name]):
            return name
    return None


def attribute_fingerprints(cell: object) -> dict[str, CellFingerprint]:
    """The fingerprints of all attributes of a cell, and of its class."""
    parts = dict(watched(cell))
    return {
        type(cell).__name__: CellFingerprint(type(cell)),
        **{name: CellFingerprint(part) for name, part in parts.items()},
    }
