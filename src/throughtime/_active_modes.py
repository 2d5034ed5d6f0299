"""Somebody looks on: torch may be asked to show every operation to others, who would not see into a kernel."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.overrides import _get_current_function_mode_stack
from torch.utils._device import DeviceContext


def intercepting_mode(*, inside_operator: bool = False) -> str | None:
    """Who wants to see every operation at this moment, as a reason why nothing can be compiled; None if nobody does.

    Whoever traces a call sees an operator of torch as a whole: inside of one, that is no reason any more.
    """
    if not inside_operator and (torch.compiler.is_compiling() or torch._C._get_tracing_state() is not None):
        return "the call itself is being traced"
    if torch._C._functorch.peek_interpreter_stack() is not None:
        return "a transform of torch.func is at work"
    if torch._C._len_torch_dispatch_stack() > 0 or (torch._C._len_torch_function_stack() > 0 and _has_function_mode()):
        return "a mode of torch that sees every operation is at work"
    if nn.modules.module._has_any_global_hook():
        return "there are hooks for the calls of all modules"
    if torch.autograd.forward_ad._current_level >= 0:
        return "forward-mode differentiation is at work"
    return None


def is_batched(gradient: Tensor | None) -> bool:
    """Whether it stands for many that torch computes at once, as `is_grads_batched` asks for: it has no memory."""
    return gradient is not None and torch._C._functorch.is_legacy_batchedtensor(gradient)


def _has_function_mode() -> bool:
    """Whether a function mode does more than say where new tensors go, as `torch.set_default_device` does."""
    return not all(isinstance(mode, DeviceContext) for mode in _get_current_function_mode_stack())
