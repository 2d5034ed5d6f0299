"""Pickling of functions that are made inside of functions: the kernels of operations are such closures.

A closure of this package is stored as the place of its code (module, qualified name, line) and the values it holds.
Reading needs the same version of the package. Functions of the user's program cannot be stored: they are replaced by
one that says so when it runs.
"""

from __future__ import annotations

import functools
import importlib
import io
import pickle
import types
from collections.abc import Callable
from typing import Any, NoReturn

import torch

_PACKAGE = "throughtime"
# What may be made while reading, besides the classes of this package.
_ALLOWED = {
    "builtins": {
        "set",
        "frozenset",
        "slice",
        "complex",
        "bytearray",
        "range",
        "object",
        "list",
        "dict",
        "tuple",
        "type",
    },
    "collections": {"OrderedDict", "defaultdict", "deque"},
    "functools": {"partial"},
    "numpy": {"ndarray", "dtype"},
    "numpy._core.multiarray": {"_reconstruct", "scalar"},
    "numpy.core.multiarray": {"_reconstruct", "scalar"},
    "numpy._core.numeric": {"_frombuffer"},
    "torch": {"device", "Size"},
    "torch.utils.hooks": {"RemovableHandle"},
}

# Modules whose functions kernels hold.
_LIBRARIES = ("torch", "torch.nn.functional", "torch.linalg", "torch.special", "torch.fft", "math", "operator", "numpy")


class GraphPickler(pickle.Pickler):
    """Stores closures; `reference(value)` gives what stands for objects that are stored elsewhere."""

    def __init__(self, file: io.BytesIO, reference: Callable[[Any], Any]) -> None:
        super().__init__(file, protocol=5)
        self._reference = reference

    def persistent_id(self, value: Any) -> Any:
        """What stands for a graph, an operation or a tensor."""
        return self._reference(value)

    def reducer_override(self, value: Any) -> Any:
        """How functions, classes, modules and dtypes are stored."""
        for kind, store in _STORES:
            if isinstance(value, kind):
                return store(value)
        return NotImplemented


def _stored_function(value: types.FunctionType) -> Any:
    if _is_global(value):
        return NotImplemented
    place = _place_of(value)
    if place is None:
        return foreign, (f"{value.__module__}.{value.__qualname__}",)
    cells = [_content(cell) for cell in value.__closure__ or ()]
    state = (cells, value.__defaults__, value.__kwdefaults__, dict(vars(value)))
    return _empty_function, (*place, len(cells)), state, None, None, _fill


def _stored_class(value: type) -> Any:
    """A class that a function made; others are found by their names."""
    if not value.__module__.startswith(_PACKAGE) or _is_global(value):
        return NotImplemented
    own = {name: each for name, each in vars(value).items() if not name.startswith("__") and name != "_abc_impl"}
    return _new_class, (type(value), value.__name__, value.__bases__, value.__module__), own, None, None, _set_all


def _stored_tensor(value: torch.Tensor) -> Any:
    """A tensor as its bytes; torch's own way could run code when it is read."""
    if torch.nn.parameter.is_lazy(value):
        return NotImplemented
    data = b"" if value.is_meta else value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    return restored_tensor, (data, value.dtype, list(value.shape), value.is_meta, isinstance(value, torch.nn.Parameter))


def restored_tensor(
    data: bytes, dtype: torch.dtype, shape: list[int], is_meta: bool, is_parameter: bool
) -> torch.Tensor:
    """What `_stored_tensor` stored."""
    if is_meta or not data:
        found = torch.empty(shape, dtype=dtype, device="meta" if is_meta else "cpu")
    else:
        found = torch.frombuffer(bytearray(data), dtype=dtype).reshape(shape)
    return torch.nn.Parameter(found, requires_grad=found.is_floating_point()) if is_parameter else found


def _stored_builtin(value: Any) -> Any:
    """Functions of torch, of Python's `math` and `operator`, by name."""
    name = str(value.__name__)
    for module in _LIBRARIES:
        if getattr(importlib.import_module(module), name, None) is value:
            return importable, (module, name)
    return NotImplemented


def bound_method(owner: Any, name: str) -> Any:
    """A method of an object."""
    if name.startswith("__") and name != "__call__":
        raise pickle.UnpicklingError(f"{name} is not part of a graph")
    return getattr(owner, name)


def importable(module: str, name: str) -> Any:
    """A module that kernels use, or a function of it."""
    if module not in _LIBRARIES and module.split(".", maxsplit=1)[0] != _PACKAGE:
        raise pickle.UnpicklingError(f"{module} is not part of a graph")
    found = importlib.import_module(module)
    return getattr(found, name) if name else found


