"""Globals that the code of a function reaches by name, and the attributes of them that it names."""

from __future__ import annotations

import dis
import inspect
import sys
import sysconfig
import types
from collections.abc import Iterator
from functools import lru_cache

_PACKAGES = frozenset({"throughtime", "torch", "numpy", "builtins"})
_FOREIGN = sys.stdlib_module_names | _PACKAGES
_INSTALLED = tuple({path for kind in ("stdlib", "purelib", "platlib") if (path := sysconfig.get_path(kind))})
_DEPTH = 3
_MOST = 200
"""The depth, and the number of objects, to follow below a global."""


@lru_cache(maxsize=4096)
def global_names(code: types.CodeType) -> tuple[str, ...]:
    """The globals that code names, including nested functions and comprehensions."""
    return tuple(dict.fromkeys(_names(code, ("LOAD_GLOBAL", "LOAD_NAME"))))


@lru_cache(maxsize=4096)
def _attribute_names(code: types.CodeType) -> frozenset[str]:
    return frozenset(_names(code, ("LOAD_ATTR", "LOAD_METHOD")))


def _names(code: types.CodeType, loads: tuple[str, ...]) -> Iterator[str]:
    for instruction in dis.get_instructions(code):
        if instruction.opname in loads:
            yield instruction.argval
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant, loads)


@lru_cache(maxsize=4096)
def is_installed(function: types.FunctionType) -> bool:
    """Whether a function belongs to Python or to an installed package, whose globals a user does not change."""
    if str(function.__module__).partition(".")[0] in _FOREIGN:
        return True
    return function.__code__.co_filename.startswith(_INSTALLED)


def named_by(function: types.FunctionType) -> list[tuple[str, object]]:
    """Objects that a function reaches by the names in it: `FAST`, `modes.FAST`, `MODES["fast"]`, `Mode.FAST.inner`.

    Including those of the functions that it calls by name, except in `torch`, `numpy` and this package.
    """
    found: list[tuple[str, object]] = []
    seen: set[int] = set()
    waiting: list[tuple[str, object, int]] = [("", function, 0)]
    attributes = _attribute_names(function.__code__)
    while waiting and len(found) < _MOST:
        path, thing, depth = waiting.pop(0)
        for name, part in _below(thing, attributes):
            if id(part) not in seen and not _is_foreign(part):
                seen.add(id(part))
                below = f"{path}.{name}" if path else str(name)
                found.append((below, part))
                if depth < _DEPTH:
                    waiting.append((below, part, depth + 1))
    return found


def _below(thing: object, attributes: frozenset[str]) -> list[tuple[object, object]]:
    if isinstance(thing, types.FunctionType):
        names = thing.__globals__
        return [(name, names[name]) for name in global_names(thing.__code__) if name in names]
    if isinstance(thing, list | tuple):
        return list(enumerate(thing))
    if isinstance(thing, dict):
        return list(thing.items())
    # Properties are not evaluated.
    return [(name, inspect.getattr_static(thing, name, None)) for name in sorted(attributes)]


def _is_foreign(thing: object) -> bool:
    """Whether an object is of a kind that is not compared by identity, or belongs to an installed package."""
    if isinstance(thing, types.ModuleType):
        return thing.__name__.partition(".")[0] in _FOREIGN
    if isinstance(thing, type | types.FunctionType):
        return str(thing.__module__).partition(".")[0] in _FOREIGN
    # A namespace of the standard library may hold objects of a user.
    return type(thing).__module__.partition(".")[0] in _PACKAGES and not isinstance(thing, list | tuple | dict)
