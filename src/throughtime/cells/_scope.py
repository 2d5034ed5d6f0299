"""Levels in the names of parameters."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.nn.modules.lazy import LazyModuleMixin

from throughtime._errors import shape_of
from throughtime._tensors import is_lazy


class ParameterScope(LazyModuleMixin, nn.Module):
    """A level in the names of a cell's parameters: `projection.kernel` is TensorFlow's `projection/kernel`."""

    # Lazy only so that a state_dict can be loaded before the cell is built: the cell builds, this is never called.
    kernel: Tensor
    bias: Tensor

    def before_a_step(self) -> None:
        """Call the forward pre-hooks first: tools that replace a weight, such as `torch.nn.utils.prune`, use them."""
        own = vars(self).get("_initialize_hook")
        for number, hook in list(self._forward_pre_hooks.items()):
            if own is None or number != own.id:
                # torch's own way to call them would need a step of this module.
                options: tuple[Any, ...] = ({},) if number in self._forward_pre_hooks_with_kwargs else ()
                hook(self, (), *options)

    def extra_repr(self) -> str:
        """What it holds, with shapes once there are any."""
        held: dict[str, Any] = dict(self._parameters)
        return ", ".join(name if is_lazy(p) else f"{name} {shape_of(p)}" for name, p in held.items())
