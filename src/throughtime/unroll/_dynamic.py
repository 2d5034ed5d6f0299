"""`dynamic_rnn`: a cell over whole sequences."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Literal, overload

import torch
from torch import Tensor

from throughtime import _pytree
from throughtime._errors import check_flag, check_name, problem
from throughtime._pytree import Nest
from throughtime.cells._base import check_cell
from throughtime.cells._cell_types import Cell, CellLike, Sequences, State
from throughtime.unroll._arguments import (
    Lengths,
    check_checkpoint_every,
    check_dtypes_agree,
    check_lengths,
    check_output_dtype,
    check_parallel_iterations,
    check_state,
    note_scope,
)
from throughtime.unroll._batch_format import BatchFormat, open_inputs
from throughtime.unroll._call_cache import CachedCall, call_key, insert, is_cacheable, run_cached
from throughtime.unroll._engine import Unrolled, check_fits, unroll
from throughtime.unroll._jit_trace import check_not_traced
from throughtime.unroll._options import UnrollOptions
from throughtime.unroll.torch_compile._routing import unroll_as_operator, uses_custom_op


@overload
def dynamic_rnn(
    cell: Cell[State],
    inputs: Sequences,
    sequence_length: Lengths = None,
    initial_state: Nest = None,
    dtype: torch.dtype | None = None,
    parallel_iterations: int | None = None,
    swap_memory: bool = False,
    time_major: bool = False,
    scope: str | None = None,
    *,
    all_states: Literal[False] = False,
    checkpoint_every: int | None = None,
) -> tuple[Sequences, State]: ...
@overload
def dynamic_rnn(
    cell: Cell[State],
    inputs: Tensor,
    sequence_length: Lengths = None,
    initial_state: Nest = None,
    dtype: torch.dtype | None = None,
    parallel_iterations: int | None = None,
    swap_memory: bool = False,
    time_major: bool = False,
    scope: str | None = None,
    *,
    all_states: Literal[True],
    checkpoint_every: int | None = None,
) -> tuple[Tensor, State, State]: ...
@overload
def dynamic_rnn(
    cell: Cell[State],
    inputs: Nest,
    sequence_length: Lengths = None,
    initial_state: Nest = None,
    dtype: torch.dtype | None = None,
    parallel_iterations: int | None = None,
    swap_memory: bool = False,
    time_major: bool = False,
    scope: str | None = None,
    *,
    all_states: Literal[False] = False,
    checkpoint_every: int | None = None,
) -> tuple[Nest, State]: ...
@overload
def dynamic_rnn(
    cell: Any,
    inputs: Nest,
    sequence_length: Lengths = None,
    initial_state: Nest = None,
    dtype: torch.dtype | None = None,
    parallel_iterations: int | None = None,
    swap_memory: bool = False,
    time_major: bool = False,
    scope: str | None = None,
    *,
    all_states: bool = False,
    checkpoint_every: int | None = None,
) -> tuple[Nest, ...]: ...
def dynamic_rnn(  # noqa: PLR0913 (TensorFlow's signature)
    cell: Any,
    inputs: Nest,
    sequence_length: Lengths = None,
    initial_state: Nest = None,
    dtype: torch.dtype | None = None,
    parallel_iterations: int | None = None,
    swap_memory: bool = False,
    time_major: bool = False,
    scope: str | None = None,
    *,
    all_states: bool = False,
    checkpoint_every: int | None = None,
) -> tuple[Nest, ...]:
    """Run `cell` over sequences: `(outputs, state)`, or `(outputs, state, states)` with `all_states=True`.

    Past the end of a sequence its outputs are zeros and its state is copied through; those steps are not computed, and
    nothing in the padding, not even NaN, reaches an output or a gradient.

    Args:
        cell: A `tt.RNNCell`, or any callable with `state_size`, `output_size` and `zero_state`.
        inputs: [B, T, ...] ([T, B, ...] if `time_major`), a nest of such tensors, a `PackedSequence`, or a jagged
            `NestedTensor`. Outputs come in the same form.
        sequence_length: The length of each sequence [B], on any device; None means all T steps. Above T counts as T,
            below 0 as 0.
        initial_state: The state to start from, in the structure of `cell.state_size`; None is the cell's zero state.
        dtype: The dtype of the zero state and of the outputs. Required without `initial_state`, or if the dtypes of
            the state differ.
        parallel_iterations: The number of steps whose state-independent part is computed together, at most; fewer
            take less memory. None leaves it to the engine. The reference computes step by step: no change there.
        swap_memory: Keep what the backward pass needs in pinned host memory. On a CPU this changes nothing.
        time_major: Whether time is the first axis.
        scope: The name of the cell's variables in a TensorFlow checkpoint; "rnn" if None.
        all_states: Also return the state after every step, with a time axis like the outputs; past the end of a
            sequence that is its final state.
        checkpoint_every: Store the state only every `checkpoint_every` steps and recompute the rest in the backward
            pass.

    >>> import torch, throughtime as tt
    >>> x = torch.randn(4, 2, 3)
    >>> outputs, state = tt.dynamic_rnn(tt.BasicRNNCell(5), x, sequence_length=[2, 1, 2, 2], dtype=torch.float32)
    >>> outputs.shape, outputs[1, 1].tolist()
    (torch.Size([4, 2, 5]), [0.0, 0.0, 0.0, 0.0, 0.0])
    >>> torch.equal(state[1], outputs[1, 0])
    True
    """
    if uses_custom_op(cell, inputs, sequence_length, swap_memory, checkpoint_every):
        scope = check_name("scope", scope) or "rnn"
        traced = UnrollOptions(dtype, time_major, False, all_states, parallel_iterations)
        return unroll_as_operator(cell, inputs, sequence_length, initial_state, traced, scope)
    given = (dtype, parallel_iterations, swap_memory, time_major, scope, all_states, checkpoint_every)
    key = call_key(cell, inputs, initial_state, given)
    result = run_cached(key, cell, inputs, sequence_length, initial_state)
    if result is not None:
        if cell.variable_scope is None:
            note_scope(cell, scope or "rnn")
        return result[:3] if all_states else result[:2]
    check_cell("cell", cell)
    parallel_iterations = check_parallel_iterations(parallel_iterations)
    checkpoint_every = check_checkpoint_every(checkpoint_every)
    for name, flag in (("swap_memory", swap_memory), ("time_major", time_major), ("all_states", all_states)):
        check_flag(name, flag)
    scope = check_name("scope", scope) or "rnn"
    options = UnrollOptions(
        dtype=dtype,
        time_major=time_major,
        all_states=all_states,
        parallel_iterations=parallel_iterations,
        swap_memory=swap_memory,
        checkpoint_every=checkpoint_every,
    )
    form, inputs = open_inputs(inputs, time_major)
    result = plan_dynamic(cell, form, inputs, sequence_length, initial_state, options)()
    note_scope(cell, scope)
    if key is not None and is_cacheable(result):
        insert(key, CachedCall.of(cell, key, result, form, options, has_state=initial_state is not None))
    return result[:3] if all_states else result[:2]


def plan_dynamic(
    cell: CellLike,
    form: BatchFormat,
    inputs: Nest,
    sequence_length: Lengths,
    initial_state: Nest,
    options: UnrollOptions,
    name: str = "initial_state",
) -> Callable[[], Unrolled]:
    """Check the arguments of one cell and one direction; calling the result runs it. `name` is that of the state."""
    check_not_traced("an unroll", "its lengths and the number of its steps")
    if form.lengths is not None and sequence_length is not None:
        raise ValueError(
            problem(
                "`sequence_length` is given twice: these inputs know their lengths",
                got="sequence_length",
                expected="None",
                fix="Leave `sequence_length` out for packed and jagged inputs.",
            )
        )
    lengths = check_lengths(sequence_length, form.batch_size)
    device = form.rows(_pytree.flatten(inputs)[0]).device
    state = check_state(cell, initial_state, form.batch_size, options.dtype, device, name)
    dtype = check_output_dtype(options.dtype, state)
    check_dtypes_agree(dtype, state, _pytree.map_leaves(form.rows, inputs))
    check_fits(cell, form, inputs, state)
    return partial(unroll, cell, form, inputs, lengths, state, replace(options, dtype=dtype))
