"""Tracing: one step of a cell, and its gradient, written down as a step graph.

The step runs on a shadow of the cell with tensors that note every operation done with them. They answer questions
about shapes but not about values, so a cell that looks at its data is found out. The step is traced twice, for two
numbers of rows: what differs between the two is the number of rows, and must differ in nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from throughtime import _nest
from throughtime.compiler._merge import merge
from throughtime.compiler._record import record
from throughtime.compiler._traced import BATCHES, StepSignature, Trace
from throughtime.compiler._watch import Anatomy


def trace(
    cell: Any,
    anatomy: Anatomy,
    signature: StepSignature,
    call: Callable[[Any, Any, Any], tuple[Any, Any]],
    *,
    differentiate: bool,
    keep_states: bool,
) -> Trace:
    """Trace `call(cell, inputs, state) -> (outputs, state)`, a checked step, for any number of rows.

    With `keep_states` the new states are outputs as well, after those of the cell.
    """

    def step(stand_in: Any, inputs: Any, state: Any) -> tuple[list[Any], list[Any]]:
        outputs, new_state = map(_nest.flatten, call(stand_in, inputs, state))
        return [*outputs, *new_state] if keep_states else outputs, new_state

    few, many = (record(cell, anatomy, signature, step, rows, differentiate=differentiate) for rows in BATCHES)
    return merge(few, many, record(cell, anatomy, signature, step, 1, differentiate=differentiate, backward=False))
