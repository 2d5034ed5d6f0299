"""`dynamic_rnn` while torch.compile looks on: the call becomes one operator."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from throughtime import _pytree
from throughtime._errors import check_flag, problem
from throughtime._torch_internals import constant_in_graphs, is_exporting
from throughtime.cells._base import RNNCell, cell_by_number, check_cell
from throughtime.runtime.offload.transfers import is_apart
from throughtime.unroll._arguments import (
    check_checkpoint_every,
    check_output_dtype,
    check_parallel_iterations,
    check_state,
    lengths_at_hand,
    note_scope,
)
from throughtime.unroll.torch_compile._custom_op import OPERATOR
from throughtime.unroll.torch_compile._export import unroll_exported


def uses_custom_op(
    cell: Any, inputs: Any, sequence_length: Any, swap_memory: bool, checkpoint_every: int | None = None
) -> bool:
    """Whether torch.compile is looking on and can see the call as one node: a `tt.RNNCell` on padded inputs.

    Or torch.export, for which it is written out. Other calls are traced step by step, on the reference.
    """
    return (
        torch.compiler.is_compiling()
        and (isinstance(cell, RNNCell) or is_exporting())
        and all(not isinstance(size, torch.Size) or len(size) for size in _pytree.flatten(cell.state_size))
        and _is_plain(inputs)
        and not _saves_memory(inputs, sequence_length, swap_memory, checkpoint_every)
    )


def _saves_memory(inputs: Any, sequence_length: Any, swap_memory: bool, checkpoint_every: int | None) -> bool:
    """Whether there is memory to be saved, which an operator cannot do: of calls step by step not all can."""
    swaps = check_flag("swap_memory", swap_memory) and is_apart(_pytree.flatten(inputs)[0].device)
    steps = check_checkpoint_every(checkpoint_every)
    if not torch.is_grad_enabled() or is_exporting() or not (swaps or steps is not None):
        return False
    what, fix = "torch.compile does not take this", "Leave it out, or the unroll out of what is compiled."
    if steps is not None:
        raise ValueError(problem(what, got=f"checkpoint_every={steps}", expected="None in training", fix=fix))
    if sequence_length is not None:
        raise ValueError(problem(what, got="swap_memory=True and `sequence_length`", expected="one of them", fix=fix))
    return True


def _is_plain(inputs: Any) -> bool:
    """Whether inputs are padded tensors in tuples, lists and dicts: an operator is told their structure in words."""
    if isinstance(inputs, Tensor):
        return not inputs.is_nested
    return type(inputs) in (tuple, list, dict) and all(_is_plain(part) for part in _pytree.children(inputs))


@constant_in_graphs
def _note_scope(number: int, scope: str) -> bool:
    """Behind the back of torch.compile: it would take a cell that has got a name for another, and compile that."""
    note_scope(cell_by_number(number), scope)
    return True


def unroll_as_operator(
    cell: RNNCell,
    inputs: Any,
    sequence_length: Any,
    initial_state: Any,
    dtype: torch.dtype | None,
    parallel_iterations: int | None,
    time_major: bool,
    scope: str,
    *,
    name: str = "initial_state",
    reverse: bool = False,
    all_states: bool = False,
) -> tuple[Any, ...]:
    """What `dynamic_rnn` returns; `name` is that of the initial state."""
    check_cell("cell", cell)
    parallel_iterations = check_parallel_iterations(parallel_iterations)
    check_flag("time_major", time_major)
    check_flag("all_states", all_states)
    lengths = sequence_length
    if lengths is not None and not isinstance(lengths, Tensor):
        lengths = torch.tensor(lengths)
    if is_exporting():
        return unroll_exported(
            cell, inputs, lengths, initial_state, dtype, time_major, reverse=reverse, all_states=all_states
        )
    _note_scope(cell.number, scope)
    # Both passes read them.
    lengths = lengths_at_hand(lengths)
    leaves = _pytree.flatten(inputs)
    device = leaves[0].device
    batch = leaves[0].shape[1 if time_major else 0]
    state = check_state(cell, initial_state, batch, dtype, device, name)
    state_leaves = [leaf.to(device) for leaf in _pytree.flatten(state)]
    output_dtype = check_output_dtype(dtype, state)
    named = dict([*cell.named_parameters(), *cell.named_buffers()])
    results = call_operator(
        cell.number,
        named,
        inputs,
        state_leaves,
        lengths,
        output_dtype,
        time_major=time_major,
        reverse=reverse,
        all_states=all_states,
        parallel_iterations=parallel_iterations,
    )
    count = len(_pytree.flatten(cell.output_size))
    states = len(state_leaves)
    outputs = _pytree.pack_as(cell.output_size, results[:count])
    if not all_states:
        return outputs, _pytree.pack_as(state, results[count : count + states])
    final = _pytree.pack_as(state, results[count + states : count + 2 * states])
    return outputs, final, _pytree.pack_as(state, results[count : count + states])


def call_operator(
    number: int,
    named: dict[str, Tensor],
    inputs: Any,
    state: list[Tensor],
    lengths: Tensor | None,
    dtype: torch.dtype,
    *,
    time_major: bool,
    reverse: bool = False,
    all_states: bool = False,
    parallel_iterations: int | None = None,
) -> list[Tensor]:
    """The unroll of the cell with this number, from the leaves of a state; `named` are the tensors that it has."""
    leaves, tensors = _pytree.flatten(inputs), list(named.values())
    device = leaves[0].device
    # Whether it is inference mode torch.compile cannot see.
    train = torch.is_grad_enabled() and any(leaf.requires_grad for leaf in [*tensors, *leaves, *state])
    results: list[Tensor] = OPERATOR(
        leaves[0],
        tensors,
        leaves,
        state,
        lengths,
        _pytree.describe(inputs),
        list(named),
        number,
        dtype,
        torch.get_autocast_dtype(device.type) if torch.is_autocast_enabled(device.type) else None,
        time_major,
        reverse,
        all_states,
        parallel_iterations,
        train,
    )
    return results
