"""`static_rnn` and its kin: lists of inputs, one for each step, through the same node as `dynamic_rnn`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from throughtime import _pytree
from throughtime.tf1._namespace import exported
from throughtime.tf1.graph._graph import create_op
from throughtime.tf1.graph._operation import Tensor
from throughtime.tf1.graph._variable_scope import variable_scope
from throughtime.tf1.ops._convert import convert_to_tensor
from throughtime.tf1.rnn._bidirectional import joined
from throughtime.tf1.rnn._cell import check_cell
from throughtime.tf1.rnn._dynamic import unrolled


@exported("nn.static_rnn", "contrib.rnn.static_rnn", "nn.rnn", "python.ops.rnn.static_rnn", "python.ops.rnn.rnn")
def static_rnn(
    cell: Any, inputs: Any, initial_state: Any = None, dtype: Any = None, sequence_length: Any = None, scope: Any = None
) -> tuple[list[Any], Any]:
    """The outputs of `cell` over a list of inputs, and its final state."""
    check_cell(cell)
    _check_inputs(inputs)
    with variable_scope(scope or "rnn"):
        return static_unrolled(cell, inputs, initial_state, dtype, sequence_length)


def _check_inputs(inputs: Any) -> None:
    if not isinstance(inputs, list | tuple):
        raise TypeError("inputs must be a sequence; use tf.unstack(x, axis=1), or tf.nn.dynamic_rnn")
    if not inputs:
        raise ValueError("inputs must not be empty")


def static_unrolled(
    cell: Any, inputs: Any, initial_state: Any, dtype: Any, sequence_length: Any, reverse: bool = False
) -> tuple[list[Any], Any]:
    """The unroll of a list of inputs, in the open variable scope."""
    stacked = _stacked(inputs)
    outputs, state = unrolled(cell, stacked, sequence_length, initial_state, dtype, time_major=True, reverse=reverse)
    leaves = [_unstacked(leaf, len(inputs)) for leaf in _pytree.flatten(outputs)]
    return [_pytree.pack_as(outputs, parts) for parts in zip(*leaves, strict=True)], state


def _stacked(inputs: Sequence[Any]) -> Any:
    flat = [[convert_to_tensor(leaf) for leaf in _pytree.flatten(one)] for one in inputs]
    leaves = [
        create_op("Pack", lambda *parts: torch.stack(parts), list(steps), name="stack").outputs[0]
        for steps in zip(*flat, strict=True)
    ]
    return _pytree.pack_as(inputs[0], leaves) if _pytree.is_nest(inputs[0]) else leaves[0]


def _unstacked(tensor: Tensor, count: int) -> list[Tensor]:
    shape = tensor.shape[1:]
    op = create_op(
        "Unpack",
        lambda value: value.unbind(0),
        [tensor],
        name="unstack",
        dtypes=[tensor.dtype] * count,
        shapes=[shape] * count,
        attrs={"tuple": True},
    )
    return op.outputs


@exported("nn.static_state_saving_rnn", "contrib.rnn.static_state_saving_rnn", "nn.state_saving_rnn")
def static_state_saving_rnn(
    cell: Any, inputs: Any, state_saver: Any, state_name: Any, sequence_length: Any = None, scope: Any = None
) -> tuple[list[Any], Any]:
    """`static_rnn` from a state that `state_saver` holds, which gets the final one."""
    sizes, names = _pytree.flatten(cell.state_size), _pytree.flatten(state_name)
    if len(sizes) != len(names):
        raise ValueError(f"state_name should be the same length as state_size: got {len(names)}, expected {len(sizes)}")
    initial = _pytree.pack_as(cell.state_size, [state_saver.state(name) for name in names])
    outputs, state = static_rnn(cell, inputs, initial, sequence_length=sequence_length, scope=scope)
    saves = [state_saver.save_state(name, leaf) for name, leaf in zip(names, _pytree.flatten(state), strict=True)]
    from throughtime.tf1.graph._scopes import control_dependencies  # noqa: PLC0415

    with control_dependencies(saves):
        last = create_op("Identity", lambda value: value, [outputs[-1]]).outputs[0]
    return [*outputs[:-1], last], state


@exported(
    "nn.static_bidirectional_rnn",
    "contrib.rnn.static_bidirectional_rnn",
    "nn.bidirectional_rnn",
    "python.ops.rnn.static_bidirectional_rnn",
)
def static_bidirectional_rnn(
    cell_fw: Any,
    cell_bw: Any,
    inputs: Any,
    initial_state_fw: Any = None,
    initial_state_bw: Any = None,
    dtype: Any = None,
    sequence_length: Any = None,
    scope: Any = None,
) -> tuple[list[Any], Any, Any]:
    """Both directions over a list of inputs: joined outputs, and the final state of each."""
    check_cell(cell_fw, "cell_fw")
    check_cell(cell_bw, "cell_bw")
    _check_inputs(inputs)
    with variable_scope(scope or "bidirectional_rnn"):
        with variable_scope("fw"):
            forward, state_fw = static_unrolled(cell_fw, inputs, initial_state_fw, dtype, sequence_length)
        with variable_scope("bw"):
            back, state_bw = static_unrolled(cell_bw, inputs, initial_state_bw, dtype, sequence_length, reverse=True)
    outputs = [
        _pytree.map_leaves(lambda one, two: joined([one, two], 1), *pair) for pair in zip(forward, back, strict=True)
    ]
    return outputs, state_fw, state_bw
