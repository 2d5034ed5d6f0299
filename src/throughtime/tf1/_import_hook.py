"""The name `tensorflow` for `throughtime.tf1`, in this process only.

`import tensorflow.contrib.rnn` finds the module `throughtime.tf1.contrib.rnn`. Modules of TensorFlow's own inside
(`tensorflow.python.ops.math_ops`) find public functions by their last name. A module that we do not have can be
imported; what is taken from it says so when it is used.
"""

from __future__ import annotations

import importlib
import sys
import types
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from typing import Any, NoReturn

from throughtime.tf1._namespace import PUBLIC, ROOT, missing

NAME = "tensorflow"
# Parts of TensorFlow that are wide: a module of them that we do not have may be imported and never used.
_WIDE = tuple(f"{ROOT}.{part}." for part in ("contrib", "python", "core", "keras", "examples"))
# Where public functions are looked for that a module of TensorFlow's own inside has under the same last name.
_PLACES = ("", "nn.", "nn.rnn_cell.", "contrib.rnn.", "layers.", "train.", "losses.", "contrib.layers.", "summary.")


class _Internals(types.ModuleType):
    """A module of TensorFlow that has no counterpart: names are found among the public ones, by their last part.

    Another name of it is such a module too, since it may be one; used as a function or class, it says that it is not
    there.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        path = f"{_inside(self.__name__)}.{name}"
        found = PUBLIC.get(path)
        if isinstance(found, types.ModuleType) or f"{NAME}.{path}" in sys.modules:
            return importlib.import_module(f"{NAME}.{path}")
        if found is not None:
            return found
        module = self.__name__.rpartition(".")[2]
        for place in (f"{module}.", f"nn.{module}.", *_PLACES):
            if f"{place}{name}" in PUBLIC:
                return PUBLIC[f"{place}{name}"]
        return importlib.import_module(f"{NAME}.{path}")

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise NotImplementedError(missing(_inside(self.__name__)))

    __call__ = __iter__ = __getitem__ = __mro_entries__ = _refuse


def _inside(name: str) -> str:
    """A module's path below `tf`."""
    return name.removeprefix(NAME).removeprefix(ROOT).lstrip(".")


class _Alias(Loader):
    """Loads a module of `tensorflow` by handing out one of ours."""

    def create_module(self, spec: ModuleSpec) -> None:
        """The default module, which `exec_module` replaces."""

    def exec_module(self, module: types.ModuleType) -> None:
        """Put our module in its place."""
        sys.modules[module.__name__] = _counterpart(module)


def _counterpart(module: types.ModuleType) -> types.ModuleType:
    """Our module for one that is being imported, or one that finds names by their last part."""
    name = module.__name__
    ours = f"{ROOT}.{_inside(name)}".rstrip(".")
    known = sys.modules.get(ours)
    if known not in {None, module} and not _inside(name).startswith(("python", "core")):
        return sys.modules[ours]
    return _Internals(name)


class TensorFlowFinder(MetaPathFinder):
    """Finds `tensorflow` and everything below it."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: types.ModuleType | None = None
    ) -> ModuleSpec | None:
        """The specification of a module below `tensorflow`; None for others."""
        del path, target
        if fullname.startswith(_WIDE):
            # `from tensorflow.contrib import slim` asks for it under the name that the module `contrib` has.
            known = fullname in sys.modules or _inside(fullname) in PUBLIC
            return None if known else ModuleSpec(fullname, _Alias(), is_package=True)
        if fullname != NAME and not fullname.startswith(f"{NAME}."):
            return None
        importlib.import_module(ROOT)
        inside = _inside(fullname)
        # A public function or class is no module: `from tensorflow import Session` reads it as an attribute.
        if inside in PUBLIC and not isinstance(PUBLIC[inside], types.ModuleType):
            return None
        return ModuleSpec(fullname, _Alias(), is_package=True)


def install() -> None:
    """Let `import tensorflow` find `throughtime.tf1` from here on, whatever else is installed."""
    if not any(isinstance(finder, TensorFlowFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, TensorFlowFinder())
    for name in [name for name in sys.modules if name == NAME or name.startswith(f"{NAME}.")]:
        del sys.modules[name]


def uninstall() -> None:
    """Undo `install`."""
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, TensorFlowFinder)]
    for name in [name for name in sys.modules if name == NAME or name.startswith(f"{NAME}.")]:
        del sys.modules[name]
