"""`explain`: what the engine would do, without doing it."""

from __future__ import annotations

import copy
from typing import Any

import torch

from throughtime import _pytree
from throughtime._errors import check_flag
from throughtime._pytree import Nest
from throughtime._text import plural
from throughtime.backends.checked_cell import CheckedCell
from throughtime.cells._base import build_for, check_cell, is_lazy_cell
from throughtime.runtime.explanation import Explanation, explain_choice, swapped_memory
from throughtime.runtime.select import choose
from throughtime.unroll._arguments import Lengths, check_lengths, check_output_dtype, check_state
from throughtime.unroll._batch_format import BatchFormat, open_inputs
from throughtime.unroll._engine import blank_step, check_fits
from throughtime.unroll._schedule import make_schedule


def explain(
    cell: Any,
    inputs: Nest,
    sequence_length: Lengths = None,
    initial_state: Nest = None,
    dtype: torch.dtype | None = None,
    time_major: bool = False,
    *,
    all_states: bool = False,
    swap_memory: bool = False,
) -> Explanation:
    """What `tt.dynamic_rnn` with these arguments would do: what leaves the loop, what stays in it, on which backend.

    Nothing runs, and a cell that is not built yet stays so. `str(plan)` describes it; `plan.backend` is the name of
    the backend, `plan.reasons` says why it is not a faster one, `plan.source` is the generated kernel, `plan.memory`
    says what waits on the host with `swap_memory`.

    >>> import torch, throughtime as tt
    >>> plan = tt.explain(tt.LSTMCell(8), torch.randn(2, 5, 3))
    >>> plan.backend
    'cpu'
    >>> print(str(plan).splitlines()[0])
    LSTMCell over 2 sequences of 5 steps
    """
    check_cell("cell", cell)
    check_flag("time_major", time_major)
    check_flag("all_states", all_states)
    check_flag("swap_memory", swap_memory)
    form, inputs = open_inputs(inputs, time_major)
    lengths = check_lengths(sequence_length, form.batch_size) if form.lengths is None else form.lengths
    blank = blank_step(form, inputs)
    if dtype is None and initial_state is None:
        dtype = _pytree.floating_dtype(blank) or torch.get_default_dtype()
    state = check_state(cell, initial_state, form.batch_size, dtype, _pytree.flatten(blank)[0].device)
    check_fits(cell, form, inputs, state)
    if is_lazy_cell(cell):
        with torch.random.fork_rng():
            cell = copy.deepcopy(cell)
            build_for(cell, blank, state)
    schedule = make_schedule(form, lengths, in_chunks=swap_memory)
    rows = [schedule.rows(leaf) for leaf in _pytree.flatten(inputs)]
    choice = choose(
        CheckedCell(cell, state, check_output_dtype(dtype, state)), inputs, rows, state, keep_states=all_states
    )
    memory = swapped_memory(choice, schedule.steps, rows[0].device) if swap_memory else ""
    return explain_choice(choice, _title(cell, form, schedule.active), memory)


def _title(cell: Any, form: BatchFormat, active: list[int]) -> str:
    real, padded = sum(active), form.batch_size * form.max_time
    title = f"{type(cell).__name__} over {plural(form.batch_size, 'sequence')} of {plural(form.max_time, 'step')}"
    return title if real == padded else f"{title}, {real:,} of {padded:,} of them real"
