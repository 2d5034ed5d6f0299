"""Active modes of torch that must see every operation: they would not see into a kernel."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.overrides import _get_current_function_mode_stack

from throughtime._torch_internals import (
    DeviceContext,
    is_in_forward_ad,
    is_inside_functorch,
    is_jit_tracing,
    is_legacy_batched,
    num_dispatch_modes,
    num_function_modes,
)


def intercepting_mode(*, inside_operator: bool = False) -> str | None:
    """The active mode that must see every operation, as a reason why nothing can be compiled; None if there is none.

    A tracer sees a custom operator as a whole: inside of one, that is no reason any more.
    """
    if not inside_operator and (torch.compiler.is_compiling() or is_jit_tracing()):
        return "the call itself is being traced"
    if is_inside_functorch():
        return "a transform of torch.func is at work"
    if num_dispatch_modes() > 0 or (num_function_modes() > 0 and _has_function_mode()):
        return "a mode of torch that sees every operation is at work"
    if nn.modules.module._has_any_global_hook():
        return "there are hooks for the calls of all modules"
    if is_in_forward_ad():
        return "forward-mode differentiation is at work"
    return None


def is_batched(gradient: Tensor | None) -> bool:
    """Whether it stands for many that torch computes at once, as `is_grads_batched` asks for: it has no memory."""
    return gradient is not None and is_legacy_batched(gradient)


def _has_function_mode() -> bool:
    """Whether a function mode does more than say where new tensors go, as `torch.set_default_device` does."""
    return not all(isinstance(mode, DeviceContext) for mode in _get_current_function_mode_stack())
