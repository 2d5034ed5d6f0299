"""torch.compile takes none of torch's recurrent modules, nor a class made of one; ours it can take.

What it refuses them for is their operators, which it would unroll. Ours have another, but are refused by their class
before anything looks inside. There is a setting, for all modules of a process: torch's own would be unrolled then,
which takes minutes. So it is made for ours alone, while torch looks at one.
"""

from __future__ import annotations

import functools
from typing import Any

from torch import nn
from torch._dynamo import config
from torch._dynamo.variables.builder import VariableBuilder


def let_in(kind: type[nn.Module]) -> None:
    """Let torch.compile take modules of this class."""
    refusing = VariableBuilder.wrap_module

    @functools.wraps(refusing)
    def wrap_module(self: Any, value: nn.Module) -> Any:
        if not isinstance(value, kind):
            return refusing(self, value)
        with config.patch(allow_rnn=True):
            return refusing(self, value)

    VariableBuilder.wrap_module = wrap_module  # type: ignore[method-assign]
