"""Gradient checkpointing: blocks of steps that run again when the backward pass needs their values."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

from throughtime._errors import problem, type_name
from throughtime._torch_internals import top_saved_tensor_hooks
from throughtime.cells._rng import noise_of, set_noise


def recomputed(run_block: Callable[..., Any], cell: Any) -> Callable[..., Any]:
    """`run_block`, storing only its arguments. The second run draws the same random numbers as the first."""

    def run(*args: Any) -> Any:
        second_run = _Restored(cell, noise_of(cell))
        contexts = (contextlib.nullcontext(), second_run)

        def block(*args: Any) -> Any:
            with _overwriting_refused(cell) if second_run.is_active else contextlib.nullcontext():
                return run_block(*args)

        return checkpoint(block, *args, use_reentrant=False, context_fn=lambda: contexts)

    return run


class _Restored:
    """The random state that the cell had before its first run, while it runs again; entered once per backward pass."""

    def __init__(self, cell: Any, noise: dict[str, Any]) -> None:
        self._cell = cell
        self._noise = noise
        self._now: list[dict[str, Any]] = []

    @property
    def is_active(self) -> bool:
        return bool(self._now)

    def __enter__(self) -> None:
        self._now.append(noise_of(self._cell))
        set_noise(self._cell, self._noise)

    def __exit__(self, *_: object) -> None:
        set_noise(self._cell, self._now.pop())


@contextlib.contextmanager
def _overwriting_refused(cell: Any) -> Iterator[None]:
    """Raise if a tensor is written to after autograd has saved it.

    Autograd checks the version of what it saves, but not where hooks save it, as they do in checkpointing.
    """
    hooks = top_saved_tensor_hooks()
    if hooks is None:
        yield
        return
    pack, unpack = hooks
    saved: list[tuple[Tensor, int]] = []

    def pack_counted(tensor: Tensor) -> Any:
        # First: torch ends the second run by an exception from here as soon as it has all that it needs.
        saved.append((tensor, tensor._version))
        return pack(tensor)

    try:
        with saved_tensors_hooks(pack_counted, unpack):
            yield
    finally:
        changed = next((tensor for tensor, version in saved if tensor._version != version), None)
        saved.clear()
        if changed is not None:
            raise _overwritten(cell, changed)


def _overwritten(cell: Any, tensor: Tensor) -> RuntimeError:
    return RuntimeError(
        problem(
            f"a value that {type_name(cell)} needs for its gradient has been modified by an inplace operation",
            got=f"a tensor of shape {tuple(tensor.shape)} that was written to after it was saved",
            expected="saved values that stay as they are",
            fix="Replace the operation in place in the step, such as `y *= 2` by `y = y * 2`.",
        )
    )
