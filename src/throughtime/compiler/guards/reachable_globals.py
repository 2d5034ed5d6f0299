"""What the code of a function gets at by names: global variables, and what lies below them."""

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
"""How far, and for how many objects, to look below a global variable."""


@lru_cache(maxsize=4096)
def global_names(code: types.CodeType) -> tuple[str, ...]:
    """The global variables that code names, and that of functions and comprehensions within it."""
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
    """Whether a function is of Python or of an installed package: what it sees is not a user's to change."""
    if str(function.__module__).partition(".")[0] in _FOREIGN:
        return True
    return function.__code__.co_filename.startswith(_INSTALLED)


def named_by(function: types.FunctionType) -> list[tuple[str, object]]:
    """Objects that a function can get at by the names in it: `FAST`, `modes.FAST`, `MODES["fast"]`, `Mode.FAST.inner`.

    Also what functions that it calls by name can get at. Nothing in the packages that a step is written with.
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
    # Nobody's properties are run.
    return [(name, inspect.getattr_static(thing, name, None)) for name in sorted(attributes)]


def _is_foreign(thing: object) -> bool:
    """Whether something is of a kind that nobody compares by identity, or belongs to a package that is not a user's."""
    if isinstance(thing, types.ModuleType):
        return thing.__name__.partition(".")[0] in _FOREIGN
    if isinstance(thing, type | types.FunctionType):
        return str(thing.__module__).partition(".")[0] in _FOREIGN
    # A namespace of the standard library may hold a user's objects.
    return type(thing).__module__.partition(".")[0] in _PACKAGES and not isinstance(thing, list | tuple | dict)
