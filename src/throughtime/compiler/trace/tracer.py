"""Tracing: one step of a cell, and its gradient, written down as a step graph.

The step runs on a shadow of the cell with tensors that note every operation done with them. They answer questions
about shapes but not about values, so a cell that looks at its data is found out. The step is traced twice, for two
numbers of rows: what differs between the two is the number of rows, and must differ in nothing else. For a single row
the cell must call the same functions; what torch does inside of them may differ.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from throughtime import _pytree
from throughtime.compiler.errors import Uncompilable
from throughtime.compiler.guards.fingerprint import CellFingerprint
from throughtime.compiler.trace.batched_matmul import RowAxes
from throughtime.compiler.trace.call_log import check_calls
from throughtime.compiler.trace.recorder import record
from throughtime.compiler.trace.rerun_cell import CellRerun
from throughtime.compiler.trace.side_effects import OutsideState
from throughtime.compiler.trace.symbolic_batch import merge
from throughtime.compiler.trace.trace import FEW, MANY, StepSignature, Trace


class Tracing:
    """The traces of a cell's step, `call(cell, inputs, state) -> (outputs, state)`, which is checked.

    With `keep_states` the new states are outputs as well, after those of the cell.
    """

    def __init__(
        self,
        cell: Any,
        anatomy: CellFingerprint,
        signature: StepSignature,
        call: Callable[[Any, Any, Any], tuple[Any, Any]],
        *,
        differentiate: bool,
        keep_states: bool,
    ) -> None:
        def step(stand_in: Any, inputs: Any, state: Any) -> tuple[list[Any], list[Any]]:
            outputs, new_state = map(_pytree.flatten, call(stand_in, inputs, state))
            return [*outputs, *new_state] if keep_states else outputs, new_state

        self.replay = CellRerun(signature, step)
        outside = OutsideState(anatomy.named)

        # It holds nothing that holds this: the cell must not wait for the garbage collector.
        def run(rows: int, axes: RowAxes) -> Trace:
            return record(cell, anatomy, signature, step, rows, axes, differentiate=differentiate, outside=outside)

        self._run = run
        sizes = {size for tensor in anatomy.tensors for size in tensor.shape}
        sizes.update(size for leaf in (*signature.input_leaves, *signature.state_leaves) for size in leaf.shape or ())
        self._trace_twice(sizes)

    def _trace_twice(self, sizes: set[int]) -> None:
        """Trace for few rows and for many, a number that no size in the cell has: rows are known by it."""
        many = next((rows for rows in MANY if rows not in sizes), None)
        if many is None:
            raise Uncompilable(f"its sizes leave no number of rows to trace it for: {len(MANY)} were tried")
        # Many rows first: `RowAxes` learns which axis is that of the rows from its size, and any axis may be 2 long.
        self._axes = RowAxes()
        self._many, self._few = (self._run(rows, self._axes) for rows in (many, FEW))
        # What the step computes from may have that size by chance, too: its other trace tells.
        if many in self._few.graph.numbers():
            self._trace_twice({many, *sizes, *self._few.graph.numbers()})

    def merged(self) -> Trace:
        """The trace for any number of rows."""
        return merge(self._few, self._many)

    def check_single_row(self) -> None:
        """Raise `Uncompilable` if the step does something else for one row, where `squeeze` takes the batch away."""
        try:
            single = self._run(1, self._axes)
        except Uncompilable as refusal:
            raise Uncompilable(f"for a single row, {refusal}") from refusal
        check_calls(self._few.calls, self._many.calls, single.calls, (self._few.rows, self._many.rows))