_STORES: tuple[tuple[Any, Callable[[Any], Any]], ...] = (
    (types.FunctionType, _stored_function),
    (types.BuiltinFunctionType | types.MethodDescriptorType, _stored_builtin),
    (types.MethodType, lambda value: (bound_method, (value.__self__, value.__func__.__name__))),
    (types.ModuleType, lambda value: (importable, (value.__name__, ""))),
    (torch.dtype, lambda value: (importable, ("torch", str(value).removeprefix("torch.")))),
    (torch.Tensor, _stored_tensor),
    (type, _stored_class),
)


class GraphUnpickler(pickle.Unpickler):
    """Reads what `GraphPickler` stored; only classes of this package and plain data are made."""

    def __init__(self, file: io.BytesIO, resolve: Callable[[Any], Any]) -> None:
        super().__init__(file)
        self._resolve = resolve

    def persistent_load(self, pid: Any) -> Any:
        """The graph, operation or tensor that a reference stands for."""
        return self._resolve(pid)

    def find_class(self, module: str, name: str) -> Any:
        """A class or function by name."""
        is_known = module.split(".", maxsplit=1)[0] == _PACKAGE or module.startswith("torch.nn.")
        if not is_known and name not in _ALLOWED.get(module, ()):
            raise pickle.UnpicklingError(f"{module}.{name} is not part of a graph")
        found: Any = super().find_class(module, name)
        if module.split(".", maxsplit=1)[0] == _PACKAGE and not str(getattr(found, "__module__", "")).startswith(
            _PACKAGE
        ):
            raise pickle.UnpicklingError(f"{module}.{name} is not part of a graph")
        return found


def foreign(name: str) -> Callable[..., NoReturn]:
    """What stands for a function of the program that saved the graph."""

    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise NotImplementedError(
            f"{name} is Python code of the program that saved the graph: got a description, expected the function. "
            "Build the graph with that program."
        )

    return refuse


def _new_class(kind: type, name: str, bases: tuple[type, ...], module: str) -> Any:
    """A class that has no attributes of its own yet."""
    return kind(name, bases, {"__module__": module})


def _set_all(target: Any, values: dict[str, Any]) -> None:
    for name, value in values.items():
        setattr(target, name, value)


def _is_global(function: Any) -> bool:
    """Whether a function is found by its name."""
    module = function.__module__ or ""
    if module.split(".")[0] not in {_PACKAGE, "torch", "numpy"}:
        return False
    found: Any = importlib.import_module(module)
    for part in function.__qualname__.split("."):
        found = getattr(found, part, None)
    return found is function


def _place_of(function: types.FunctionType) -> tuple[str, str, int, int] | None:
    """Where the code of a closure of this package is: module, name, line, and which of several."""
    module = function.__module__ or ""
    if module.split(".")[0] != _PACKAGE:
        return None
    code = function.__code__
    same = _codes(module).get((code.co_qualname, code.co_firstlineno), [])
    return (module, code.co_qualname, code.co_firstlineno, same.index(code)) if code in same else None


@functools.cache
def _codes(module: str) -> dict[tuple[str, int], list[types.CodeType]]:
    """All code of a module by name and line."""
    loader = importlib.import_module(module).__loader__
    stack: list[types.CodeType] = [loader.get_code(module)]  # type: ignore[union-attr]
    found: dict[tuple[str, int], list[types.CodeType]] = {}
    while stack:
        code = stack.pop()
        found.setdefault((code.co_qualname, code.co_firstlineno), []).append(code)
        stack += [each for each in code.co_consts if isinstance(each, types.CodeType)]
    return found


class _Empty:
    """What an empty cell holds."""


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return _Empty


def _empty_function(module: str, name: str, line: int, number: int, cells: int) -> types.FunctionType:
    """A closure that holds nothing yet: what it holds may refer to it."""
    code = _codes(module)[name, line][number]
    scope = vars(importlib.import_module(module))
    closure = tuple(types.CellType() for _ in range(cells))
    made = types.FunctionType(code, scope, code.co_name, None, closure)
    made.__qualname__ = name
    made.__module__ = module
    return made


def _fill(function: types.FunctionType, state: Any) -> None:
    cells, function.__defaults__, function.__kwdefaults__, attributes = state
    vars(function).update(attributes)
    for cell, value in zip(function.__closure__ or (), cells, strict=True):
        if value is not _Empty:
            cell.cell_contents = value
