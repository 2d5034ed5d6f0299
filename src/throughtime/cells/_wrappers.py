"""Cells around a cell: residual connections, devices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic

import torch
from torch import Tensor, nn

from throughtime import _pytree
from throughtime._errors import check_callable, check_device, problem, shape_of
from throughtime.cells._base import RNNCell, check_cell, initial_state, not_looking, zeros_of
from throughtime.cells._cell_types import Cell, State, Wrapped_co
from throughtime.cells._copies import call_on_copies
from throughtime.cells._lazy_build import build_once, repeatable
from throughtime.cells._step_call import StepCall


class Wrapping:
    """What every wrapper takes from the cell inside: its sizes and its zero state."""

    cell: Any

    @property
    def wrapped_cell(self) -> Any:
        """The cell inside."""
        return self.cell

    @property
    def state_size(self) -> Any:
        """The state size of the cell inside."""
        return self.cell.state_size

    @property
    def output_size(self) -> Any:
        """The output size of the cell inside."""
        return self.cell.output_size

    @zeros_of(lambda wrapper: [wrapper.cell])
    def zero_state(self, batch_size: int, dtype: torch.dtype, device: Any = None) -> Any:
        """The zero state of the cell inside."""
        if device is None:
            return initial_state(self.cell, batch_size, dtype)
        return self.cell.zero_state(batch_size, dtype, device=device)


class CellWrapper(Wrapping, StepCall, Generic[Wrapped_co]):
    """A wrapper without parameters of its own."""

    def __init__(self, cell: Wrapped_co) -> None:
        super().__init__()
        check_cell("cell", cell)
        self.cell = cell

    def _features_of(self, inputs: Any) -> Tensor | None:
        return self.cell._features_of(inputs) if isinstance(self.cell, RNNCell) else super()._features_of(inputs)

    def check_step(self, inputs: Any, state: Any) -> None:
        """What fits the cell inside fits."""
        if isinstance(self.cell, RNNCell):
            self.cell.check_step(inputs, state)

    @not_looking
    def check_values(self, inputs: Any) -> None:
        """What fits the cell inside fits."""
        if isinstance(self.cell, RNNCell):
            self.cell.check_values(inputs)

    @repeatable
    def build(self, inputs_shape: Any, *, dtype: torch.dtype | None = None, device: Any = None) -> None:
        """Build the cell inside."""
        if isinstance(self.cell, RNNCell):
            build_once(self.cell, inputs_shape, dtype, device)


class ResidualWrapper(CellWrapper[Wrapped_co]):
    """Adds a cell's inputs to its outputs, or joins the two by `residual_fn(inputs, outputs)`.

    >>> import torch, throughtime as tt
    >>> cell = tt.ResidualWrapper(tt.BasicRNNCell(3))
    >>> outputs, state = tt.dynamic_rnn(cell, torch.ones(1, 2, 3), dtype=torch.float32)
    >>> torch.allclose(outputs[:, -1], 1 + state)
    True
    """

    def __init__(
        self, cell: Wrapped_co, residual_fn: Callable[[Any, Any], Any] | None = None, *, input_size: int | None = None
    ) -> None:
        super().__init__(cell)
        if residual_fn is not None:
            check_callable("residual_fn", residual_fn, expected="a function", fix="Pass residual_fn(inputs, outputs).")
        self.residual_fn = residual_fn
        if input_size is not None:
            self.build(input_size)

    def forward(self: ResidualWrapper[Cell[State]], inputs: Any, state: Any) -> tuple[Any, State]:
        """One step of the cell inside, with the inputs added to its output."""
        outputs, state = call_on_copies(self.cell, inputs, state)
        return (self.residual_fn or _add)(inputs, outputs), state


def _add(inputs: Any, outputs: Any) -> Any:
    inputs = _pytree.conform(outputs, inputs, "`inputs` of a ResidualWrapper")
    for one, other in zip(_pytree.flatten(inputs), _pytree.flatten(outputs), strict=True):
        if one.shape != other.shape:
            raise ValueError(
                problem(
                    "a ResidualWrapper needs inputs of the shape of the outputs",
                    got=shape_of(one),
                    expected=shape_of(other),
                    fix="Make the widths equal, or pass `residual_fn(inputs, outputs)`.",
                )
            )
    return _pytree.map_leaves(torch.add, inputs, outputs)


class DeviceWrapper(CellWrapper[Wrapped_co]):
    """Runs a cell on a device of its own: its parameters, state and outputs are there; inputs are brought over.

    >>> import torch, throughtime as tt
    >>> cell = tt.DeviceWrapper(tt.GRUCell(4), "cpu")
    >>> tt.dynamic_rnn(cell, torch.ones(1, 2, 3), dtype=torch.float32)[1].device
    device(type='cpu')
    """

    def __init__(self, cell: Wrapped_co, device: torch.device | str | int, *, input_size: int | None = None) -> None:
        super().__init__(cell)
        self.device = check_device("device", device)
        if isinstance(cell, nn.Module):
            cell.to(self.device)
        if input_size is not None:
            self.build(input_size)

    def zero_state(self, batch_size: int, dtype: torch.dtype, device: Any = None) -> Any:
        """The zero state of the cell inside, on the wrapper's device whatever is asked for."""
        # Not made where it is asked for first: there may be no such device here.
        return self._bring(super().zero_state(batch_size, dtype))

    @repeatable
    def build(self, inputs_shape: Any, *, dtype: torch.dtype | None = None, device: Any = None) -> None:
        """Build the cell inside, on the wrapper's device."""
        super().build(inputs_shape, dtype=dtype, device=self.device)

    def check_step(self, inputs: Any, state: Any) -> None:
        """What fits the cell inside fits, once it is brought over."""
        super().check_step(self._bring(inputs), self._bring(state))

    def forward(self: DeviceWrapper[Cell[State]], inputs: Any, state: Any) -> tuple[Any, State]:
        """One step of the cell inside, on its device."""
        output, state = call_on_copies(self.cell, self._bring(inputs), self._bring(state))
        return output, state

    def _bring(self, tree: Any) -> Any:
        """Tensors moved to the device; what is no tensor stays."""
        return _pytree.map_leaves(lambda x: x.to(self.device) if isinstance(x, Tensor) else x, tree)
