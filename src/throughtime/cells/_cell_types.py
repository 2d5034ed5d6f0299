"""Types of cells, for type checkers.

Both protocols are structural, so they hold for every cell, built in or written by a user:

* `Cell[State]` types the public functions: the state that they return is the one that `forward` of the cell returns.
* `CellLike` types the engine: the members that `dynamic_rnn` and everything below it may use without a check.
"""

from __future__ import annotations

from typing import Any, Protocol

from torch import Tensor
from torch.nn.utils.rnn import PackedSequence
from typing_extensions import TypeVar

from throughtime._pytree import Nest

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


class CellLike(Protocol):
    """Any callable with sizes and a zero state. It need not be a module: check with `isinstance` for more."""

    @property
    def state_size(self) -> Nest:
        """The size of each part of the state: an int or a `torch.Size`, in the structure of the state."""
        ...

    @property
    def output_size(self) -> Nest:
        """The size of each part of the output, in its structure."""
        ...

    def zero_state(self, batch_size: int, dtype: Any, /) -> Nest:
        """The state to start from if the caller gives none."""
        ...

    def __call__(self, inputs: Nest, state: Nest, /) -> Any:
        """One step: the output and the new state. Unchecked, since code of a user computes them."""
        ...
