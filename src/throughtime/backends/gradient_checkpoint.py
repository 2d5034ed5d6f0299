"""Gradient checkpointing: chunks of time that the backward pass recomputes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, TypeVar, cast

from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

from throughtime._errors import problem, type_name
from throughtime._torch_internals import top_saved_tensor_hooks
from throughtime.cells._cell_types import CellLike
from throughtime.cells._rng import noise_of, set_noise

Function = TypeVar("Function", bound=Callable[..., Any])


def recomputed(function: Function, cell: CellLike) -> Function:
    """`function`, saving only its arguments. Its recomputation draws the same random numbers."""

    def run(*args: Any) -> Any:
        recomputation = _Restored(cell, noise_of(cell))
        contexts = (contextlib.nullcontext(), recomputation)

        def chunk(*args: Any) -> Any:
            with _overwriting_refused(cell) if recomputation.is_active else contextlib.nullcontext():
                return function(*args)

        return checkpoint(chunk, *args, use_reentrant=False, context_fn=lambda: contexts)

    return cast(Function, run)


class _Restored:
    """The cell's generators as they were before the forward pass, while it is recomputed; one entry for each pass."""

    def __init__(self, cell: CellLike, noise: dict[str, Any]) -> None:
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
def _overwriting_refused(cell: CellLike) -> Iterator[None]:
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


def _overwritten(cell: CellLike, tensor: Tensor) -> RuntimeError:
    return RuntimeError(
        problem(
            f"a value that {type_name(cell)} needs for its gradient has been modified by an inplace operation",
            got=f"a tensor of shape {tuple(tensor.shape)} that was written to after it was saved",
            expected="saved values that stay as they are",
            fix="Replace the operation in place in the step, such as `y *= 2` by `y = y * 2`.",
        )
    )
