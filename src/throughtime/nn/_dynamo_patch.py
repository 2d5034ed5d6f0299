"""torch.compile takes none of torch's recurrent modules, nor a class made of one; ours it can take.

It refuses them for their operators, which it would unroll. Ours call another operator, but are refused by their class
before Dynamo looks inside. There is a setting, for all modules of a process: torch's own would be unrolled then, which
takes minutes. So it is changed for ours alone, while Dynamo looks at one.

The import of Dynamo takes longer than that of torch, and most processes never compile: the patch waits until Dynamo is
imported.
"""

from __future__ import annotations

import functools
import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from torch import nn

_BUILDER = "torch._dynamo.variables.builder"


def let_in(kind: type[nn.Module]) -> None:
    """Let torch.compile take modules of this class."""
    patch = functools.partial(_patch, kind)
    if _BUILDER in sys.modules:
        patch(sys.modules[_BUILDER])
    else:
        sys.meta_path.insert(0, _AfterImport(_BUILDER, patch))


def _patch(kind: type[nn.Module], builder: ModuleType) -> None:
    from torch._dynamo import config  # noqa: PLC0415

    refusing = builder.VariableBuilder.wrap_module

    @functools.wraps(refusing)
    def wrap_module(self: Any, value: nn.Module) -> Any:
        if not isinstance(value, kind):
            return refusing(self, value)
        with config.patch(allow_rnn=True):
            return refusing(self, value)

    builder.VariableBuilder.wrap_module = wrap_module


class _AfterImport(MetaPathFinder, Loader):
    """Calls a function with a module once that is imported."""

    def __init__(self, name: str, then: Callable[[ModuleType], None]) -> None:
        self._name, self._then = name, then

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._name:
            return None
        # The usual finders find it; this one only follows their loader.
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is None or spec.loader is None:
            return None
        self._loader, spec.loader = spec.loader, self
        return spec

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._then(module)
