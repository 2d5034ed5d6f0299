"""`torch.jit.script`: refused with the alternatives, where torch would name an annotation that it does not know."""

from __future__ import annotations

from typing import Any

from throughtime._errors import problem, type_name


class NotScriptable:
    """A mixin of modules in Python that TorchScript cannot express."""

    def __prepare_scriptable__(self) -> Any:
        """Called by `torch.jit.script` for every module of a model."""
        fix = (
            "Use torch.export or torch.compile, which take it as it is; torch.jit.script takes a torch.nn.LSTM, GRU or "
            "RNN with the same weights."
        )
        what = "torch.jit.script does not take modules of throughtime"
        raise RuntimeError(problem(what, got=type_name(self), expected="modules of torch", fix=fix))
