"""What a cell with attention carries from step to step."""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import Tensor

from throughtime import _pytree
from throughtime._errors import problem, shape_of

_SAME: Any = object()


class AttentionWrapperState(NamedTuple):
    """The state of an `AttentionWrapper`; with several mechanisms, alignments and the rest are tuples.

    Attributes:
        cell_state: The state of the cell inside.
        attention: [B, A], what the last step gave.
        time: (), how many steps there were.
        alignments: [B, S], where the last step looked.
        alignment_history: A `TensorArray` of the alignments of all steps, or ().
        attention_state: [B, S], what the mechanism carries from step to step.
        memory: What is looked at, as a `Memory` of keys, values and mask. It is part of the state so that it goes
            where its row goes: when rows end, are sorted by length, or belong to beams.

    >>> import torch, throughtime as tt
    >>> attention = tt.decode.LuongAttention(4, torch.randn(2, 6, 3))
    >>> cell = tt.decode.AttentionWrapper(tt.GRUCell(4), attention)
    >>> state = cell.zero_state(2, torch.float32)
    >>> state.clone(cell_state=torch.ones(2, 4)).cell_state.sum().item()
    8.0
    """

    cell_state: Any
    attention: Any
    time: Any
    alignments: Any
    alignment_history: Any
    attention_state: Any
    memory: Any = ()

    def clone(
        self,
        *,
        cell_state: Any = _SAME,
        attention: Any = _SAME,
        time: Any = _SAME,
        alignments: Any = _SAME,
        alignment_history: Any = _SAME,
        attention_state: Any = _SAME,
        memory: Any = _SAME,
    ) -> AttentionWrapperState:
        """The state with other values in some fields, of the structures and shapes that were there."""
        given = (cell_state, attention, time, alignments, alignment_history, attention_state, memory)
        parts = zip(self._fields, self, given, strict=True)
        return AttentionWrapperState(
            *(old if new is _SAME else _same_shape(f"`{name}`", old, new) for name, old, new in parts)
        )


def _same_shape(what: str, old: Any, new: Any) -> Any:
    """`new` in the structure of `old`, if shapes agree."""
    new = _pytree.conform(old, new, what)
    for one, other in zip(_pytree.flatten(old), _pytree.flatten(new), strict=True):
        if isinstance(one, Tensor) and isinstance(other, Tensor) and one.shape != other.shape:
            fix = "Give a value of the same shape, or make another zero state."
            raise ValueError(problem(f"{what} has another shape", got=shape_of(other), expected=shape_of(one), fix=fix))
    return new
