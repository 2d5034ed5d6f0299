"""`raw_rnn`: the loop in the user's own hands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from throughtime import _nest
from throughtime._errors import problem, shape_of, type_name
from throughtime.backends._step import Step, is_row_leaf
from throughtime.backends._swap import swapping
from throughtime.backends.reference import select
from throughtime.cells._base import begin_sequence, dims
from throughtime.unroll._arguments import check_cell, check_parallel_iterations, check_scope, note_scope
from throughtime.unroll._tensor_array import TensorArray

LoopFn = Callable[[Tensor, Any, Any, Any], tuple[Any, Any, Any, Any, Any]]


def raw_rnn(
    cell: Any,
    loop_fn: LoopFn,
    parallel_iterations: int | None = None,
    swap_memory: bool = False,
    scope: str | None = None,
) -> tuple[Any, Any, Any]:
    """Run `cell` under the control of `loop_fn`: `(emit_array, final_state, final_loop_state)`.

    `loop_fn(time, cell_output, cell_state, loop_state)` returns `(finished, next_input, next_state, emit_output,
    next_loop_state)`. It is called first with time 0 and None for the rest: it then gives the initial state, and as
    `emit_output` what one emitted row looks like (None: like the cell's output). After that it is called after every
    step, until all rows are `finished` [B]. A row that has finished is not computed any more: it emits zeros and
    keeps its state. `loop_state` is the user's own, and may hold TensorArrays. Emitted values come back as a
    `TensorArray` (or a nest of them) with one element [B, ...] for each step run.

    >>> import torch, throughtime as tt
    >>> cell, x = tt.GRUCell(5), torch.randn(4, 2, 3)  # [T, B, I]
    >>> def loop_fn(time, cell_output, cell_state, loop_state):
    ...     state = cell.zero_state(2, torch.float32) if cell_output is None else cell_state
    ...     finished = time >= torch.tensor([4, 2])
    ...     return finished, x[min(int(time), 3)], state, cell_output, None
    >>> emitted, state, _ = tt.raw_rnn(cell, loop_fn)
    >>> emitted.stack().shape
    torch.Size([4, 2, 5])
    """
    check_cell("cell", cell)
    if not callable(loop_fn):
        raise TypeError(
            problem(
                "`loop_fn` must be callable",
                got=type_name(loop_fn),
                expected="a function",
                fix="Pass loop_fn(time, cell_output, cell_state, loop_state).",
            )
        )
    check_parallel_iterations(parallel_iterations)
    note_scope(cell, check_scope(scope) or "rnn")
    begin_sequence(cell)
    finished, inputs, state, emit_like, loop_state = _call(loop_fn, torch.tensor(0), None, None, None)
    loop = _Loop(cell, loop_fn, inputs, state, finished, emit_like)
    with swapping(swap_memory, cell, (inputs, state)):
        while not bool(loop.finished.all()):
            loop_state = loop.advance(loop_state)
    return _nest.pack_as(loop.emit_like, loop.arrays), loop.state, loop_state


def _call(loop_fn: LoopFn, *arguments: Any) -> tuple[Any, Any, Any, Any, Any]:
    result: Any = loop_fn(*arguments)
    if not isinstance(result, tuple | list) or len(result) != 5:
        raise ValueError(
            problem(
                "`loop_fn` must return five values",
                got=f"{len(result)} values" if isinstance(result, tuple | list) else type_name(result),
                expected="(finished, next_input, next_state, emit_output, next_loop_state)",
                fix="Return None for the values that are not used.",
            )
        )
    finished, inputs, state, emit, loop_state = result
    return finished, inputs, state, emit, loop_state


class _Loop:
    """What changes from step to step: the rows' inputs, states and ends, and what they have emitted."""

    def __init__(self, cell: Any, loop_fn: LoopFn, inputs: Any, state: Any, finished: Any, emit_like: Any) -> None:
        self._loop_fn = loop_fn
        self._inputs = inputs
        self.state = _nest.conform(cell.state_size, state, "the initial state that `loop_fn` gives")
        self.batch_size = _nest.flatten(inputs)[0].shape[0]
        self._device = _nest.flatten(inputs)[0].device
        self.finished = self._check_finished(finished)
        dtype = next((leaf.dtype for leaf in _nest.flatten(self.state)), None)
        self._step = Step(cell, self.state, None)
        self._emits_output = emit_like is None
        self.emit_like = cell.output_size if emit_like is None else emit_like
        self.arrays = [
            self._array(dims(leaf), dtype) if emit_like is None else self._array(shape_of(leaf), leaf.dtype)
            for leaf in _nest.flatten(self.emit_like)
        ]
        self._time = 0

    def _array(self, row_shape: tuple[int, ...], dtype: Any) -> TensorArray:
        # The rows may turn out wider than announced (an announced shape may leave dimensions open), so it is not
        # enforced.
        return TensorArray(
            dtype,
            size=0,
            dynamic_size=True,
            clear_after_read=False,
            infer_shape=False,
            element_shape=(self.batch_size, *row_shape),
        )

    def advance(self, loop_state: Any) -> Any:
        """One step of the cell, one call of `loop_fn`, one emission; returns the next loop state."""
        output, cell_state = self._run_rows()
        finished, inputs, state, emit, next_loop_state = _call(
            self._loop_fn, torch.tensor(self._time + 1), output, cell_state, loop_state
        )
        state = _nest.conform(self.state, state, "the next state that `loop_fn` gives")
        inputs = _nest.conform(self._inputs, inputs, "the next input that `loop_fn` gives")
        emit = _nest.conform(self.emit_like, emit, "what `loop_fn` emits")
        self._emit(select(self.finished, None, emit))
        self.state = select(self.finished, self.state, state)
        self._inputs = inputs
        self.finished = self.finished | self._check_finished(finished)
        self._time += 1
        return loop_state if next_loop_state is None else next_loop_state

    def _emit(self, emit: Any) -> None:
        leaves = _nest.flatten(emit)
        self.arrays = [array.write(self._time, leaf) for array, leaf in zip(self.arrays, leaves, strict=True)]

    def _run_rows(self) -> tuple[Any, Any]:
        """The cell on the rows still running; the others have a zero output and the state they had."""
        running = (~self.finished).nonzero().squeeze(1)
        if len(running) == self.batch_size:
            return self._step(self._inputs, self.state)
        if not all(isinstance(leaf, Tensor) for leaf in _nest.flatten(self.state)):
            # A TensorArray has no rows to leave out: all run, and those that have finished on zeros.
            return self._step(select(self.finished, None, self._inputs), self.state)
        output, state = self._step(_take(self._inputs, running), _take(self.state, running))
        spread = _nest.map_leaves(
            lambda leaf: leaf.new_zeros(self.batch_size, *leaf.shape[1:]).index_copy(0, running, leaf), output
        )
        kept = _nest.map_leaves(
            lambda old, new: old.index_copy(0, running, new) if is_row_leaf(new) else new, self.state, state
        )
        return spread, kept

    def _check_finished(self, finished: Any) -> Tensor:
        """Which rows are finished, [B]; one bool stands for all rows."""
        flags = torch.as_tensor(finished, device=self._device)
        if flags.dtype != torch.bool:
            raise TypeError(
                problem(
                    "`finished` must be boolean",
                    got=flags.dtype,
                    expected="torch.bool",
                    fix="Return a comparison, as in `time >= sequence_length`.",
                )
            )
        if flags.ndim and shape_of(flags) != (self.batch_size,):
            raise ValueError(
                problem(
                    "`finished` must have one value for each row",
                    got=shape_of(flags),
                    expected=(self.batch_size,),
                    fix="Return a bool, or a bool tensor [B].",
                )
            )
        return flags.expand(self.batch_size)


def _take(tree: Any, rows: Tensor) -> Any:
    return _nest.map_leaves(lambda leaf: leaf.index_select(0, rows) if is_row_leaf(leaf) else leaf, tree)
