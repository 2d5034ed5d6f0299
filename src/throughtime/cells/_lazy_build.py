"""Parameters that depend on the inputs are made before the first step: `build`, which a cell may have of its own.

Our own cells leave alone what exists, so theirs may be called at any time. A user's makes everything anew, and so it is
called once: before the first step, wherever that happens, unless the user has called it already.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from throughtime import _pytree
from throughtime._fork_safety import fork_safe_rlock

Build = Callable[..., None]

# Two threads that make the first call of a cell must not both build it, nor run on parameters that are half made.
building = fork_safe_rlock()


def repeatable(build: Build) -> Build:
    """Mark a `build` that leaves alone what exists."""
    build.is_repeatable = True  # type: ignore[attr-defined]
    return build


def noting(build: Build) -> Build:
    """`build` as a class has it: one of a user notes when it is done, together with those that it calls."""
    if hasattr(build, "is_repeatable") or hasattr(build, "is_noted"):
        return build

    @functools.wraps(build)
    def noted(cell: Any, *args: Any, **kwargs: Any) -> None:
        outermost = vars(cell).get("_in_build") is None
        vars(cell)["_in_build"] = True
        try:
            build(cell, *args, **kwargs)
        finally:
            if outermost:
                del vars(cell)["_in_build"]
        if outermost:
            _remove(cell, "_build_hook")

    noted.is_noted = True  # type: ignore[attr-defined]
    return noted


def await_first_step(cell: Any) -> None:
    """Let torch call a user's `build` before the first step of a new cell."""
    build = type(cell).build
    if not hasattr(build, "is_repeatable") and _takes(build, None, None):
        cell._build_hook = cell.register_forward_pre_hook(_build_first, with_kwargs=True)


def awaits_first_step(cell: Any) -> bool:
    """Whether some parameters of a module are still to be made, or have been made without a first call."""
    return hasattr(cell, "_initialize_hook") or hasattr(cell, "_build_hook")


def _build_first(cell: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    inputs, state, *_ = (*args, *kwargs.values(), None, None)
    cell.check_step(inputs, state)
    build_once(cell, *placed(cell, inputs, state))


def placed(cell: Any, inputs: Any, state: Any) -> tuple[Any, Any, Any]:
    """What `build` is told of the inputs of a step: their shape, the dtype of inputs and state, the device."""
    features = cell._features_of(inputs)
    leaves = [leaf for leaf in _pytree.flatten([features, inputs, state]) if isinstance(leaf, Tensor)]
    dtype = _pytree.floating_dtype(leaves)
    shapes = _pytree.map_leaves(lambda leaf: getattr(leaf, "shape", None), inputs)
    return shapes if features is None else features.shape, dtype, leaves[0].device if leaves else None


def build_once(cell: Any, inputs_shape: Any, dtype: Any, device: Any) -> None:
    """Build a cell, unless it is a user's that has been built."""
    options = {"dtype": dtype, "device": device}
    if hasattr(type(cell).build, "is_repeatable"):
        cell.build(inputs_shape, **options)
        return
    # Made in inference mode, a parameter could never be trained.
    with building, torch.inference_mode(False):
        if hasattr(cell, "_build_hook"):
            # TensorFlow's knows of no dtype and no device.
            known = {name: value for name, value in options.items() if _takes(cell.build, None, **{name: value})}
            cell.build((None, inputs_shape) if isinstance(inputs_shape, int) else inputs_shape, **known)


def _takes(function: Callable[..., Any], *args: Any, **kwargs: Any) -> bool:
    try:
        inspect.signature(function).bind(*args, **kwargs)
    except TypeError:
        return False
    return True


def end_laziness(module: Any) -> None:
    """What torch does after the first call of a lazy module; ours may be built without one."""
    for hook in ("_initialize_hook", "_load_hook"):
        _remove(module, hook)


def _remove(module: Any, hook: str) -> None:
    if hasattr(module, hook):
        getattr(module, hook).remove()
        delattr(module, hook)
