"""What a loop begins with: a state that was given, or zeros."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from throughtime.layout.shared_zeros import shared_zeros


def begin(
    likes: Sequence[Tensor], given: Sequence[Tensor | None], *, apart: bool
) -> tuple[list[Tensor] | None, list[Tensor]]:
    """What a loop begins with, zeros where nothing is given, and where it leaves what it ends with.

    Both are `apart` for a loop that reads the first where it lies. Others find it in the second, and the first is None.
    """
    pairs = list(zip(likes, given, strict=True))
    if apart:
        starts = [shared_zeros(like.shape, like.dtype, like.device) if one is None else one for like, one in pairs]
        return starts, [torch.empty_like(like, memory_format=torch.contiguous_format) for like in likes]
    return None, [own_state(like, one) for like, one in pairs]


def own_state(like: Tensor, given: Tensor | None) -> Tensor:
    """A state that may be changed in place: what is given, or zeros."""
    if given is None:
        return torch.zeros_like(like, memory_format=torch.contiguous_format)
    return given.clone(memory_format=torch.contiguous_format)
