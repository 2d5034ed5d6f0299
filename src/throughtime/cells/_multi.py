"""Cells stacked on each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic

import torch
from torch import Tensor, nn

from throughtime import _pytree
from throughtime._errors import check_flag, problem, type_name
from throughtime.cells._base import (
    RNNCell,
    check_cell,
    check_rows,
    dims,
    initial_state,
    not_looking,
    zeros_of,
)
from throughtime.cells._cell_types import Cell, State, Wrapped_co
from throughtime.cells._copies import call_on_copies
from throughtime.cells._lazy_build import build_once, repeatable
from throughtime.cells._parameters import input_width
from throughtime.cells._step_call import StepCall
from throughtime.cells._wrappers import CellWrapper


class MultiRNNCell(StepCall, Generic[Wrapped_co]):
    """Cells stacked on each other: the output of each is the input of the next.

    The output is that of the top cell. The state is the tuple of the cells' states; with `state_is_tuple=False` the
    states are joined along the features, which needs cells whose state is one tensor. Each layer needs a cell of its
    own: the same object twice is the same weights twice.

    >>> import torch, throughtime as tt
    >>> cell = tt.MultiRNNCell([tt.LSTMCell(size) for size in [128, 256]])
    >>> outputs, state = tt.dynamic_rnn(cell, torch.randn(2, 3, 10), dtype=torch.float32)
    >>> outputs.shape, state[0].c.shape
    (torch.Size([2, 3, 256]), torch.Size([2, 128]))
    """

    def __init__(
        self, cells: Sequence[Wrapped_co] | nn.ModuleList, state_is_tuple: bool = True, *, input_size: int | None = None
    ) -> None:
        super().__init__()
        _check_list(cells)
        self.state_is_tuple = check_flag("state_is_tuple", state_is_tuple)
        self._cells = _check_cells(cells, self.state_is_tuple)
        for index, cell in enumerate(self._cells):
            if isinstance(cell, nn.Module):
                self.add_module(f"cell_{index}", cell)
        if input_size is not None:
            self.build(input_size)

    @property
    def cells(self) -> list[Any]:
        """The cells, bottom first."""
        # Looked up by name so that copies and replaced submodules are seen.
        return [getattr(self, f"cell_{index}", cell) for index, cell in enumerate(self._cells)]

    @property
    def state_size(self) -> Any:
        """The sizes of the cells' states, or their sum."""
        sizes = tuple(cell.state_size for cell in self.cells)
        return sizes if self.state_is_tuple else sum(sizes)

    @property
    def output_size(self) -> Any:
        """The output size of the top cell."""
        return self.cells[-1].output_size

    @zeros_of(lambda stack: stack.cells)
    def zero_state(self, batch_size: int, dtype: torch.dtype, device: Any = None) -> Any:
        """The zero states of the cells."""
        if not self.state_is_tuple:
            return super().zero_state(batch_size, dtype, device)
        if device is None:
            return tuple(initial_state(cell, batch_size, dtype) for cell in self.cells)
        return tuple(cell.zero_state(batch_size, dtype, device=device) for cell in self.cells)

    def _features_of(self, inputs: Any) -> Tensor | None:
        first = self.cells[0]
        return first._features_of(inputs) if isinstance(first, RNNCell) else super()._features_of(inputs)

    @repeatable
    def build(self, inputs_shape: Any, *, dtype: torch.dtype | None = None, device: Any = None) -> None:
        """Build every cell for the width it will see."""
        self._check_shared_widths(input_width(inputs_shape))
        for cell in self.cells:
            if isinstance(cell, RNNCell):
                build_once(cell, inputs_shape, dtype, device)
            if _pytree.is_nest(cell.output_size):
                return
            inputs_shape = (None, *dims(cell.output_size))

    @not_looking
    def check_values(self, inputs: Any) -> None:
        """What fits the cell at the bottom fits."""
        if isinstance(self.cells[0], RNNCell):
            self.cells[0].check_values(inputs)

    def check_step(self, inputs: Any, state: Any) -> None:
        """The inputs fit the cell at the bottom, and what each cell gives fits the one above it."""
        if isinstance(inputs, Tensor):
            self._check_shared_widths(inputs.shape[-1])
        for cell, cell_state in zip(self.cells, self._open_state(state), strict=True):
            if isinstance(cell, RNNCell):
                cell.check_step(inputs, cell_state)
            if _pytree.is_nest(cell.output_size) or not isinstance(inputs, Tensor):
                return
            # Zeros that take no memory stand for the output, of which only the shape is known yet.
            dtype = _pytree.floating_dtype(cell_state) or inputs.dtype
            inputs = inputs.new_zeros((), dtype=dtype).expand(inputs.shape[0], *dims(cell.output_size))

    def forward(self: MultiRNNCell[Cell[State]], inputs: Any, state: Any) -> tuple[Any, tuple[State, ...]]:
        """`inputs` [B, I] and the joined or tupled states -> the top output and the next states."""
        if isinstance(inputs, Tensor):
            self._check_shared_widths(inputs.shape[-1])
        next_states = []
        for cell, cell_state in zip(self.cells, self._open_state(state), strict=True):
            inputs, next_state = call_on_copies(cell, inputs, cell_state)
            next_states.append(next_state)
        # Typed as by default: with `state_is_tuple=False` it is one tensor.
        joined: Any = tuple(next_states) if self.state_is_tuple else torch.cat(next_states, 1)
        return inputs, joined

    def _open_state(self, state: Any) -> Any:
        if not self.state_is_tuple:
            check_rows("state", state, self.state_size)
            return state.split([cell.state_size for cell in self.cells], 1)
        if not _pytree.is_nest(state) or isinstance(state, dict) or len(state) != len(self.cells):
            raise ValueError(
                problem(
                    f"Expected state to be a tuple of length {len(self.cells)}",
                    got=_pytree.describe(state) if _pytree.is_nest(state) else type_name(state),
                    expected=f"one state for each of the {len(self.cells)} cells",
                    fix="Make it with `cell.zero_state(batch_size, dtype)`.",
                )
            )
        return state

    def _check_shared_widths(self, width: Any) -> None:
        """One cell object in two layers can only work if both layers see inputs of the same width."""
        first_use: dict[int, tuple[int, Any]] = {}
        for layer, cell in enumerate(self.cells):
            first, first_width = first_use.setdefault(id(_innermost(cell)), (layer, width))
            if first_width != width:
                raise ValueError(_shared_cell_message(self.cells, first, first_width, layer, width))
            width = _width(cell.output_size)


