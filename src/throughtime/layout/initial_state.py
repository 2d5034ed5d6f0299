"""The initial state of a loop: the one that was given, or zeros."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from throughtime.layout.shared_zeros import shared_zeros


def begin(
    likes: Sequence[Tensor], given: Sequence[Tensor | None], *, separate: bool
) -> tuple[list[Tensor] | None, list[Tensor]]:
    """The initial state, zeros where none is given, and the buffers of the final state.

    They are `separate` for a loop that reads its initial state where it is stored. Other loops update one buffer in
    place: it holds the initial state, and the first result is None.
    """
    pairs = list(zip(likes, given, strict=True))
    if separate:
        starts = [shared_zeros(like.shape, like.dtype, like.device) if one is None else one for like, one in pairs]
        return starts, [torch.empty_like(like, memory_format=torch.contiguous_format) for like in likes]
    return None, [own_state(like, one) for like, one in pairs]


def own_state(like: Tensor, given: Tensor | None) -> Tensor:
    """A copy of a given state that may be updated in place, or zeros."""
    if given is None:
        return torch.zeros_like(like, memory_format=torch.contiguous_format)
    return given.clone(memory_format=torch.contiguous_format)
