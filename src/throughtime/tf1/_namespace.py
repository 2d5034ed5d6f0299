"""The public names: each owner registers objects under dotted names, and modules such as `tf.contrib.rnn` arise.

`export("contrib.rnn.LSTMCell", LSTMCell)` makes the modules `throughtime.tf1.contrib` and `.contrib.rnn` if there are
no such packages, and sets the attribute; where a package of ours has the name
(`tf1/train`), the attribute is set on it.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import pkgutil
import sys
import types
from collections.abc import Callable
from typing import Any, TypeVar

from throughtime.tf1._tensorflow_names import TENSORFLOW_NAMES

ROOT = "throughtime.tf1"
_SKIPPED = {"__main__", "_import_hook"}
_Exported = TypeVar("_Exported")

PUBLIC: dict[str, Any] = {}
"""Every public object by its dotted name below `tf`."""


class Namespace(types.ModuleType):
    """A module without a file, such as `tf.contrib`; an unknown name says what is near."""

    def __init__(self, name: str):
        super().__init__(name, f"`{name.removeprefix(ROOT).lstrip('.')}` as TensorFlow 1 has it.")
        self.__path__: list[str] = []

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(missing(f"{self.__name__.removeprefix(ROOT + '.')}.{name}"))


def export(name: str, value: Any) -> None:
    """Make `value` public as `tf.<name>`."""
    path, _, last = name.rpartition(".")
    PUBLIC[name] = value
    setattr(_module(path), last, value)


def exported(*names: str) -> Callable[[_Exported], _Exported]:
    """Decorate a class or a function with its public names."""

    def register(value: _Exported) -> _Exported:
        for name in names:
            export(name, value)
        return value

    return register


def lookup(name: str) -> Any:
    """The public object `tf.<name>`."""
    if name not in PUBLIC:
        raise AttributeError(missing(name))
    return PUBLIC[name]


def missing(name: str) -> str:
    """The message for a name that is not there: what is near."""
    close = difflib.get_close_matches(name, PUBLIC, 3, 0.75)
    last = name.rpartition(".")[2]
    same = sorted(other for other in PUBLIC if other.rpartition(".")[2] == last)[:3]
    near = " or ".join(f"tf.{other}" for other in dict.fromkeys([*same, *close]))
    is_module = any(other.startswith(f"{name}.") for other in TENSORFLOW_NAMES)
    if is_module:
        # Names like that of a module are no replacement for it.
        near = ""
    known = is_module or name in TENSORFLOW_NAMES
    advice = (f"The nearest are {near}." if known else f"Did you mean {near}?") if near else ""
    reason = (
        "TensorFlow 1.15 has it, but it is not supported here." if known else "" if near else "It is not supported."
    )
    return " ".join(part for part in (f"module 'tf' has no attribute '{name}'.", reason, advice) if part)


def missing_attribute(name: str) -> Any:
    """`__getattr__` of `throughtime.tf1`."""
    if name.startswith("__"):
        raise AttributeError(name)
    raise AttributeError(missing(name))


def _module(path: str) -> types.ModuleType:
    """The module of a dotted path below `tf`, made if there is none."""
    full = f"{ROOT}.{path}" if path else ROOT
    if full in sys.modules:
        return sys.modules[full]
    parent_path, _, last = path.rpartition(".")
    parent = _module(parent_path)
    found = getattr(parent, "__path__", None) and importlib.util.find_spec(full) is not None
    module = importlib.import_module(full) if found else Namespace(full)
    sys.modules[full] = module
    setattr(parent, last, module)
    PUBLIC.setdefault(path, module)
    return module


def load_all() -> None:
    """Import every module of this package, so that each registers what it exports."""
    package = sys.modules[ROOT]
    for found in pkgutil.walk_packages(package.__path__, f"{ROOT}."):
        if found.name.rpartition(".")[2] not in _SKIPPED:
            importlib.import_module(found.name)
