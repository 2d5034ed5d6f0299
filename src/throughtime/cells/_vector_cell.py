"""What cells over vectors have in common: one tensor in, vectors as state, checked at the door."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

import torch
from torch import Tensor

from throughtime import _pytree
from throughtime._errors import check_positive_int
from throughtime.cells._base import check_rows
from throughtime.cells._lstm import LSTMStateTuple
from throughtime.cells._parameters import LazyCell, check_inputs, check_state_fits


class VectorsCell(LazyCell):
    """A cell with inputs [B, I] whose state is a vector, or a nest of vectors.

    A subclass names in `input_kernel` the parameter that the inputs meet first, [I + recurrent_rows, ...].
    """

    input_kernel = "kernel"
    recurrent_rows = 0

    def __init__(self, num_units: int, name: str | None, dtype: torch.dtype | None, reuse: bool | None) -> None:
        super().__init__(name, dtype, reuse)
        self.num_units = check_positive_int("num_units", num_units, minimum=0)
        self.state_size = self.output_size = self.num_units

    def extra_repr(self) -> str:
        """The size, as it was given, and that of the inputs once it is known."""
        return ", ".join(filter(None, [str(self.num_units), self.shown_input_size()]))

    def build_if_known(self, input_size: int | None) -> None:
        """Make the parameters at once, if the constructor was told for which inputs."""
        if input_size is not None:
            self.build(input_size)

    def check_step(self, inputs: Any, state: Any) -> None:
        """The inputs fit the kernel, and the state the inputs: same batch, same dtype, vectors of the right sizes."""
        check_inputs(inputs, self._met_first(), self.recurrent_rows)
        self._open_state(inputs, state)

    def _met_first(self) -> Tensor:
        # By attribute: parametrised and functional modules hold plain tensors.
        kernel: Tensor = attrgetter(self.input_kernel)(self)
        return kernel

    def _open_state(self, inputs: Tensor, state: Any) -> Any:
        """`state` in the structure of `state_size`, every vector checked against `inputs`."""
        if not _pytree.is_nest(self.state_size):
            self._check_vector("state", state, self.state_size, inputs)
            return state
        if type(state) is not type(self.state_size):
            _pytree.check_nested(self.state_size, state, "`state`")
        state = _pytree.conform(self.state_size, state, "`state`")
        names = getattr(self.state_size, "_fields", range(len(self.state_size)))
        for name, part, size in zip(names, _pytree.children(state), _pytree.children(self.state_size), strict=True):
            self._check_vector(f"state.{name}", part, size, inputs)
        return state

    @staticmethod
    def _check_vector(name: str, vector: Any, size: int, inputs: Tensor) -> None:
        check_rows(name, vector, size, inputs.shape[0])
        check_state_fits(inputs, vector)


class MemoryCell(VectorsCell):
    """A cell whose state is `LSTMStateTuple(c, h)`: memory [B, H] and output [B, P], where P is `num_proj` or H."""

    def __init__(
        self,
        num_units: int,
        name: str | None,
        dtype: torch.dtype | None,
        reuse: bool | None,
        num_proj: int | None = None,
    ) -> None:
        super().__init__(num_units, name, dtype, reuse)
        self.num_proj = None if num_proj is None else check_positive_int("num_proj", num_proj)
        self.output_size = self.num_units if self.num_proj is None else self.num_proj
        self.state_size = LSTMStateTuple(self.num_units, self.output_size)
