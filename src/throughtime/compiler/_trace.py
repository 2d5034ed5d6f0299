"""Tracing: one step of a cell, and its gradient, written down as a step graph.

The step runs on a shadow of the cell with tensors that note every operation done with them. They answer questions
about shapes but not about values, so a cell that looks at its data is found out. The step is traced twice, for two
numbers of rows: what differs between the two is the number of rows, and must differ in nothing else. For a single row
the cell must call the same functions; what torch does inside of them may differ.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from throughtime import _nest
from throughtime.compiler._calls import check_calls
from throughtime.compiler._errors import Uncompilable
from throughtime.compiler._merge import merge
from throughtime.compiler._products import RowAxes
from throughtime.compiler._record import record
from throughtime.compiler._replay import Replay
from throughtime.compiler._traced import BATCHES, StepSignature, Trace
from throughtime.compiler._undo import Outside
from throughtime.compiler._watch import Anatomy


class Tracing:
    """The traces of a cell's step, `call(cell, inputs, state) -> (outputs, state)`, which is checked.

    With `keep_states` the new states are outputs as well, after those of the cell.
    """

    def __init__(
        self,
        cell: Any,
        anatomy: Anatomy,
        signature: StepSignature,
        call: Callable[[Any, Any, Any], tuple[Any, Any]],
        *,
        differentiate: bool,
        keep_states: bool,
    ) -> None:
        def step(stand_in: Any, inputs: Any, state: Any) -> tuple[list[Any], list[Any]]:
            outputs, new_state = map(_nest.flatten, call(stand_in, inputs, state))
            return [*outputs, *new_state] if keep_states else outputs, new_state

        self.replay = Replay(signature, step)
        axes, outside = RowAxes(), Outside(anatomy.named)

        def run(rows: int) -> Trace:
            return record(cell, anatomy, signature, step, rows, axes, differentiate=differentiate, outside=outside)

        self._run = run
        # Many rows first: `axes` learns which axis is that of the rows from its size, and any axis may be 2 long.
        self._many, self._few = map(run, reversed(BATCHES))

    def merged(self) -> Trace:
        """The trace for any number of rows."""
        return merge(self._few, self._many)

    def check_single_row(self) -> None:
        """Raise `Uncompilable` if the step does something else for one row, where `squeeze` takes the batch away."""
        try:
            single = self._run(1)
        except Uncompilable as refusal:
            raise Uncompilable(f"for a single row, {refusal}") from refusal
        check_calls(self._few.calls, self._many.calls, single.calls)
