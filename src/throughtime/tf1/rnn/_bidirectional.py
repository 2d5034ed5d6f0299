"""Both directions: the backward unroll is the same node, from the ends of sequences to their starts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from throughtime.tf1._namespace import exported
from throughtime.tf1.graph._graph import create_op
from throughtime.tf1.graph._operation import Tensor
from throughtime.tf1.graph._variable_scope import variable_scope
from throughtime.tf1.rnn._cell import check_cell
from throughtime.tf1.rnn._dynamic import dynamic_rnn, unrolled


def joined(tensors: Sequence[Tensor], axis: int) -> Tensor:
    """Tensors side by side."""
    return create_op("ConcatV2", lambda *parts: torch.cat(parts, axis), list(tensors), name="concat").outputs[0]


@exported("nn.bidirectional_dynamic_rnn", "python.ops.rnn.bidirectional_dynamic_rnn")
def bidirectional_dynamic_rnn(
    cell_fw: Any,
    cell_bw: Any,
    inputs: Any,
    sequence_length: Any = None,
    initial_state_fw: Any = None,
    initial_state_bw: Any = None,
    dtype: Any = None,
    parallel_iterations: int | None = None,
    swap_memory: bool = False,
    time_major: bool = False,
    scope: Any = None,
) -> tuple[Any, Any]:
    """`((outputs_fw, outputs_bw), (state_fw, state_bw))`."""
    check_cell(cell_fw, "cell_fw")
    check_cell(cell_bw, "cell_bw")
    del parallel_iterations, swap_memory
    with variable_scope(scope or "bidirectional_rnn"):
        with variable_scope("fw") as fw_scope:
            forward, state_fw = dynamic_rnn(
                cell_fw, inputs, sequence_length, initial_state_fw, dtype, time_major=time_major, scope=fw_scope
            )
        with variable_scope("bw"):
            back, state_bw = unrolled(
                cell_bw, inputs, sequence_length, initial_state_bw, dtype, time_major=time_major, reverse=True
            )
    return (forward, back), (state_fw, state_bw)


def _check_layers(cells_fw: Any, cells_bw: Any, states_fw: Any, states_bw: Any) -> None:
    for name, cells in (("cells_fw", cells_fw), ("cells_bw", cells_bw)):
        if not isinstance(cells, list) or not cells:
            raise ValueError(f"{name} must be a list of RNNCells (one per layer), got {cells!r}.")
    if len(cells_fw) != len(cells_bw):
        raise ValueError("Forward and Backward cells must have the same depth.")
    for name, states in (("initial_states_fw", states_fw), ("initial_states_bw", states_bw)):
        if states is not None and (not isinstance(states, list | tuple) or len(states) != len(cells_fw)):
            raise ValueError(f"{name} must be a list of state tensors (one per layer).")


@exported("contrib.rnn.stack_bidirectional_dynamic_rnn")
def stack_bidirectional_dynamic_rnn(
    cells_fw: Any,
    cells_bw: Any,
    inputs: Any,
    initial_states_fw: Any = None,
    initial_states_bw: Any = None,
    dtype: Any = None,
    sequence_length: Any = None,
    parallel_iterations: int | None = None,
    time_major: bool = False,
    scope: Any = None,
    swap_memory: bool = False,
) -> tuple[Any, Any, Any]:
    """Layers in both directions, each on the joined outputs of the one below."""
    del parallel_iterations, swap_memory
    _check_layers(cells_fw, cells_bw, initial_states_fw, initial_states_bw)
    states_fw, states_bw, current = [], [], inputs
    with variable_scope(scope or "stack_bidirectional_rnn"):
        for place, (fw, bw) in enumerate(zip(cells_fw, cells_bw, strict=True)):
            with variable_scope(f"cell_{place}"):
                outputs, (state_fw, state_bw) = bidirectional_dynamic_rnn(
                    fw,
                    bw,
                    current,
                    sequence_length,
                    initial_states_fw[place] if initial_states_fw else None,
                    initial_states_bw[place] if initial_states_bw else None,
                    dtype,
                    time_major=time_major,
                )
                current = joined(outputs, 2)
            states_fw.append(state_fw)
            states_bw.append(state_bw)
    return current, tuple(states_fw), tuple(states_bw)


@exported("contrib.rnn.stack_bidirectional_rnn")
def stack_bidirectional_rnn(
    cells_fw: Any,
    cells_bw: Any,
    inputs: Any,
    initial_states_fw: Any = None,
    initial_states_bw: Any = None,
    dtype: Any = None,
    sequence_length: Any = None,
    scope: Any = None,
) -> tuple[Any, Any, Any]:
    """The same over a list of inputs."""
    from throughtime.tf1.rnn._static import static_bidirectional_rnn  # noqa: PLC0415

    _check_layers(cells_fw, cells_bw, initial_states_fw, initial_states_bw)
    states_fw, states_bw, current = [], [], inputs
    with variable_scope(scope or "stack_bidirectional_rnn"):
        for place, (fw, bw) in enumerate(zip(cells_fw, cells_bw, strict=True)):
            with variable_scope(f"cell_{place}") as cell_scope:
                current, state_fw, state_bw = static_bidirectional_rnn(
                    fw,
                    bw,
                    current,
                    initial_states_fw[place] if initial_states_fw else None,
                    initial_states_bw[place] if initial_states_bw else None,
                    dtype,
                    sequence_length,
                    cell_scope,
                )
            states_fw.append(state_fw)
            states_bw.append(state_bw)
    return current, tuple(states_fw), tuple(states_bw)
