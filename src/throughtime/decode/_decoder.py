"""What a decoder is: something that, step by step, turns a state into outputs and says which rows have ended."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any


class Decoder(ABC):
    """Decodes step by step: what `dynamic_decode` runs.

    To write one, define `batch_size`, `output_size` and `output_dtype` (nests of what one step gives), `initialize`
    and `step`. Rows that have ended stay ended and keep their state; a decoder that moves rows around, as beam search
    does, says `tracks_own_finished = True` and looks after that itself.

    >>> import torch, throughtime as tt
    >>> class CountDown(tt.decode.Decoder):
    ...     batch_size, output_size, output_dtype = 2, torch.Size([]), torch.int64
    ...     def initialize(self, name=None):
    ...         start = torch.tensor([3, 1])
    ...         return start < 0, start, ()
    ...     def step(self, time, inputs, state, name=None):
    ...         return inputs, state, inputs - 1, inputs == 0
    >>> outputs, _, lengths = tt.decode.dynamic_decode(CountDown())
    >>> outputs.tolist(), lengths.tolist()
    ([[3, 2, 1, 0], [1, 0, 0, 0]], [4, 2])
    """

    tracks_own_finished = False

    @property
    @abstractmethod
    def batch_size(self) -> int:
        """B, the number of rows."""

    @property
    @abstractmethod
    def output_size(self) -> Any:
        """The size of a row of what one step gives: an int, a `torch.Size`, or a nest of these."""

    @property
    @abstractmethod
    def output_dtype(self) -> Any:
        """The dtype of what one step gives, in the structure of `output_size`."""

    @abstractmethod
    def initialize(self, name: str | None = None) -> tuple[Any, Any, Any]:
        """`(finished, first_inputs, initial_state)`."""

    @abstractmethod
    def step(self, time: Any, inputs: Any, state: Any, name: str | None = None) -> tuple[Any, Any, Any, Any]:
        """`(outputs, next_state, next_inputs, finished)` of the step `time`."""

    def finalize(self, outputs: Any, final_state: Any, sequence_lengths: Any) -> tuple[Any, Any]:
        """`(outputs, final_state)` once all steps are done; `outputs` are time-major. Here they stay as they are."""
        return outputs, final_state
