"""Tracing: one step of a cell, and its gradient, recorded as a step graph.

The step runs on a stand-in for the cell whose tensors record every operation. They have shapes but no values, so a cell
that branches on its data is refused. The step is traced for two batch sizes: whatever differs between the two graphs is
the batch size, and nothing else may differ. For a single row the cell must call the same functions; what torch does
inside of them may differ.
"""

from __future__ import annotations

from torch import Tensor

from throughtime import _pytree
from throughtime._pytree import Nest
from throughtime.cells._cell_types import CellLike
from throughtime.compiler.errors import Uncompilable
from throughtime.compiler.guards.fingerprint import CellFingerprint
from throughtime.compiler.trace.batched_matmul import RowAxes
from throughtime.compiler.trace.call_log import check_calls
from throughtime.compiler.trace.rerun_cell import CellRerun
from throughtime.compiler.trace.side_effects import OutsideState
from throughtime.compiler.trace.step_run import StepRun
from throughtime.compiler.trace.symbolic_batch import merge
from throughtime.compiler.trace.trace import FEW, MANY, CheckedCall, StepSignature, Trace


class Tracing:
    """The traces of the step of a cell.

    With `keep_states` the new states are outputs as well, after those of the cell.
    """

    def __init__(
        self,
        cell: CellLike,
        fingerprint: CellFingerprint,
        signature: StepSignature,
        call: CheckedCall,
        *,
        differentiate: bool,
        keep_states: bool,
    ) -> None:
        def step(stand_in: CellLike, inputs: Nest, state: Nest) -> tuple[list[Tensor], list[Tensor]]:
            outputs, new_state = map(_pytree.flatten, call(stand_in, inputs, state))
            return [*outputs, *new_state] if keep_states else outputs, new_state

        self.replay = CellRerun(signature, step)
        # It refers to nothing that refers to this object: the cell must not wait for the garbage collector.
        outside = OutsideState(fingerprint.named)
        self._run = StepRun(cell, fingerprint, signature, step, outside, differentiate=differentiate).trace
        sizes = {size for tensor in fingerprint.tensors for size in tensor.shape}
        sizes.update(size for leaf in (*signature.input_leaves, *signature.state_leaves) for size in leaf.shape or ())
        self._trace_twice(sizes)

    def _trace_twice(self, sizes: set[int]) -> None:
        """Trace for few rows and for many: a size that nothing else in the cell has, so it tells the batch axis."""
        many = next((rows for rows in MANY if rows not in sizes), None)
        if many is None:
            raise Uncompilable(f"its sizes leave no number of rows to trace it for: {len(MANY)} were tried")
        # Many rows first: `RowAxes` finds the batch axis by its size, and any axis may have size 2.
        self._axes = RowAxes()
        self._many, self._few = (self._run(rows, self._axes) for rows in (many, FEW))
        # A value inside of the step may have that size by chance: the other trace shows it.
        if many in self._few.graph.numbers():
            self._trace_twice({many, *sizes, *self._few.graph.numbers()})

    def merged(self) -> Trace:
        """The trace for any number of rows."""
        return merge(self._few, self._many)

    def check_single_row(self) -> None:
        """Raise `Uncompilable` if the step does something else for one row, where `squeeze` removes the batch axis."""
        try:
            single = self._run(1, self._axes)
        except Uncompilable as refusal:
            raise Uncompilable(f"for a single row, {refusal}") from refusal
        check_calls(self._few.calls, self._many.calls, single.calls, (self._few.rows, self._many.rows))
