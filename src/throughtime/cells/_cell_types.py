"""What type checkers see of a cell: the state is the one that its `forward` returns.

The protocol is structural, so that results are typed for every cell with a typed `forward`, built in or not.
"""

from __future__ import annotations

from typing import Any, Protocol

from torch import Tensor
from torch.nn.utils.rnn import PackedSequence
from typing_extensions import TypeVar

State = TypeVar("State")
"""The state of a cell."""

BackwardState = TypeVar("BackwardState")
"""That of the cell for the other direction."""

Wrapped_co = TypeVar("Wrapped_co", covariant=True, default=Any)
"""The type of the cells inside of a cell."""

Part = TypeVar("Part", default=Tensor)
"""A part of a state: a tensor, or its size."""

Sequences = TypeVar("Sequences", Tensor, PackedSequence)
"""Sequences as one object; outputs are of the type of the inputs."""

_State_co = TypeVar("_State_co", covariant=True)


class Cell(Protocol[_State_co]):
    """A cell with one tensor as its output."""

    def forward(self, inputs: Any, state: Any, /) -> tuple[Tensor, _State_co]:
        """One step."""
        ...
