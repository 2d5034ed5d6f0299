"""The oracle: what an unroll must give, found the slowest way. Nothing of the engine is used here.

Each sequence runs alone, as a batch of one row, through a plain loop over its own real steps. Padding is not masked:
it is never looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree


def oracle(
    cell: Any, inputs: Any, lengths: Sequence[int] | None, state: Any, dtype: torch.dtype, *, reverse: bool = False
) -> tuple[Any, Any]:
    """`(outputs, final_state)` for `inputs` [B, T, ...] from `state`; `reverse` walks every sequence from its end."""
    batch, time = pytree.tree_leaves(inputs)[0].shape[:2]
    state = cell.zero_state(batch, dtype) if state is None else state
    lengths = [time] * batch if lengths is None else [max(0, min(time, length)) for length in lengths]
    forget_masks(cell)
    blank = pytree.tree_map(lambda size: torch.zeros(1, *_dims(size), dtype=dtype), cell.output_size, is_leaf=_is_size)
    outputs, finals = [], []
    for row, length in enumerate(lengths):
        steps = reversed(range(length)) if reverse else range(length)
        emitted, final = _one_sequence(cell, row, steps, inputs, state)
        outputs += [emitted.get(step, blank) for step in range(time)]
        finals.append(final)
    longest = max(range(batch), key=lengths.__getitem__, default=0)
    return (
        pytree.tree_map(lambda one, *many: _grid(one, many, batch, time), blank, *outputs),
        pytree.tree_map(lambda first, *rows: _join(first, rows, longest), state, *finals),
    )


def both_directions(cell: Any, inputs: Any, lengths: Sequence[int] | None, state: Any, dtype: torch.dtype) -> Any:
    """The same cell from the start and from the end: `((outputs, outputs), (state, state))`."""
    ways = [oracle(cell, inputs, lengths, state, dtype, reverse=reverse) for reverse in (False, True)]
    return tuple(zip(*ways, strict=True))


def _one_sequence(cell: Any, row: int, steps: Any, inputs: Any, state: Any) -> tuple[dict[int, Any], Any]:
    """The output of each step of one sequence, and its last state."""
    outputs = {}
    state = pytree.tree_map(lambda leaf: leaf[row : row + 1] if leaf.ndim else leaf, state)
    for step in steps:
        outputs[step], state = cell(pytree.tree_map(lambda leaf, t=step: leaf[row : row + 1, t], inputs), state)
    return outputs, state


def _grid(blank: Tensor, steps: Sequence[Tensor], batch: int, time: int) -> Tensor:
    """The steps of all sequences, one after another, as [B, T, ...]."""
    return torch.cat([blank[:0], *steps]).reshape(batch, time, *blank.shape[1:])


def _join(first: Tensor, rows: Sequence[Tensor], longest: int) -> Tensor:
    """The final states of all sequences; a scalar belongs to no row and has seen as many steps as the longest."""
    if first.ndim == 0:
        return rows[longest] if rows else first
    return torch.cat([first[:0], *rows])


def forget_masks(cell: Any) -> None:
    """Variational dropout draws its masks anew for every unroll."""
    for module in cell.modules() if isinstance(cell, nn.Module) else ():
        if hasattr(module, "reset_masks"):
            module.reset_masks()


def _is_size(node: object) -> bool:
    return isinstance(node, torch.Size)


def _dims(size: Any) -> tuple[int, ...]:
    return tuple(size) if _is_size(size) else (size,)
