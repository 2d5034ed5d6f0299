"""What a helper is: it says where the inputs of the next step come from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from throughtime._errors import check_callable, check_dtype
from throughtime.decode._integer_arguments import row_shape


class Helper(ABC):
    """Samples from the outputs of a step, and chooses the inputs of the next; for `BasicDecoder`.

    A helper of your own defines all five below, or gives functions to `CustomHelper`.

    >>> import throughtime as tt
    >>> issubclass(tt.decode.TrainingHelper, tt.decode.Helper)
    True
    """

    @property
    @abstractmethod
    def batch_size(self) -> int:
        """B, the number of rows."""

    @property
    @abstractmethod
    def sample_ids_shape(self) -> torch.Size:
        """The shape of a row of samples: `torch.Size([])` for one token."""

    @property
    @abstractmethod
    def sample_ids_dtype(self) -> torch.dtype:
        """The dtype of samples."""

    @abstractmethod
    def initialize(self, name: str | None = None) -> tuple[Tensor, Any]:
        """`(finished, first_inputs)`."""

    @abstractmethod
    def sample(self, time: Any, outputs: Any, state: Any, name: str | None = None) -> Tensor:
        """Samples [B, ...] from the outputs of the step `time`."""

    @abstractmethod
    def next_inputs(
        self, time: Any, outputs: Any, state: Any, sample_ids: Tensor, name: str | None = None
    ) -> tuple[Tensor, Any, Any]:
        """`(finished, next_inputs, next_state)` after the step `time`."""


class CustomHelper(Helper):
    """A helper made of functions, called by keyword as in TensorFlow.

    Args:
        initialize_fn: `() -> (finished, first_inputs)`.
        sample_fn: `(time, outputs, state) -> sample_ids`.
        next_inputs_fn: `(time, outputs, state, sample_ids) -> (finished, next_inputs, next_state)`.
        sample_ids_shape: The shape of a row of samples; one token if None.
        sample_ids_dtype: The dtype of samples; `torch.int64` if None.

    >>> import torch, throughtime as tt
    >>> helper = tt.decode.CustomHelper(
    ...     initialize_fn=lambda: (torch.tensor([False]), torch.ones(1, 2)),
    ...     sample_fn=lambda time, outputs, state: outputs.argmax(-1),
    ...     next_inputs_fn=lambda time, outputs, state, sample_ids: (time >= 2, outputs, state),
    ... )
    >>> helper.batch_size
    1
    """

    def __init__(
        self,
        initialize_fn: Callable[[], Any],
        sample_fn: Callable[..., Any],
        next_inputs_fn: Callable[..., Any],
        sample_ids_shape: Any = None,
        sample_ids_dtype: torch.dtype | None = None,
    ) -> None:
        functions = {"initialize_fn": initialize_fn, "sample_fn": sample_fn, "next_inputs_fn": next_inputs_fn}
        for name, function in functions.items():
            check_callable(name, function, expected="a function", fix=f"Pass {name}=function.")
        self._initialize_fn, self._sample_fn, self._next_inputs_fn = initialize_fn, sample_fn, next_inputs_fn
        self._shape = row_shape("sample_ids_shape", [] if sample_ids_shape is None else sample_ids_shape)
        self._dtype = torch.int64 if sample_ids_dtype is None else check_dtype("sample_ids_dtype", sample_ids_dtype)
        self._batch_size: int | None = None

    @property
    def batch_size(self) -> int:
        """B, as many as the first inputs have rows."""
        if self._batch_size is None:
            self.initialize()
        assert self._batch_size is not None
        return self._batch_size

    @property
    def sample_ids_shape(self) -> torch.Size:
        """As it was given."""
        return self._shape

    @property
    def sample_ids_dtype(self) -> torch.dtype:
        """As it was given."""
        return self._dtype

    def initialize(self, name: str | None = None) -> tuple[Tensor, Any]:
        """What `initialize_fn` says."""
        finished, inputs = self._initialize_fn()
        self._batch_size = len(finished)
        return finished, inputs

    def sample(self, time: Any, outputs: Any, state: Any, name: str | None = None) -> Tensor:
        """What `sample_fn` says."""
        sampled: Tensor = self._sample_fn(time=time, outputs=outputs, state=state)
        return sampled

    def next_inputs(
        self, time: Any, outputs: Any, state: Any, sample_ids: Tensor, name: str | None = None
    ) -> tuple[Tensor, Any, Any]:
        """What `next_inputs_fn` says."""
        finished, inputs, state = self._next_inputs_fn(time=time, outputs=outputs, state=state, sample_ids=sample_ids)
        return finished, inputs, state
