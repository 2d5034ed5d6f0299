"""A search for code that can write to a tensor, in all that a function or an object can call by itself."""

from __future__ import annotations

import dis
import functools
import inspect
import operator
import sys
import types
from collections import deque
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

_KNOWN = sys.stdlib_module_names | {"torch", "numpy", "throughtime", "builtins"}
"""Packages whose own code is not searched: what they change in place has a name or an argument that says so."""
_MOST = 5000
"""How many objects to look at: what is larger is taken to write."""
_STORES = frozenset({"STORE_SUBSCR", "STORE_SLICE"})
_LOADS = frozenset({"LOAD_ATTR", "LOAD_METHOD", "LOAD_GLOBAL", "LOAD_NAME"})
_KEYWORDS = frozenset({"out", "inplace"})
_OF_OPERATORS = frozenset(name for name in dir(operator) if name.startswith("i") and f"__{name}__" in dir(operator))
"""`operator.iadd` and its kin."""
_COLLECTIONS = (list, tuple, set, frozenset, deque)
_CALLED = (types.FunctionType, types.BuiltinFunctionType, types.MethodType, functools.partial)


def can_write(thing: Any) -> bool:
    """Whether a function, or an object that is called, may change a tensor in place; True where it cannot be told."""
    seen: dict[int, Any] = {}
    waiting = [thing]
    while waiting:
        part = waiting.pop()
        if id(part) in seen:
            continue
        seen[id(part)] = part
        if len(seen) > _MOST or _writes(part):
            return True
        waiting += _reached(part)
    return False


def _writes(thing: Any) -> bool:
    if isinstance(thing, types.FunctionType) and not _is_known(thing):
        return _code_writes(thing.__code__)
    if isinstance(thing, types.FunctionType | types.BuiltinFunctionType):
        return _is_in_place(thing.__name__)
    if isinstance(thing, torch.jit.ScriptModule | torch.jit.ScriptFunction):
        return True
    return isinstance(thing, nn.Module) and vars(thing).get("inplace") is True


def _reached(thing: Any) -> Iterator[Any]:
    """What something can call by itself, and what leads there."""
    if isinstance(thing, types.FunctionType):
        if not _is_known(thing):
            yield from _reached_by_code(thing)
    elif isinstance(thing, types.MethodType):
        yield from (thing.__func__, thing.__self__)
    elif isinstance(thing, functools.partial):
        yield from (thing.func, *thing.args, *thing.keywords.values())
    elif isinstance(thing, _COLLECTIONS):
        yield from thing
    elif isinstance(thing, dict):
        yield from thing.values()
    elif isinstance(thing, type):
        yield from _methods(thing)
    elif not isinstance(thing, Tensor | types.ModuleType):
        yield from _parts(thing)


def _parts(thing: Any) -> Iterator[Any]:
    """The class of an object and its attributes; of our own cells only functions: they call others on copies."""
    attributes = list(vars(thing).values()) if hasattr(thing, "__dict__") else []
    own = _package(type(thing)) == "throughtime"
    if own:
        children = vars(thing).get("_modules", {}).values()
        yield from (part for part in attributes if isinstance(part, _CALLED))
        yield from (child for child in children if _package(type(child)) == "torch" and not _holds_cells(child))
        return
    yield type(thing)
    yield from attributes
    yield from (getattr(thing, name) for name in _slots(type(thing)) if hasattr(thing, name))


def _holds_cells(module: nn.Module) -> bool:
    return isinstance(module, nn.ModuleList | nn.ModuleDict)


def _slots(kind: type) -> Iterator[str]:
    for base in kind.__mro__:
        if _package(base) not in _KNOWN:
            names = vars(base).get("__slots__", ())
            yield from (names,) if isinstance(names, str) else tuple(names)


def _methods(kind: type) -> Iterator[Any]:
    """The functions of a class and of those it inherits from, as far as they are a user's."""
    for base in kind.__mro__:
        if _package(base) not in _KNOWN:
            for part in list(vars(base).values()):
                yield part.fget if isinstance(part, property) else getattr(part, "__func__", part)


def _reached_by_code(function: types.FunctionType) -> Iterator[Any]:
    yield from function.__defaults__ or ()
    yield from (function.__kwdefaults__ or {}).values()
    for cell in function.__closure__ or ():
        if cell != types.CellType():
            yield cell.cell_contents
    names = _names(function.__code__)
    for name in names:
        value = function.__globals__.get(name)
        if isinstance(value, types.ModuleType) and value.__name__.partition(".")[0] not in _KNOWN:
            # `helpers.gate(x)`: what is named after it may be a function of that module.
            yield from (vars(value)[below] for below in names if below in vars(value))
        elif isinstance(value, (*_CALLED, *_COLLECTIONS, dict, type, nn.Module)):
            yield value


@functools.lru_cache(maxsize=4096)
def _code_writes(code: types.CodeType) -> bool:
    """Whether some code has an operation in place, an assignment to a part, or a name or an argument that says so."""
    for instruction in dis.get_instructions(code):
        if instruction.opname in _STORES or instruction.opname.startswith("INPLACE_"):
            return True
        if instruction.opname == "BINARY_OP" and instruction.argrepr.endswith("="):
            return True
        if instruction.opname in _LOADS and _is_in_place(str(instruction.argval)):
            return True
    constants = code.co_consts
    named = [name for constant in constants if isinstance(constant, tuple) for name in constant]
    if any(name in _KEYWORDS for name in (*constants, *named) if isinstance(name, str)):
        return True
    # `relu(x, True)`
    if any(constant is True for constant in constants) and not _with_inplace().isdisjoint(code.co_names):
        return True
    return any(_code_writes(constant) for constant in constants if isinstance(constant, types.CodeType))


@functools.cache
def _with_inplace() -> frozenset[str]:
    """The functions of torch that have an argument `inplace`."""
    functions = {name: value for name, value in vars(nn.functional).items() if isinstance(value, types.FunctionType)}
    return frozenset(name for name, value in functions.items() if "inplace" in inspect.signature(value).parameters)


@functools.lru_cache(maxsize=4096)
def _names(code: types.CodeType) -> frozenset[str]:
    inner = (constant for constant in code.co_consts if isinstance(constant, types.CodeType))
    return frozenset(code.co_names).union(*map(_names, inner))


def _is_in_place(name: str) -> bool:
    """Whether a name is that of an operation in place, by torch's custom or Python's."""
    if name in _OF_OPERATORS:
        return True
    return name.endswith("_") and not name.endswith("__") and (not name.startswith("_") or "_foreach_" in name)


def _is_known(function: types.FunctionType) -> bool:
    return _package(function) in _KNOWN


def _package(thing: Any) -> str:
    return str(getattr(thing, "__module__", None) or "").partition(".")[0]
