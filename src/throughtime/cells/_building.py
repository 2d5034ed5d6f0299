"""Parameters that depend on the inputs are made before the first step: `build`, which a cell may have of its own.

Our own cells leave alone what exists, so theirs may be called at any time. A user's makes everything anew, and so it is
called once: before the first step, wherever that happens, unless the user has called it already.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.nn.modules.lazy import LazyModuleMixin

from throughtime import _nest

Build = Callable[..., None]


def repeatable(build: Build) -> Build:
    """Mark a `build` that leaves alone what exists."""
    build.is_repeatable = True  # type: ignore[attr-defined]
    return build


def noting(build: Build) -> Build:
    """A user's `build` that notes that it was called."""

    @functools.wraps(build)
    def noted(cell: Any, *args: Any, **kwargs: Any) -> None:
        build(cell, *args, **kwargs)
        end_laziness(cell)

    return noted


def await_first_step(cell: Any) -> None:
    """Let torch call a user's `build` before the first step of a new cell."""
    build = type(cell).build
    if not (hasattr(build, "is_repeatable") or isinstance(cell, LazyModuleMixin)) and _takes(build, (None, None)):
        cell._initialize_hook = cell.register_forward_pre_hook(_build_first, with_kwargs=True)


def _build_first(cell: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    inputs = args[0] if args else kwargs.get("inputs")
    state = args[1] if len(args) > 1 else kwargs.get("state")
    build_once(cell, *placed(cell, inputs, state))


def placed(cell: Any, inputs: Any, state: Any) -> tuple[Any, Any, Any]:
    """What `build` is told of the inputs of a step: their shape, the dtype of inputs and state, the device."""
    features = cell._features_of(inputs)
    leaves = [leaf for leaf in _nest.flatten([features, inputs, state]) if isinstance(leaf, Tensor)]
    dtype = next((leaf.dtype for leaf in leaves if leaf.is_floating_point()), None)
    shapes = _nest.map_leaves(lambda leaf: getattr(leaf, "shape", None), inputs)
    return shapes if features is None else features.shape, dtype, leaves[0].device if leaves else None


def build_once(cell: Any, inputs_shape: Any, dtype: Any, device: Any) -> None:
    """Build a cell, unless it is a user's that has been built."""
    options = {"dtype": dtype, "device": device}
    if hasattr(type(cell).build, "is_repeatable") or isinstance(cell, LazyModuleMixin):
        cell.build(inputs_shape, **options)
    elif hasattr(cell, "_initialize_hook"):
        # TensorFlow's knows of no dtype and no device.
        known = {name: value for name, value in options.items() if _takes(cell.build, (None,), {name: value})}
        cell.build((None, inputs_shape) if isinstance(inputs_shape, int) else inputs_shape, **known)


def _takes(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> bool:
    try:
        inspect.signature(function).bind(*args, **(kwargs or {}))
    except TypeError:
        return False
    return True


def end_laziness(module: Any) -> None:
    """What torch does after the first call of a lazy module; ours may be built without one."""
    for hook in ("_initialize_hook", "_load_hook"):
        if hasattr(module, hook):
            getattr(module, hook).remove()
            delattr(module, hook)
