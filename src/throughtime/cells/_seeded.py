"""Cells that draw random numbers inside of a step."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from throughtime._errors import check_number, problem
from throughtime.cells._base import RNNCell
from throughtime.cells._rng import RandomModule


class SeededCell(RandomModule, RNNCell):
    """A cell that draws: from torch's own generator, or with `seed` from one of its own."""

    unwatched = RNNCell.unwatched | {"_generators"}

    def draw_kept(self, like: Tensor, keep_prob: float) -> Tensor:
        """Ones where a value is kept and zeros where it is not, of the shape and dtype of `like`."""
        return torch.floor(self.uniform(like.shape, like) + keep_prob).to(like.dtype)


def check_keep_prob(name: str, value: Any, error: type[ValueError] = ValueError) -> float:
    """`value` as a probability to keep something: above 0 and at most 1."""
    # As torch and TensorFlow hold it: what is 1 but for rounding, is 1.
    number = float(torch.as_tensor(check_number(name, value), device="cpu").detach())
    if not 0 < number <= 1:
        fix = "It is one minus the rate of torch.nn.Dropout."
        what = f"`{name}` is not a probability to keep a value"
        raise error(problem(what, got=number, expected="0 < keep_prob <= 1", fix=fix))
    return float(value)
