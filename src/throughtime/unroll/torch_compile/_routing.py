"""`dynamic_rnn` under torch.compile: the call becomes one operator."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from throughtime import _pytree
from throughtime._errors import check_flag, problem
from throughtime._pytree import Nest
from throughtime._torch_internals import constant_in_graphs, is_exporting
from throughtime.cells._base import RNNCell, check_cell, find_cell
from throughtime.runtime.offload.transfers import is_apart
from throughtime.unroll._arguments import (
    Lengths,
    check_checkpoint_every,
    check_output_dtype,
    check_parallel_iterations,
    check_state,
    lengths_at_hand,
    note_scope,
)
from throughtime.unroll._options import UnrollOptions
from throughtime.unroll.torch_compile._custom_op import OPERATOR
from throughtime.unroll.torch_compile._export import unroll_exported


def uses_custom_op(
    cell: Any, inputs: Nest, sequence_length: Lengths, swap_memory: bool, checkpoint_every: int | None = None
) -> bool:
    """Whether torch.compile traces, and the call can be one node of its graph: a `tt.RNNCell` on padded inputs.

    Also under torch.export, for which the steps are unrolled. Other calls are traced step by step, on the reference.
    """
    return (
        torch.compiler.is_compiling()
        and (isinstance(cell, RNNCell) or is_exporting())
        and all(not isinstance(size, torch.Size) or len(size) for size in _pytree.flatten(cell.state_size))
        and _is_plain(inputs)
        and not _saves_memory(inputs, sequence_length, swap_memory, checkpoint_every)
    )


def _saves_memory(inputs: Nest, sequence_length: Lengths, swap_memory: bool, checkpoint_every: int | None) -> bool:
    """Whether an option that saves memory applies, which an operator does not support; raises if nothing does."""
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


def _is_plain(inputs: Nest) -> bool:
    """Whether inputs are padded tensors in tuples, lists and dicts: an operator gets their structure as a string."""
    if isinstance(inputs, Tensor):
        return not inputs.is_nested
    return type(inputs) in (tuple, list, dict) and all(_is_plain(part) for part in _pytree.children(inputs))


@constant_in_graphs
def _note_scope(number: int, scope: str) -> bool:
    """Not traced by torch.compile, which would compile a cell again after its name has changed."""
    note_scope(find_cell(number), scope)
    return True


def unroll_as_operator(
    cell: RNNCell,
    inputs: Nest,
    sequence_length: Lengths,
    initial_state: Nest,
    options: UnrollOptions,
    scope: str,
    name: str = "initial_state",
) -> tuple[Nest, ...]:
    """What `dynamic_rnn` returns, for options that are not checked yet; `name` is that of the initial state."""
    check_cell("cell", cell)
    parallel_iterations = check_parallel_iterations(options.parallel_iterations)
    time_major = check_flag("time_major", options.time_major)
    all_states = check_flag("all_states", options.all_states)
    lengths = sequence_length
    if lengths is not None and not isinstance(lengths, Tensor):
        lengths = torch.tensor(lengths)
    if is_exporting():
        return unroll_exported(cell, inputs, lengths, initial_state, options)
    _note_scope(cell.number, scope)
    # Both passes read the lengths.
    lengths = lengths_at_hand(lengths)
    leaves = _pytree.flatten(inputs)
    device = leaves[0].device
    batch = leaves[0].shape[1 if time_major else 0]
    state = check_state(cell, initial_state, batch, options.dtype, device, name)
    state_leaves = [leaf.to(device) for leaf in _pytree.flatten(state)]
    checked = UnrollOptions(
        check_output_dtype(options.dtype, state), time_major, options.reverse, all_states, parallel_iterations
    )
    named = dict([*cell.named_parameters(), *cell.named_buffers()])
    results = call_operator(cell.number, named, inputs, state_leaves, lengths, checked)
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
    inputs: Nest,
    state: list[Tensor],
    lengths: Tensor | None,
    options: UnrollOptions,
) -> list[Tensor]:
    """The unroll of the cell with this number, from the leaves of a state; `named` are the tensors of the cell."""
    leaves, tensors = _pytree.flatten(inputs), list(named.values())
    device = leaves[0].device
    # torch.compile cannot see whether inference mode is active.
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
        options.dtype,
        torch.get_autocast_dtype(device.type) if torch.is_autocast_enabled(device.type) else None,
        options.time_major,
        options.reverse,
        options.all_states,
        options.parallel_iterations,
        train,
    )
    return results
