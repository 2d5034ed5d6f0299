"""What attention looks at: the rows of an encoder, with everything past their ends blotted out."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from throughtime._errors import InvalidArgumentError, problem, shape_of, type_name
from throughtime._tensors import as_tensor
from throughtime.unroll._arguments import check_lengths


class Memory(NamedTuple):
    """What is looked at, for each row of the batch: part of the state, so that it goes wherever its row goes.

    Attributes:
        keys: [B, S, units], what a query is compared with.
        values: [B, S, D], what is read.
        mask: bool [B, S], which places exist.

    >>> import torch, throughtime as tt
    >>> attention = tt.decode.LuongAttention(4, torch.randn(2, 6, 3), memory_sequence_length=[6, 2])
    >>> attention.memory.mask.sum(1).tolist()
    [6, 2]
    """

    keys: Tensor
    values: Tensor
    mask: Tensor


def check_memory(memory: Any, memory_sequence_length: Any) -> tuple[Tensor, Tensor]:
    """`memory` [B, S, D] with zeros past the lengths, and its mask [B, S]."""
    expected, fix = "a tensor [B, S, D]", "Pass the outputs of an encoder, as `dynamic_rnn` gives them."
    if isinstance(memory, tuple | list | dict) or memory is None:
        raise TypeError(problem("`memory` must be one tensor", got=type_name(memory), expected=expected, fix=fix))
    memory = as_tensor("memory", memory)
    if memory.ndim != 3 or not memory.is_floating_point():
        raise ValueError(problem("`memory` must hold vectors", got=type_name(memory), expected=expected, fix=fix))
    if not memory.shape[1]:
        fix = "Attend to at least one step."
        raise InvalidArgumentError(
            problem("`memory` has no steps", got=shape_of(memory), expected="[B, S, D] with S of at least 1", fix=fix)
        )
    if memory_sequence_length is None:
        return memory, memory.new_ones(memory.shape[:2], dtype=torch.bool)
    mask = _mask(memory, memory_sequence_length)
    # By selection, not by product: what is past the end may be NaN.
    return torch.where(mask.unsqueeze(2), memory, memory.new_zeros(())), mask


def _mask(memory: Tensor, memory_sequence_length: Any) -> Tensor:
    lengths = check_lengths(memory_sequence_length, memory.shape[0]) or []
    if any(length < 1 for length in lengths):
        what = "All values in `memory_sequence_length` must be greater than zero"
        fix = "Leave rows without anything to attend to out of the batch."
        raise InvalidArgumentError(problem(what, got=lengths, expected="lengths of at least 1", fix=fix))
    ends = torch.tensor(lengths, device=memory.device).clamp(max=memory.shape[1])
    return torch.arange(memory.shape[1], device=memory.device) < ends.unsqueeze(1)
