"""The reference: the plain loop over the untouched cell. Everything else is compared with it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from throughtime import _pytree
from throughtime._tensors import rowwise
from throughtime.backends.checked_cell import CheckedCell, is_row_leaf, is_unbuilt
from throughtime.backends.gradient_checkpoint import recomputed


class ReferenceLoop(NamedTuple):
    """What a walk through time leaves: the output of each step, the state after each step if wanted, the last state."""

    outputs: list[Any]
    states: list[Any]
    state: Any


def run(
    step: CheckedCell,
    inputs: Sequence[Any],
    active: Sequence[int],
    state: Any,
    *,
    keep_states: bool = False,
    checkpoint_every: int | None = None,
) -> ReferenceLoop:
    """Walk `step` through time over rows sorted by length, longest first.

    Step t takes `inputs[t]` with its first `active[t]` rows alive. Rows that have ended leave the loop: they are
    neither computed nor stored, and their state is set aside until the end.
    """
    outputs: list[Any] = []
    states: list[Any] = []
    ended: list[Any] = []
    stride = checkpoint_every or max(1, len(inputs))
    walk = _run if checkpoint_every is None else recomputed(_run, step.cell)
    for start in range(0, len(inputs), stride):
        block = slice(start, start + stride)
        # Parameters still to be made draw random numbers that a second walk would not: that block is stored.
        walk_block = _run if walk is not _run and is_unbuilt(step.cell) else walk
        piece, left = walk_block(step, inputs[block], active[block], state, keep_states)
        outputs += piece.outputs
        states += piece.states
        ended += left
        state = piece.state
    return ReferenceLoop(outputs, states, _rejoin(state, ended))


def _run(
    step: CheckedCell, inputs: Sequence[Any], active: Sequence[int], state: Any, keep_states: bool
) -> tuple[ReferenceLoop, list[Any]]:
    """The loop itself; also returns the states of the rows that ended on the way."""
    outputs, states, ended = [], [], []
    alive = -1
    call: Callable[[Any, Any], tuple[Any, Any]] = step
    for step_inputs, rows in zip(inputs, active, strict=True):
        if rows != alive:
            state, left = _split_rows(state, rows)
            ended.append(left)
            alive, call = rows, step.for_rows(rows)
        output, state = call(step_inputs, state)
        outputs.append(output)
        if keep_states:
            states.append(state)
    return ReferenceLoop(outputs, states, state), ended


def _split_rows(state: Any, rows: int) -> tuple[Any, Any]:
    """The first `rows` rows of a state, and the rest; what has no rows belongs to the first part."""
    leaves = _pytree.flatten(state)
    if all(leaf.shape[0] == rows for leaf in leaves if is_row_leaf(leaf)):
        return state, None
    alive = [leaf[:rows] if is_row_leaf(leaf) else leaf for leaf in leaves]
    left = [leaf[rows:] if is_row_leaf(leaf) else leaf for leaf in leaves]
    return _pytree.pack_as(state, alive), left


def _rejoin(state: Any, ended: list[Any]) -> Any:
    """The rows that ended put back below those that ran to the end: the last to end lies highest."""
    pieces = [left for left in reversed(ended) if left is not None]
    if not pieces:
        return state
    leaves = [
        torch.cat([leaf, *(left[index] for left in pieces)]) if is_row_leaf(leaf) else leaf
        for index, leaf in enumerate(_pytree.flatten(state))
    ]
    return _pytree.pack_as(state, leaves)


def run_masked(
    step: Callable[[Any, Any], tuple[Any, Any]],
    inputs: Sequence[Any],
    finished: Sequence[torch.Tensor],
    state: Any,
) -> ReferenceLoop:
    """The same for states without rows to drop, such as a TensorArray: all rows run; those that ended keep their state.

    `finished[t]` [B] says which rows have ended before step t. Their inputs must be zeros, so that nothing in the
    padding can reach a gradient; their outputs mean nothing.
    """
    outputs = []
    for step_inputs, ended in zip(inputs, finished, strict=True):
        output, new_state = step(step_inputs, state)
        outputs.append(output)
        state = select(ended, state, new_state)
    return ReferenceLoop(outputs, [], state)


def select(ended: torch.Tensor, old: Any, new: Any) -> Any:
    """Row by row `old` (None for zeros) where a row has ended, else `new`; what has no rows is always `new`."""

    def choose(new_leaf: Any, old_leaf: Any) -> Any:
        if not is_row_leaf(new_leaf):
            return new_leaf
        kept = torch.zeros_like(new_leaf) if old_leaf is None else old_leaf
        return torch.where(rowwise(ended, new_leaf), kept, new_leaf)

    return _pytree.map_leaves(choose, new, _pytree.map_leaves(lambda _: None, new) if old is None else old)
