"""`raw_rnn`: the loop in the user's own hands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from throughtime import _pytree
from throughtime._errors import check_callable, check_flag, check_name, problem, shape_of, type_name
from throughtime._pytree import Nest
from throughtime._tensors import as_tensor, autocast_on
from throughtime.backends.checked_cell import CheckedCell, is_row_leaf
from throughtime.backends.reference import select
from throughtime.cells._base import begin_sequence, build_for, check_cell, dims
from throughtime.runtime.offload.tensor_pages import swapping
from throughtime.unroll._arguments import check_parallel_iterations, fit_state, note_scope
from throughtime.unroll._jit_trace import check_not_traced
from throughtime.unroll._tensor_array import TensorArray
from throughtime.unroll._while_loop import check_kept

LoopFn = Callable[[Tensor, Nest, Nest, Nest], tuple[Any, Nest, Nest, Nest, Nest]]


def raw_rnn(
    cell: Any,
    loop_fn: LoopFn,
    parallel_iterations: int | None = None,
    swap_memory: bool = False,
    scope: str | None = None,
) -> tuple[Any, Nest, Nest]:
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
    check_not_traced("raw_rnn", "the number of its steps")
    check_cell("cell", cell)
    signature = "loop_fn(time, cell_output, cell_state, loop_state)"
    check_callable("loop_fn", loop_fn, expected="a function", fix=f"Pass {signature}.")
    check_parallel_iterations(parallel_iterations)
    check_flag("swap_memory", swap_memory)
    scope = check_name("scope", scope) or "rnn"
    finished, inputs, state, emit_like, loop_state = _call(loop_fn, torch.tensor(0), None, None, None)
    loop = _Loop(cell, loop_fn, inputs, state, finished, emit_like)
    begin_sequence(cell)
    if bool(loop.finished.all()):
        build_for(cell, loop.inputs, loop.state)
    with swapping(swap_memory, cell, (loop.inputs, loop.state)):
        first = loop_state
        while not bool(loop.finished.all()):
            loop_state = loop.advance(loop_state)
    note_scope(cell, scope)
    # As in TensorFlow, who begins without a loop state ends without one.
    return _pytree.pack_as(loop.emit_like, loop.arrays), loop.state, None if first is None else loop_state


def _call(loop_fn: LoopFn, *arguments: Nest) -> tuple[Any, Nest, Nest, Nest, Nest]:
    result: Any = loop_fn(*arguments)
    if not isinstance(result, tuple | list) or len(result) != 5:
        got = f"{len(result)} values" if isinstance(result, tuple | list) else type_name(result)
        expected = "(finished, next_input, next_state, emit_output, next_loop_state)"
        fix = "Return None for the values that are not used."
        raise ValueError(problem("`loop_fn` must return five values", got=got, expected=expected, fix=fix))
    finished, inputs, state, emit, loop_state = result
    return finished, inputs, state, emit, loop_state


class _Loop:
    """What changes from step to step: the rows' inputs, states and ends, and what they have emitted."""

    def __init__(self, cell: Any, loop_fn: LoopFn, inputs: Nest, state: Nest, finished: Any, emit_like: Nest) -> None:
        self._loop_fn = loop_fn
        self.inputs = _first_inputs(inputs)
        self.batch_size = _pytree.flatten(self.inputs)[0].shape[0]
        self._device = _pytree.flatten(self.inputs)[0].device
        what = "the initial state that `loop_fn` gives"
        self.state = fit_state(cell.state_size, state, self.batch_size, self._device, what)
        self.finished = self._check_finished(finished)
        self._step = CheckedCell(cell, self.state, None)
        if emit_like is None:
            dtype = next((leaf.dtype for leaf in _pytree.flatten(self.state)), torch.get_default_dtype())
            rows = [(dims(size), dtype) for size in _pytree.flatten(cell.output_size)]
        else:
            emit_like = _pytree.map_leaves(lambda leaf: as_tensor("emit_output", leaf), emit_like)
            rows = [(shape_of(leaf), leaf.dtype) for leaf in _pytree.flatten(emit_like)]
        self.emit_like = cell.output_size if emit_like is None else emit_like
        self.arrays = [self._array(*row) for row in rows]
        self._time = 0

    def _array(self, row_shape: tuple[int, ...], dtype: torch.dtype) -> TensorArray:
        shape = (self.batch_size, *row_shape)
        return TensorArray(dtype, 0, dynamic_size=True, clear_after_read=False, element_shape=shape)

    def advance(self, loop_state: Nest) -> Nest:
        """One step of the cell, one call of `loop_fn`, one emission; returns the next loop state."""
        output, cell_state = self._run_rows()
        time = torch.tensor(self._time + 1)
        finished, inputs, state, emit, next_loop_state = _call(self._loop_fn, time, output, cell_state, loop_state)
        inputs = self._check_rows("the next input", self.inputs, inputs)
        state = self._check_rows("the next state", self.state, state, same_shape=True)
        emit = self._check_rows("the output", self.emit_like, emit)
        ended = self._check_finished(finished)
        self._emit(select(self.finished, None, emit))
        self.state = select(self.finished, self.state, state)
        self.inputs = inputs
        self.finished = self.finished | ended
        self._time += 1
        if next_loop_state is None:
            return loop_state
        return next_loop_state if loop_state is None else _kept(loop_state, next_loop_state)

    def _emit(self, emit: Nest) -> None:
        leaves = zip(self.arrays, _pytree.flatten(emit), strict=True)
        # Autocast changes the dtype of what a cell gives; what is emitted keeps the one announced.
        autocast = autocast_on(self._device)
        self.arrays = [array.write(self._time, leaf.to(array.dtype) if autocast else leaf) for array, leaf in leaves]

    def _run_rows(self) -> tuple[Nest, Nest]:
        """The cell on the rows still running; the others have a zero output and the state they had."""
        running = (~self.finished).nonzero().squeeze(1)
        if len(running) == self.batch_size:
            return self._step(self.inputs, self.state)
        if not all(isinstance(leaf, Tensor) for leaf in _pytree.flatten(self.state)):
            # A TensorArray has no rows to leave out: all run, and those that have finished on zeros.
            return self._step(select(self.finished, None, self.inputs), self.state)
        output, state = self._step(_take(self.inputs, running), _take(self.state, running))
        spread = _pytree.map_leaves(
            lambda leaf: leaf.new_zeros(self.batch_size, *leaf.shape[1:]).index_copy(0, running, leaf), output
        )
        kept = _pytree.map_leaves(
            lambda old, new: old.index_copy(0, running, new) if is_row_leaf(new) else new, self.state, state
        )
        return spread, kept

    def _check_rows(self, what: str, like: Nest, value: Nest, *, same_shape: bool = False) -> Nest:
        """What `loop_fn` gives, in the structure of `like`, with one row for each sequence."""
        what = f"{what} that `loop_fn` gives"
        value = _pytree.conform(like, value, what)
        pairs = zip(_pytree.flatten(like), _pytree.flatten(value), strict=True)
        return _pytree.pack_as(value, [self._check_leaf(what, *pair, same_shape=same_shape) for pair in pairs])

    def _check_leaf(self, what: str, like: Any, leaf: Any, *, same_shape: bool) -> Any:
        if not isinstance(leaf, Tensor | np.ndarray | np.number | float | int):
            if leaf is not None and type(leaf) is type(like):
                return leaf
            fix = "Return a tensor with one row for each sequence."
            raise TypeError(problem(f"{what} is no tensor", got=type_name(leaf), expected="a tensor [B, ...]", fix=fix))
        tensor = as_tensor(what, leaf)
        scalar = isinstance(like, Tensor) and not like.ndim and same_shape
        expected = shape_of(like) if same_shape else (self.batch_size, *shape_of(tensor)[1:])
        if not scalar and shape_of(tensor) != expected:
            fix = "Return one row for each sequence, finished or not."
            raise ValueError(problem(f"{what} has the wrong shape", got=shape_of(tensor), expected=expected, fix=fix))
        if same_shape and tensor.dtype != like.dtype and not autocast_on(tensor.device):
            fix = f"Convert it with `.to({like.dtype})`."
            raise TypeError(problem(f"{what} changes its dtype", got=tensor.dtype, expected=like.dtype, fix=fix))
        return tensor

    def _check_finished(self, finished: Any) -> Tensor:
        """Which rows are finished, [B]; one bool stands for all rows."""
        fix = "Return a comparison, as in `time >= sequence_length`."
        try:
            flags = torch.as_tensor(finished, device=self._device)
        except (TypeError, ValueError, RuntimeError):
            got = type_name(finished)
            raise TypeError(
                problem("`finished` must be boolean", got=got, expected="a bool tensor [B]", fix=fix)
            ) from None
        if flags.dtype != torch.bool:
            raise TypeError(problem("`finished` must be boolean", got=flags.dtype, expected="torch.bool", fix=fix))
        if flags.ndim and shape_of(flags) != (self.batch_size,):
            what, fix = "`finished` must have one value for each row", "Return a bool, or a bool tensor [B]."
            raise ValueError(problem(what, got=shape_of(flags), expected=(self.batch_size,), fix=fix))
        return flags.expand(self.batch_size)


