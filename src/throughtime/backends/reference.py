"""The reference: a plain loop that calls the cell at every step. Every other backend is compared with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from throughtime import _pytree
from throughtime._pytree import Nest
from throughtime._tensors import rowwise
from throughtime.backends.checked_cell import CheckedCell, Step, is_row_leaf, is_unbuilt
from throughtime.backends.gradient_checkpoint import recomputed
from throughtime.layout.time_chunks import first_steps, spans


class ReferenceLoop(NamedTuple):
    """The results of a loop: the output of each step, the state after each step if it was required, the last state."""

    outputs: list[Nest]
    states: list[Nest]
    state: Nest


def run(
    step: CheckedCell,
    inputs: Sequence[Nest],
    active: Sequence[int],
    state: Nest,
    *,
    keep_states: bool = False,
    checkpoint_every: int | None = None,
) -> ReferenceLoop:
    """Run `step` over time on rows sorted by length, longest first.

    Step t takes `inputs[t]` with its first `active[t]` rows alive. Rows that have ended leave the loop: they are
    neither computed nor stored, and their state is stored until the end.
    """
    outputs: list[Nest] = []
    states: list[Nest] = []
    ended: list[list[Any] | None] = []
    for first, last in spans(inputs, first_steps(active, most_steps=checkpoint_every)):
        # A first call that makes parameters draws random numbers, which a recomputation would not: it saves everything.
        saves_all = checkpoint_every is None or is_unbuilt(step.cell)
        run_chunk = _run if saves_all else recomputed(_run, step.cell)
        part, left = run_chunk(step, inputs[first:last], active[first:last], state, keep_states)
        outputs += part.outputs
        states += part.states
        ended += left
        state = part.state
    return ReferenceLoop(outputs, states, _rejoin(state, ended))


def _run(
    step: CheckedCell, inputs: Sequence[Nest], active: Sequence[int], state: Nest, keep_states: bool
) -> tuple[ReferenceLoop, list[list[Any] | None]]:
    """The loop itself; also returns the states of the rows that have ended."""
    outputs, states, ended = [], [], []
    alive = -1
    call: Step = step
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


def _split_rows(state: Nest, rows: int) -> tuple[Nest, list[Any] | None]:
    """The first `rows` rows of a state, and the rest; what has no rows belongs to the first part."""
    leaves = _pytree.flatten(state)
    if all(leaf.shape[0] == rows for leaf in leaves if is_row_leaf(leaf)):
        return state, None
    alive = [leaf[:rows] if is_row_leaf(leaf) else leaf for leaf in leaves]
    left = [leaf[rows:] if is_row_leaf(leaf) else leaf for leaf in leaves]
    return _pytree.pack_as(state, alive), left


def _rejoin(state: Nest, ended: list[list[Any] | None]) -> Nest:
    """The rows that ran to the end, followed by those that ended before: the last to end comes first."""
    parts = [left for left in reversed(ended) if left is not None]
    if not parts:
        return state
    leaves = [
        torch.cat([leaf, *(left[index] for left in parts)]) if is_row_leaf(leaf) else leaf
        for index, leaf in enumerate(_pytree.flatten(state))
    ]
    return _pytree.pack_as(state, leaves)


def run_masked(step: Step, inputs: Sequence[Nest], finished: Sequence[torch.Tensor], state: Nest) -> ReferenceLoop:
    """The same for a state without rows, such as a TensorArray: all rows run; the state of ended rows does not change.

    `finished[t]` [B] says which rows have ended before step t. Their inputs must be zeros, so that nothing in the
    padding can reach a gradient; their outputs are undefined.
    """
    outputs = []
    for step_inputs, ended in zip(inputs, finished, strict=True):
        output, new_state = step(step_inputs, state)
        outputs.append(output)
        state = select(ended, state, new_state)
    return ReferenceLoop(outputs, [], state)


def select(ended: torch.Tensor, old: Nest, new: Nest) -> Nest:
    """For each row `old` (None for zeros) if it has ended, else `new`; a leaf without rows is always `new`."""

    def choose(new_leaf: Any, old_leaf: Any) -> Any:
        if not is_row_leaf(new_leaf):
            return new_leaf
        unchanged = torch.zeros_like(new_leaf) if old_leaf is None else old_leaf
        return torch.where(rowwise(ended, new_leaf), unchanged, new_leaf)

    return _pytree.map_leaves(choose, new, _pytree.map_leaves(lambda _: None, new) if old is None else old)
