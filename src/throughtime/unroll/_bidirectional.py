"""Two cells over the same sequences: one from the start, one from the end."""

from __future__ import annotations

from typing import Any

import torch

from throughtime import _nest
from throughtime._errors import problem, type_name
from throughtime.unroll._arguments import check_cell, check_parallel_iterations, check_scope
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
    scope = check_scope(scope) or "bidirectional_rnn"
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
            scope=f"{scope}/{way}",
            reverse=way == "bw",
            swap_memory=swap_memory,
        )
        for cell, initial, way in ((cell_fw, initial_state_fw, "fw"), (cell_bw, initial_state_bw, "bw"))
    ]
    forward, backward = (run() for run in plans)
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
    scope = check_scope(scope) or "bidirectional_rnn"
    form, sequences = open_steps(inputs)
    _check_dtype_known(dtype, initial_state_fw, initial_state_bw)
    plans = [
        plan_static(cell, form, sequences, sequence_length, initial, dtype, scope=f"{scope}/{way}", reverse=way == "bw")
        for cell, initial, way in ((cell_fw, initial_state_fw, "fw"), (cell_bw, initial_state_bw, "bw"))
    ]
    forward, backward = (run() for run in plans)
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
    scope = check_scope(scope) or "stack_bidirectional_rnn"
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
    scope = check_scope(scope) or "stack_bidirectional_rnn"
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


def _check_layers(cells_fw: Any, cells_bw: Any, states_fw: Any, states_bw: Any) -> list[tuple[Any, Any, Any, Any]]:
    """One (cell_fw, cell_bw, state_fw, state_bw) for each layer."""
    for name, cells in (("cells_fw", cells_fw), ("cells_bw", cells_bw)):
        if not isinstance(cells, list) or not cells:
            raise ValueError(
                problem(
                    f"`{name}` must be a list of cells, one per layer",
                    got=type_name(cells) if cells else repr(cells),
                    expected="a list with at least one cell",
                    fix=f"Write `{name}=[LSTMCell(8), LSTMCell(8)]`.",
                )
            )
    if len(cells_fw) != len(cells_bw):
        raise ValueError(
            problem(
                "`cells_fw` and `cells_bw` must have the same length",
                got=f"{len(cells_fw)} and {len(cells_bw)}",
                expected="one forward and one backward cell per layer",
                fix="Add the missing cells.",
            )
        )
    layers = [cells_fw, cells_bw]
    for name, states in (("initial_states_fw", states_fw), ("initial_states_bw", states_bw)):
        if states is not None and (not isinstance(states, list) or len(states) != len(cells_fw)):
            raise ValueError(
                problem(
                    f"`{name}` must be a list of states, one per layer",
                    got=f"{type_name(states)} of length {len(states)}"
                    if isinstance(states, list)
                    else type_name(states),
                    expected=f"a list of {len(cells_fw)} states",
                    fix="Give one state (or None) for each layer.",
                )
            )
        layers.append([None] * len(cells_fw) if states is None else states)
    return list(zip(*layers, strict=True))
