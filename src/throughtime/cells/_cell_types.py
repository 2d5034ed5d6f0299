"""What type checkers see of a cell: the state is the one that its `forward` returns.

The protocol is structural, so that results are typed for every cell with a typed `forward`, built in or not.
"""

from __future__ import annotations

from typing import Any, Protocol

from torch import Tensor
from torch.nn.utils.rnn import PackedSequence
from typing_extensions import TypeVar

State = TypeVar("State", default=Any)
"""The state of a cell; of a cell that does not say, anything."""

BackwardState = TypeVar("BackwardState")
"""That of the cell for the other direction."""

Sequences = TypeVar("Sequences", Tensor, PackedSequence)
"""Sequences as one object; outputs are of the type of the inputs."""

_State_co = TypeVar("_State_co", covariant=True)


class Cell(Protocol[_State_co]):
    """A cell with one tensor as its output."""

    def forward(self, inputs: Any, state: Any, /) -> tuple[Tensor, _State_co]:
        """One step."""
        ...
