"""Arguments and weights with a `__torch_function__` of their own: torch's operators take them, our kernels do not."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.fx import Proxy
from torch.overrides import has_torch_function

from throughtime._torch_internals import disabled_torch_function
from throughtime.runtime.backend_context import wanted_backend


def overrides(*values: Any) -> bool:
    """Whether one of these has a `__torch_function__`. A mode that is on, such as a default device, does not count."""
    return has_torch_function(values) and any(map(_has_own, values))


def _has_own(value: Any) -> bool:
    kind = type(value)
    return (
        kind is not Tensor
        and getattr(kind, "__torch_function__", disabled_torch_function) is not disabled_torch_function
    )


def argument_of(proxies: tuple[Any, ...]) -> Proxy | None:
    """The first that stands for a value of a graph which `torch.fx` is writing."""
    return next((value for value in proxies if isinstance(value, Proxy)), None)


def is_for_torch(values: tuple[Any, ...], sequence_length: Any) -> bool:
    """Whether torch's `forward` must run: its operator is what `__torch_function__` knows.

    Lengths are ours alone, and so is a backend that is asked for by name; tensors run on the plain loop then.
    """
    if not overrides(*values):
        return False
    is_tensors = all(value is None or isinstance(value, Tensor) for value in values)
    return not is_tensors or (sequence_length is None and wanted_backend() == "auto")


def as_leaf(module: nn.Module, proxy: Proxy, *args: Any, **options: Any) -> Any:
    """A call of `module` as one node of the graph, as torch's own modules have it."""
    tracer: Any = proxy.tracer
    given = {name: value for name, value in options.items() if value is not None}
    return tracer.create_proxy("call_module", tracer.path_of_module(module), args, given)
