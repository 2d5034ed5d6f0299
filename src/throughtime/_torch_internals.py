"""Every private name of torch that the package uses: what the next version of torch changes breaks here, and only here.

`nn/_dynamo_patch.py` is the one exception: it patches Dynamo and is imported with it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch._compile import _disable_dynamo as disable_dynamo
from torch._ops import OpOverload
from torch.utils._device import DeviceContext
from torch.utils._mode_utils import no_dispatch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._python_dispatch import _disable_current_modes as disable_current_modes
from torch.utils._pytree import _register_namedtuple as register_namedtuple
from torch.utils._pytree import tree_leaves, tree_map_only

__all__ = [
    "DeviceContext",
    "DisableTorchFunction",
    "ForceDispatchKeyGuard",
    "OpOverload",
    "TorchDispatchMode",
    "clear_cublas_workspaces",
    "constant_in_graphs",
    "current_graph_task_id",
    "current_raw_stream",
    "disable_current_modes",
    "disable_dynamo",
    "disabled_torch_function",
    "dispatch_keys_of_thread",
    "end_allocate_to_pool",
    "foreach_copy_",
    "fused_adagrad_",
    "fused_adam_",
    "fused_sgd_",
    "has_saved_tensor_hooks",
    "is_exporting",
    "is_in_forward_ad",
    "is_inside_functorch",
    "is_jit_tracing",
    "is_legacy_batched",
    "keeps_graph",
    "no_dispatch",
    "num_dispatch_modes",
    "num_function_modes",
    "register_namedtuple",
    "top_saved_tensor_hooks",
    "tree_leaves",
    "tree_map_only",
]

F = TypeVar("F", bound=Callable[..., Any])
_C = torch._C

# Autograd.
current_graph_task_id: Callable[[], int] = _C._current_graph_task_id
keeps_graph: Callable[[], bool] = _C._autograd._get_current_graph_task_keep_graph
foreach_copy_ = torch._foreach_copy_
# Optimisers: one pass over all parameters.
fused_adam_ = torch._fused_adam_
fused_sgd_ = torch._fused_sgd_
fused_adagrad_ = torch._fused_adagrad_


def top_saved_tensor_hooks() -> tuple[Callable[[Any], Any], Callable[[Any], Any]] | None:
    """The saved-tensor hooks that are active in this thread: how to pack and how to unpack."""
    hooks: tuple[Callable[[Any], Any], Callable[[Any], Any]] | None = _C._autograd._top_saved_tensors_default_hooks(
        True
    )
    return hooks


def has_saved_tensor_hooks() -> bool:
    """Whether saved-tensor hooks are active in this thread."""
    return _C._autograd._top_saved_tensors_default_hooks(True) is not None


# Modes and tracers.
DisableTorchFunction = _C.DisableTorchFunction
disabled_torch_function = _C._disabled_torch_function_impl
ForceDispatchKeyGuard = _C._ForceDispatchKeyGuard
num_dispatch_modes: Callable[[], int] = _C._len_torch_dispatch_stack
num_function_modes: Callable[[], int] = _C._len_torch_function_stack
is_legacy_batched: Callable[[torch.Tensor], bool] = _C._functorch.is_legacy_batchedtensor


def is_jit_tracing() -> bool:
    """Whether `torch.jit.trace` records this thread."""
    return _C._get_tracing_state() is not None


def is_inside_functorch() -> bool:
    """Whether a transform such as `vmap` or `torch.func.grad` is active."""
    return _C._functorch.peek_interpreter_stack() is not None


def is_in_forward_ad() -> bool:
    """Whether forward-mode differentiation is active."""
    return torch.autograd.forward_ad._current_level >= 0


def constant_in_graphs(function: F) -> F:
    """`torch.compiler.assume_constant_result` without its import of Dynamo, which takes longer than that of torch."""
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


def is_exporting() -> bool:
    """Whether `torch.export` traces."""
    return bool(torch.compiler._is_exporting_flag)


def dispatch_keys_of_thread() -> tuple[Any, Any]:
    """The dispatch keys that this thread includes and excludes."""
    return _C._dispatch_tls_local_include_set(), _C._dispatch_tls_local_exclude_set()


def _without_cuda(*_: object) -> Any:
    raise RuntimeError("this build of torch has no CUDA")


# CUDA; a CPU build of torch has none of these.
current_raw_stream: Callable[[int], int] = getattr(_C, "_cuda_getCurrentRawStream", _without_cuda)
end_allocate_to_pool: Callable[..., None] = getattr(_C, "_cuda_endAllocateToPool", _without_cuda)
clear_cublas_workspaces: Callable[[], None] = getattr(_C, "_cuda_clearCublasWorkspaces", _without_cuda)
