"""Two cells over the same sequences: one from the start, one from the end."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, overload

import torch
from torch import Tensor

from throughtime import _pytree
from throughtime._errors import check_flag, check_name, problem
from throughtime._pytree import Nest
from throughtime.cells._base import check_cell, dims
from throughtime.cells._cell_types import BackwardState, Cell, CellLike, Sequences, State
from throughtime.unroll._arguments import Lengths, check_parallel_iterations, lengths_at_hand, note_scope
from throughtime.unroll._batch_format import open_inputs
from throughtime.unroll._dynamic import plan_dynamic
from throughtime.unroll._options import UnrollOptions
from throughtime.unroll._static import open_steps, plan_static, split_steps
from throughtime.unroll.torch_compile._routing import unroll_as_operator, uses_custom_op


@overload
def bidirectional_dynamic_rnn(
    cell_fw: Cell[State],
    cell_bw: Cell[BackwardState],
    inputs: Sequences,
    sequence_length: Lengths = None,
    initial_state_fw: Nest = None,
    initial_state_bw: Nest = None,
    dtype: torch.dtype | None = None,
    parallel_iterations: int | None = None,
    swap_memory: bool = False,
    time_major: bool = False,
    scope: str | None = None,
) -> tuple[tuple[Sequences, Sequences], tuple[State, BackwardState]]: ...
@overload
def bidirectional_dynamic_rnn(
    cell_fw: Cell[State],
    cell_bw: Cell[BackwardState],
    inputs: Nest,
    sequence_length: Lengths = None,
    initial_state_fw: Nest = None,
    initial_state_bw: Nest = None,
    dtype: torch.dtype | None = None,
    parallel_iterations: int | None = None,
    swap_memory: bool = False,
    time_major: bool = False,
    scope: str | None = None,
) -> tuple[tuple[Nest, Nest], tuple[State, BackwardState]]: ...
@overload
def bidirectional_dynamic_rnn(
    cell_fw: Any,
    cell_bw: Any,
    inputs: Nest,
    sequence_length: Lengths = None,
    initial_state_fw: Nest = None,
    initial_state_bw: Nest = None,
    dtype: torch.dtype | None = None,
    parallel_iterations: int | None = None,
    swap_memory: bool = False,
    time_major: bool = False,
    scope: str | None = None,
) -> tuple[tuple[Nest, Nest], tuple[Nest, Nest]]: ...
def bidirectional_dynamic_rnn(  # noqa: PLR0913 (TensorFlow's signature)
    cell_fw: Any,
    cell_bw: Any,
    inputs: Nest,
    sequence_length: Lengths = None,
    initial_state_fw: Nest = None,
    initial_state_bw: Nest = None,
    dtype: torch.dtype | None = None,
    parallel_iterations: int | None = None,
    swap_memory: bool = False,
    time_major: bool = False,
    scope: str | None = None,
) -> tuple[tuple[Nest, Nest], tuple[Nest, Nest]]:
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
    if all(uses_custom_op(cell, inputs, sequence_length, swap_memory) for cell in (cell_fw, cell_bw)):
        scope = check_name("scope", scope) or "bidirectional_rnn"
        outputs, states = [], []
        for cell, initial, way in ((cell_fw, initial_state_fw, "fw"), (cell_bw, initial_state_bw, "bw")):
            options = UnrollOptions(dtype, time_major, way == "bw", parallel_iterations=parallel_iterations)
            name = f"initial_state_{way}"
            result = unroll_as_operator(cell, inputs, sequence_length, initial, options, f"{scope}/{way}", name)
            outputs.append(result[0])
            states.append(result[1])
        return (outputs[0], outputs[1]), (states[0], states[1])
    parallel_iterations = check_parallel_iterations(parallel_iterations)
    check_cell("cell_fw", cell_fw)
    check_cell("cell_bw", cell_bw)
    scope = check_name("scope", scope) or "bidirectional_rnn"
    check_flag("swap_memory", swap_memory)
    check_flag("time_major", time_major)
    form, inputs = open_inputs(inputs, time_major)
    check_dtype_known(dtype, initial_state_fw, initial_state_bw)
    sequence_length = lengths_at_hand(sequence_length)
    options = UnrollOptions(dtype, time_major, parallel_iterations=parallel_iterations, swap_memory=swap_memory)
    plan = partial(plan_dynamic, form=form, inputs=inputs, sequence_length=sequence_length)
    # Both are checked before one of them runs.
    plans = [
        plan(cell_fw, initial_state=initial_state_fw, options=options, name="initial_state_fw"),
        plan(cell_bw, initial_state=initial_state_bw, options=replace(options, reverse=True), name="initial_state_bw"),
    ]
    forward, backward = (run() for run in plans)
    _note_scopes(cell_fw, cell_bw, scope)
    return (forward.outputs, backward.outputs), (forward.state, backward.state)


@overload
def static_bidirectional_rnn(
    cell_fw: Cell[State],
    cell_bw: Cell[BackwardState],
    inputs: Nest,
    initial_state_fw: Nest = None,
    initial_state_bw: Nest = None,
    dtype: torch.dtype | None = None,
    sequence_length: Lengths = None,
    scope: str | None = None,
) -> tuple[list[Tensor], State, BackwardState]: ...
@overload
def static_bidirectional_rnn(
    cell_fw: Any,
    cell_bw: Any,
    inputs: Nest,
    initial_state_fw: Nest = None,
    initial_state_bw: Nest = None,
    dtype: torch.dtype | None = None,
    sequence_length: Lengths = None,
    scope: str | None = None,
) -> tuple[list[Nest], Nest, Nest]: ...
def static_bidirectional_rnn(
    cell_fw: Any,
    cell_bw: Any,
    inputs: Nest,
    initial_state_fw: Nest = None,
    initial_state_bw: Nest = None,
    dtype: torch.dtype | None = None,
    sequence_length: Lengths = None,
    scope: str | None = None,
) -> tuple[list[Nest], Nest, Nest]:
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
    check_dtype_known(dtype, initial_state_fw, initial_state_bw)
    check_joinable(cell_fw, cell_bw)
    sequence_length = lengths_at_hand(sequence_length)
    plans = [
        plan_static(
            cell,
            form,
            sequences,
            sequence_length,
            initial,
            UnrollOptions(dtype, reverse=way == "bw"),
            f"initial_state_{way}",
        )
        for cell, initial, way in ((cell_fw, initial_state_fw, "fw"), (cell_bw, initial_state_bw, "bw"))
    ]
    forward, backward = (run() for run in plans)
    _note_scopes(cell_fw, cell_bw, scope)
    joined = _pytree.map_leaves(lambda fw, bw: torch.cat([fw, bw], 2), forward.outputs, backward.outputs)
    return split_steps(joined), forward.state, backward.state


def check_dtype_known(dtype: torch.dtype | None, *initial_states: Nest) -> None:
    if dtype is None and any(state is None for state in initial_states):
        raise ValueError(
            problem(
                "If no `initial_state_fw` or `initial_state_bw` is provided, `dtype` must be specified",
                got="dtype=None",
                expected="a dtype, or both initial states",
                fix="Pass `dtype=torch.float32`.",
            )
        )


def _note_scopes(cell_fw: CellLike, cell_bw: CellLike, scope: str) -> None:
    note_scope(cell_fw, f"{scope}/fw")
    note_scope(cell_bw, f"{scope}/bw")


def check_joinable(cell_fw: CellLike, cell_bw: CellLike) -> None:
    """Raise unless the outputs of both directions can be concatenated: shapes may differ in the first features only."""
    sizes_fw, sizes_bw = cell_fw.output_size, cell_bw.output_size
    try:
        sizes_bw = _pytree.conform(sizes_fw, sizes_bw, "output_size")
        joinable = _pytree.flatten(_pytree.map_leaves(_may_join, sizes_fw, sizes_bw))
    except (TypeError, ValueError):
        joinable = [False]
    if not all(joinable):
        what = "`cell_fw` and `cell_bw` have outputs that cannot be joined"
        got, fix = f"{sizes_fw} and {sizes_bw}", "Use tt.bidirectional_dynamic_rnn, which keeps them apart."
        raise ValueError(problem(what, got=got, expected="the same structure and rank", fix=fix))


def _may_join(size_fw: Nest, size_bw: Nest) -> bool:
    rows_fw, rows_bw = dims(size_fw), dims(size_bw)
    return len(rows_fw) > 0 and len(rows_fw) == len(rows_bw) and rows_fw[1:] == rows_bw[1:]