def _width(size: Any) -> Any:
    """The features of a row of this size: what a kernel meets."""
    return size[-1] if isinstance(size, torch.Size) and size else size


def _innermost(cell: Any) -> Any:
    """The cell inside wrappers that hand their inputs on as they are."""
    return _innermost(cell.cell) if isinstance(cell, CellWrapper) else cell


def _shared_cell_message(cells: list[Any], first: int, first_width: Any, layer: int, width: Any) -> str:
    shared = _innermost(cells[layer])
    own = ", ".join(_written(cell) for cell in cells) if len(set(map(_written, cells))) > 1 else None
    each = own or f"{_written(cells[layer])} for _ in range({len(cells)})"
    return problem(
        f"Dimensions must be equal: cells {first} and {layer} of the MultiRNNCell are the same "
        f"{type(shared).__name__} object, so they share one kernel, but see inputs of different widths",
        got=f"widths {first_width} and {width}",
        expected="one cell object for each layer",
        fix=f"Write `MultiRNNCell([{each}])`, which makes a cell for each layer; `[cell] * {len(cells)}` repeats one.",
    )


def _written(cell: Any) -> str:
    """How a cell like this one is made, near enough to show the idea."""
    if isinstance(cell, CellWrapper):
        return f"{type(cell).__name__}({_written(cell.cell)}, ...)"
    return f"{type(cell).__name__}({getattr(cell, 'num_units', '...')})"


def _check_list(cells: Any) -> None:
    if not isinstance(cells, list | tuple | nn.ModuleList):
        raise TypeError(
            problem(
                "`cells` must be a list or a tuple",
                got=type_name(cells),
                expected="a list of cells",
                fix="Write `MultiRNNCell([LSTMCell(8), LSTMCell(8)])`.",
            )
        )
    if not len(cells):
        raise ValueError(
            problem(
                "`cells` is empty",
                got="no cell",
                expected="at least one cell",
                fix="Write `MultiRNNCell([LSTMCell(8), LSTMCell(8)])`.",
            )
        )


def _check_cells(cells: Any, state_is_tuple: bool) -> list[Any]:
    for index, cell in enumerate(cells):
        check_cell(f"cells[{index}]", cell)
        if not state_is_tuple and not isinstance(cell.state_size, int):
            raise ValueError(
                problem(
                    f"`state_is_tuple=False` cannot join the state of cells[{index}]",
                    got=f"state_size {cell.state_size}",
                    expected="an int",
                    fix="Use `state_is_tuple=True`, or cells made with `state_is_tuple=False`.",
                )
            )
    return list(cells)