def _first_inputs(inputs: Nest) -> Nest:
    """The inputs of the first step, which say how many rows there are."""
    leaves = _pytree.flatten(inputs)
    if inputs is None or not leaves or any(_rank(leaf) == 0 for leaf in leaves):
        what = "`loop_fn` must give the first input at time 0"
        got = _pytree.describe(inputs) if _pytree.is_nest(inputs) else type_name(inputs)
        fix = "Return the input of the first step, even if every row has finished."
        raise ValueError(problem(what, got=got, expected="a tensor [B, ...] or a nest of them", fix=fix))
    inputs = _pytree.map_leaves(lambda leaf: as_tensor("the first input that `loop_fn` gives", leaf), inputs)
    sizes = [leaf.shape[0] for leaf in _pytree.flatten(inputs)]
    if len(set(sizes)) > 1:
        what, fix = "the first inputs that `loop_fn` gives differ in batch size", "Give every leaf B rows."
        raise ValueError(problem(what, got=sizes, expected="one size", fix=fix))
    return inputs


def _kept(loop_state: Nest, following: Nest) -> Nest:
    """The next loop state, of the structure, the dtypes and the shapes of the one before."""
    following = _pytree.conform(loop_state, following, "the loop state that `loop_fn` gives")
    pairs = zip(_pytree.flatten(loop_state), _pytree.flatten(following), strict=True)
    return _pytree.pack_as(
        following,
        [check_kept(old, new, shape_of(old)) if isinstance(old, Tensor) else new for old, new in pairs],
    )


def _rank(leaf: Any) -> int | None:
    """The rank of an array or a number; None for what has none."""
    return 0 if isinstance(leaf, float | int) else getattr(leaf, "ndim", None)


def _take(tree: Nest, rows: Tensor) -> Nest:
    return _pytree.map_leaves(lambda leaf: leaf.index_select(0, rows) if is_row_leaf(leaf) else leaf, tree)
