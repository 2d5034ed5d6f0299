"""Layers of bidirectional networks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, overload

import torch
from torch import Tensor, nn

from throughtime import _pytree
from throughtime._errors import check_flag, check_name, problem, type_name
from throughtime._pytree import Nest
from throughtime.cells._base import check_cell
from throughtime.cells._cell_types import BackwardState, Cell, CellLike, Sequences, State
from throughtime.unroll._arguments import Lengths, fit_state, lengths_at_hand
from throughtime.unroll._batch_format import BatchFormat, open_inputs
from throughtime.unroll._bidirectional import (
    bidirectional_dynamic_rnn,
    check_dtype_known,
    check_joinable,
    static_bidirectional_rnn,
)
from throughtime.unroll._static import open_steps


@overload
def stack_bidirectional_dynamic_rnn(
    cells_fw: Sequence[Cell[State]],
    cells_bw: Sequence[Cell[BackwardState]],
    inputs: Sequences,
    initial_states_fw: Sequence[Nest] | None = None,
    initial_states_bw: Sequence[Nest] | None = None,
    dtype: torch.dtype | None = None,
    sequence_length: Lengths = None,
    parallel_iterations: int | None = None,
    time_major: bool = False,
    scope: str | None = None,
    swap_memory: bool = False,
) -> tuple[Sequences, tuple[State, ...], tuple[BackwardState, ...]]: ...
@overload
def stack_bidirectional_dynamic_rnn(
    cells_fw: Sequence[Any],
    cells_bw: Sequence[Any],
    inputs: Nest,
    initial_states_fw: Sequence[Nest] | None = None,
    initial_states_bw: Sequence[Nest] | None = None,
    dtype: torch.dtype | None = None,
    sequence_length: Lengths = None,
    parallel_iterations: int | None = None,
    time_major: bool = False,
    scope: str | None = None,
    swap_memory: bool = False,
) -> tuple[Nest, tuple[Nest, ...], tuple[Nest, ...]]: ...
def stack_bidirectional_dynamic_rnn(  # noqa: PLR0913 (TensorFlow's signature)
    cells_fw: Sequence[Any],
    cells_bw: Sequence[Any],
    inputs: Nest,
    initial_states_fw: Sequence[Nest] | None = None,
    initial_states_bw: Sequence[Nest] | None = None,
    dtype: torch.dtype | None = None,
    sequence_length: Lengths = None,
    parallel_iterations: int | None = None,
    time_major: bool = False,
    scope: str | None = None,
    swap_memory: bool = False,
) -> tuple[Nest, tuple[Nest, ...], tuple[Nest, ...]]:
    """Layers of bidirectional networks, each fed the joined outputs below: `(outputs, states_fw, states_bw)`.

    >>> import torch, throughtime as tt
    >>> cells = lambda: [tt.GRUCell(5), tt.GRUCell(6)]
    >>> outputs, states_fw, states_bw = tt.stack_bidirectional_dynamic_rnn(
    ...     cells(), cells(), torch.ones(2, 3, 4), dtype=torch.float32)
    >>> outputs.shape, len(states_fw)
    (torch.Size([2, 3, 12]), 2)
    """
    scope = check_name("scope", scope) or "stack_bidirectional_rnn"
    form, inputs = open_inputs(inputs, check_flag("time_major", time_major))
    layers = _check_layers(form, inputs, dtype, (cells_fw, cells_bw), (initial_states_fw, initial_states_bw))
    sequence_length = lengths_at_hand(sequence_length)
    states_fw, states_bw = [], []
    for index, (cell_fw, cell_bw, initial_fw, initial_bw) in enumerate(layers):
        outputs, (state_fw, state_bw) = bidirectional_dynamic_rnn(
            cell_fw,
            cell_bw,
            inputs,
            sequence_length,
            initial_fw,
            initial_bw,
            dtype,
            parallel_iterations,
            swap_memory,
            time_major,
            f"{scope}/cell_{index}/bidirectional_rnn",
        )
        # Axis 1 of the rows is axis 2 of the sequences: the first feature axis, as in TensorFlow.
        inputs = _pytree.map_leaves(lambda fw, bw: form.restore(torch.cat([form.rows(fw), form.rows(bw)], 1)), *outputs)
        states_fw.append(state_fw)
        states_bw.append(state_bw)
    return inputs, tuple(states_fw), tuple(states_bw)


@overload
def stack_bidirectional_rnn(
    cells_fw: Sequence[Cell[State]],
    cells_bw: Sequence[Cell[BackwardState]],
    inputs: Nest,
    initial_states_fw: Sequence[Nest] | None = None,
    initial_states_bw: Sequence[Nest] | None = None,
    dtype: torch.dtype | None = None,
    sequence_length: Lengths = None,
    scope: str | None = None,
) -> tuple[list[Tensor], tuple[State, ...], tuple[BackwardState, ...]]: ...
@overload
def stack_bidirectional_rnn(
    cells_fw: Sequence[Any],
    cells_bw: Sequence[Any],
    inputs: Nest,
    initial_states_fw: Sequence[Nest] | None = None,
    initial_states_bw: Sequence[Nest] | None = None,
    dtype: torch.dtype | None = None,
    sequence_length: Lengths = None,
    scope: str | None = None,
) -> tuple[list[Nest], tuple[Nest, ...], tuple[Nest, ...]]: ...
def stack_bidirectional_rnn(
    cells_fw: Sequence[Any],
    cells_bw: Sequence[Any],
    inputs: Nest,
    initial_states_fw: Sequence[Nest] | None = None,
    initial_states_bw: Sequence[Nest] | None = None,
    dtype: torch.dtype | None = None,
    sequence_length: Lengths = None,
    scope: str | None = None,
) -> tuple[list[Nest], tuple[Nest, ...], tuple[Nest, ...]]:
    """The same over a list of steps: a list of outputs, the forward states, the backward states.

    >>> import torch, throughtime as tt
    >>> outputs, states_fw, _ = tt.stack_bidirectional_rnn(
    ...     [tt.GRUCell(5)], [tt.GRUCell(5)], [torch.ones(2, 4)] * 3, dtype=torch.float32)
    >>> len(outputs), outputs[0].shape
    (3, torch.Size([2, 10]))
    """
    scope = check_name("scope", scope) or "stack_bidirectional_rnn"
    form, sequences = open_steps(inputs)
    layers = _check_layers(form, sequences, dtype, (cells_fw, cells_bw), (initial_states_fw, initial_states_bw))
    sequence_length = lengths_at_hand(sequence_length)
    states_fw, states_bw = [], []
    for index, (cell_fw, cell_bw, initial_fw, initial_bw) in enumerate(layers):
        inputs, state_fw, state_bw = static_bidirectional_rnn(
            cell_fw,
            cell_bw,
            inputs,
            initial_fw,
            initial_bw,
            dtype,
            sequence_length,
            f"{scope}/cell_{index}/bidirectional_rnn",
        )
        states_fw.append(state_fw)
        states_bw.append(state_bw)
    return inputs, tuple(states_fw), tuple(states_bw)


def _check_layers(
    form: BatchFormat,
    inputs: Nest,
    dtype: torch.dtype | None,
    cells: tuple[Any, Any],
    initial_states: tuple[Nest, Nest],
) -> list[tuple[Any, Any, Any, Any]]:
    """One (cell_fw, cell_bw, state_fw, state_bw) for each layer, all checked before the first one runs."""
    for way, way_cells in zip(("fw", "bw"), cells, strict=True):
        _check_cells(f"cells_{way}", way_cells)
    cells_fw, cells_bw = cells
    if len(cells_fw) != len(cells_bw):
        what = "`cells_fw` and `cells_bw` must have the same length"
        got, fix = f"{len(cells_fw)} and {len(cells_bw)}", "Add the missing cells."
        raise ValueError(problem(what, got=got, expected="one forward and one backward cell per layer", fix=fix))
    for cell_fw, cell_bw in zip(cells_fw, cells_bw, strict=True):
        check_joinable(cell_fw, cell_bw)
    states = [
        _check_states(f"initial_states_{way}", form, inputs, given, way_cells)
        for way, given, way_cells in zip(("fw", "bw"), initial_states, cells, strict=True)
    ]
    check_dtype_known(dtype, *states[0], *states[1])
    return list(zip(cells_fw, cells_bw, *states, strict=True))


def _check_cells(name: str, cells: Any) -> None:
    if not isinstance(cells, list | nn.ModuleList) or not len(cells):
        what = f"`{name}` must be a list of cells, one per layer"
        fix = f"Write `{name}=[LSTMCell(8), LSTMCell(8)]`."
        got = "an empty list" if isinstance(cells, list | nn.ModuleList) else type_name(cells)
        raise ValueError(problem(what, got=got, expected="a list with at least one cell", fix=fix))
    for index, cell in enumerate(cells):
        check_cell(f"{name}[{index}]", cell)


def _check_states(name: str, form: BatchFormat, inputs: Nest, states: Nest, cells: Any) -> list[Nest]:
    """One state (or None) for each layer, in the structure of its cell's."""
    if states is None:
        return [None] * len(cells)
    if not isinstance(states, list) or len(states) != len(cells):
        what, fix = f"`{name}` must be a list of states, one per layer", "Give one state (or None) for each layer."
        got = f"a list of {len(states)}" if isinstance(states, list) else type_name(states)
        raise ValueError(problem(what, got=got, expected=f"a list of {len(cells)} states", fix=fix))
    device = form.rows(_pytree.flatten(inputs)[0]).device
    return [
        None if state is None else _check_state(f"`{name}[{index}]`", form, state, cell, device)
        for index, (state, cell) in enumerate(zip(states, cells, strict=True))
    ]


def _check_state(what: str, form: BatchFormat, state: Nest, cell: CellLike, device: torch.device) -> Nest:
    _pytree.check_nested(cell.state_size, state, what)
    return fit_state(cell.state_size, state, form.batch_size, device, what)
