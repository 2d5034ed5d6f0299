"""Two cells over the same sequences: one from the start, one from the end."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from throughtime import _nest
from throughtime._errors import check_flag, check_name, problem, type_name
from throughtime.cells._base import check_cell, dims
from throughtime.unroll._arguments import check_parallel_iterations, note_scope
from throughtime.unroll._dynamic import plan_dynamic
from throughtime.unroll._form import Form, open_inputs
from throughtime.unroll._static import open_steps, plan_static, split_steps


def bidirectional_dynamic_rnn(
    cell_fw: Any,
    cell_bw: Any,
    inputs: Any,
    sequence_length: Any = None,
    initial_state_fw: Any = None,
    initial_state_bw: Any = None,
    dtype: torch.dtype | None = None,
    parallel_iterations: int | None = None,
    swap_memory: bool = False,
    time_major: bool = False,
    scope: str | None = None,
) -> tuple[tuple[Any, Any], tuple[Any, Any]]:
    """Run one cell forwards and one backwards: `((outputs_fw, outputs_bw), (state_fw, state_bw))`.

    The backward cell starts at the end of each sequence, not of the padding, and its outputs stand at the steps they
    belong to. The arguments are those of `dynamic_rnn`; join the outputs with `torch.cat(outputs, -1)`.

    >>> import torch, throughtime as tt
    >>> x = torch.randn(2, 3, 4)
    >>> outputs, states = tt.bidirectional_dynamic_rnn(
    ...     tt.GRUCell(5), tt.GRUCell(5), x, sequence_length=[3, 1], dtype=torch.float32)
    >>> torch.cat(outputs, -1).shape, torch.equal(outputs[1][:, 0], states[1])
    (torch.Size([2, 3, 10]), True)
    """
    check_parallel_iterations(parallel_iterations)
    check_cell("cell_fw", cell_fw)
    check_cell("cell_bw", cell_bw)
    scope = check_name("scope", scope) or "bidirectional_rnn"
    check_flag("swap_memory", swap_memory)
    check_flag("time_major", time_major)
    form, inputs = open_inputs(inputs, time_major)
    _check_dtype_known(dtype, initial_state_fw, initial_state_bw)
    plans = [
        plan_dynamic(
            cell,
            form,
            inputs,
            sequence_length,
            initial,
            dtype,
            name=f"initial_state_{way}",
            reverse=way == "bw",
            swap_memory=swap_memory,
        )
        for cell, initial, way in ((cell_fw, initial_state_fw, "fw"), (cell_bw, initial_state_bw, "bw"))
    ]
    forward, backward = (run() for run in plans)
    _note_scopes(cell_fw, cell_bw, scope)
    return (forward.outputs, backward.outputs), (forward.state, backward.state)


def static_bidirectional_rnn(
    cell_fw: Any,
    cell_bw: Any,
    inputs: Any,
    initial_state_fw: Any = None,
    initial_state_bw: Any = None,
    dtype: torch.dtype | None = None,
    sequence_length: Any = None,
    scope: str | None = None,
) -> tuple[list[Any], Any, Any]:
    """The same over a list of steps: a list of joined outputs [B, 2H], the forward state, the backward state.

    >>> import torch, throughtime as tt
    >>> outputs, state_fw, state_bw = tt.static_bidirectional_rnn(
    ...     tt.GRUCell(5), tt.GRUCell(5), [torch.ones(2, 4)] * 3, dtype=torch.float32)
    >>> len(outputs), outputs[0].shape
    (3, torch.Size([2, 10]))
    """
    check_cell("cell_fw", cell_fw)
    check_cell("cell_bw", cell_bw)
    scope = check_name("scope", scope) or "bidirectional_rnn"
    form, sequences = open_steps(inputs)
    _check_dtype_known(dtype, initial_state_fw, initial_state_bw)
    _check_joinable(cell_fw, cell_bw)
    plans = [
        plan_static(
            cell,
            form,
            sequences,
            sequence_length,
            initial,
            dtype,
            name=f"initial_state_{way}",
            reverse=way == "bw",
        )
        for cell, initial, way in ((cell_fw, initial_state_fw, "fw"), (cell_bw, initial_state_bw, "bw"))
    ]
    forward, backward = (run() for run in plans)
    _note_scopes(cell_fw, cell_bw, scope)
    joined = _nest.map_leaves(lambda fw, bw: torch.cat([fw, bw], 2), forward.outputs, backward.outputs)
    return split_steps(joined), forward.state, backward.state


def stack_bidirectional_dynamic_rnn(
    cells_fw: list[Any],
    cells_bw: list[Any],
    inputs: Any,
    initial_states_fw: list[Any] | None = None,
    initial_states_bw: list[Any] | None = None,
    dtype: torch.dtype | None = None,
    sequence_length: Any = None,
    parallel_iterations: int | None = None,
    time_major: bool = False,
    scope: str | None = None,
    swap_memory: bool = False,
) -> tuple[Any, tuple[Any, ...], tuple[Any, ...]]:
    """Layers of bidirectional networks, each fed the joined outputs below: `(outputs, states_fw, states_bw)`.

    >>> import torch, throughtime as tt
    >>> cells = lambda: [tt.GRUCell(5), tt.GRUCell(6)]
    >>> outputs, states_fw, states_bw = tt.stack_bidirectional_dynamic_rnn(
    ...     cells(), cells(), torch.ones(2, 3, 4), dtype=torch.float32)
    >>> outputs.shape, len(states_fw)
    (torch.Size([2, 3, 12]), 2)
    """
    scope = check_name("scope", scope) or "stack_bidirectional_rnn"
    layers = _check_layers(cells_fw, cells_bw, initial_states_fw, initial_states_bw)
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
        form, _ = open_inputs(inputs, time_major)
        inputs = _nest.map_leaves(lambda fw, bw, form=form: _join(form, fw, bw), *outputs)
        states_fw.append(state_fw)
        states_bw.append(state_bw)
    return inputs, tuple(states_fw), tuple(states_bw)


def stack_bidirectional_rnn(
    cells_fw: list[Any],
    cells_bw: list[Any],
    inputs: Any,
    initial_states_fw: list[Any] | None = None,
    initial_states_bw: list[Any] | None = None,
    dtype: torch.dtype | None = None,
    sequence_length: Any = None,
    scope: str | None = None,
) -> tuple[list[Any], tuple[Any, ...], tuple[Any, ...]]:
    """The same over a list of steps: a list of outputs, the forward states, the backward states.

    >>> import torch, throughtime as tt
    >>> outputs, states_fw, _ = tt.stack_bidirectional_rnn(
    ...     [tt.GRUCell(5)], [tt.GRUCell(5)], [torch.ones(2, 4)] * 3, dtype=torch.float32)
    >>> len(outputs), outputs[0].shape
    (3, torch.Size([2, 10]))
    """
    scope = check_name("scope", scope) or "stack_bidirectional_rnn"
    layers = _check_layers(cells_fw, cells_bw, initial_states_fw, initial_states_bw)
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


def _join(form: Form, forward: Any, backward: Any) -> Any:
    """The outputs of both directions side by side, in the form they have."""
    # Axis 1 of the rows is axis 2 of the sequences: the first feature axis, as in TensorFlow.
    return form.restore(torch.cat([form.rows(forward), form.rows(backward)], 1))


def _check_dtype_known(dtype: torch.dtype | None, *initial_states: Any) -> None:
    if dtype is None and any(state is None for state in initial_states):
        raise ValueError(
            problem(
                "If no `initial_state_fw` or `initial_state_bw` is provided, `dtype` must be specified",
                got="dtype=None",
                expected="a dtype, or both initial states",
                fix="Pass `dtype=torch.float32`.",
            )
        )


def _note_scopes(cell_fw: Any, cell_bw: Any, scope: str) -> None:
    note_scope(cell_fw, f"{scope}/fw")
    note_scope(cell_bw, f"{scope}/bw")


def _check_joinable(cell_fw: Any, cell_bw: Any) -> None:
    """The outputs of both directions can be put side by side: same structure, same shape beyond the first features."""
    sizes_fw, sizes_bw = cell_fw.output_size, cell_bw.output_size
    leaves = list(zip(_nest.flatten(sizes_fw), _nest.flatten(sizes_bw), strict=False))
    fits = all(
        len(dims(fw)) > 0 and len(dims(fw)) == len(dims(bw)) and dims(fw)[1:] == dims(bw)[1:] for fw, bw in leaves
    )
    if _nest.describe(sizes_fw) != _nest.describe(sizes_bw) or not fits:
        what = "`cell_fw` and `cell_bw` have outputs that cannot be joined"
        got, fix = f"{sizes_fw} and {sizes_bw}", "Use tt.bidirectional_dynamic_rnn, which keeps them apart."
        raise ValueError(problem(what, got=got, expected="the same structure and rank", fix=fix))


def _check_layers(cells_fw: Any, cells_bw: Any, states_fw: Any, states_bw: Any) -> list[tuple[Any, Any, Any, Any]]:
    """One (cell_fw, cell_bw, state_fw, state_bw) for each layer."""
    for name, cells in (("cells_fw", cells_fw), ("cells_bw", cells_bw)):
        if not isinstance(cells, list | nn.ModuleList) or not len(cells):
            what = f"`{name}` must be a list of cells, one per layer"
            fix = f"Write `{name}=[LSTMCell(8), LSTMCell(8)]`."
            got = "an empty list" if isinstance(cells, list | nn.ModuleList) else type_name(cells)
            raise ValueError(problem(what, got=got, expected="a list with at least one cell", fix=fix))
        for index, cell in enumerate(cells):
            check_cell(f"{name}[{index}]", cell)
    if len(cells_fw) != len(cells_bw):
        what = "`cells_fw` and `cells_bw` must have the same length"
        got, fix = f"{len(cells_fw)} and {len(cells_bw)}", "Add the missing cells."
        raise ValueError(problem(what, got=got, expected="one forward and one backward cell per layer", fix=fix))
    for cell_fw, cell_bw in zip(cells_fw, cells_bw, strict=True):
        _check_joinable(cell_fw, cell_bw)
    states = [
        _check_layer_states(name, given, cells)
        for name, given, cells in (
            ("initial_states_fw", states_fw, cells_fw),
            ("initial_states_bw", states_bw, cells_bw),
        )
    ]
    return list(zip(cells_fw, cells_bw, *states, strict=True))


def _check_layer_states(name: str, states: Any, cells: Any) -> list[Any]:
    """One state (or None) for each layer, in the structure of its cell's."""
    if states is None:
        return [None] * len(cells)
    if not isinstance(states, list) or len(states) != len(cells):
        what, fix = f"`{name}` must be a list of states, one per layer", "Give one state (or None) for each layer."
        got = f"a list of {len(states)}" if isinstance(states, list) else type_name(states)
        raise ValueError(problem(what, got=got, expected=f"a list of {len(cells)} states", fix=fix))
    for index, (state, cell) in enumerate(zip(states, cells, strict=True)):
        if state is not None:
            _nest.check_nested(cell.state_size, state, f"`{name}[{index}]`")
            _nest.conform(cell.state_size, state, f"`{name}[{index}]`")
    return states
