"""`raw_rnn`: the program's own function decides about inputs, states and the end of each sequence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from throughtime import _pytree
from throughtime.tf1._namespace import exported
from throughtime.tf1.functions._tensor_array import TensorArray
from throughtime.tf1.functions._while_loop import while_loop
from throughtime.tf1.graph._dtypes import as_dtype, bool_, float32, int32
from throughtime.tf1.graph._graph import create_op
from throughtime.tf1.graph._operation import Tensor
from throughtime.tf1.graph._shapes import TensorShape
from throughtime.tf1.graph._variable_scope import variable_scope
from throughtime.tf1.ops._arithmetic import add
from throughtime.tf1.ops._convert import constant, convert_to_tensor
from throughtime.tf1.rnn._cell import batch_size_of, check_cell, dims_of, map_sizes


@exported("nn.raw_rnn", "python.ops.rnn.raw_rnn", "contrib.rnn.raw_rnn")
def raw_rnn(
    cell: Any,
    loop_fn: Callable[..., Any],
    parallel_iterations: int | None = None,
    swap_memory: bool = False,
    scope: Any = None,
) -> tuple[Any, Any, Any]:
    """`(emit_ta, final_state, final_loop_state)` of a loop that `loop_fn` steers."""
    del parallel_iterations, swap_memory
    check_cell(cell)
    if not callable(loop_fn):
        raise TypeError("loop_fn must be a callable")
    with variable_scope(scope or "rnn"):
        return _Raw(cell, loop_fn).run()


class _Raw:
    """The state of the loop: time, finished, next inputs, outputs so far, cell state, the program's own state."""

    def __init__(self, cell: Any, loop_fn: Callable[..., Any]):
        self.cell, self.loop_fn = cell, loop_fn
        time = constant(0, int32, name="time")
        finished, inputs, state, emit, loop_state = loop_fn(time, None, None, None)
        self.time = time
        self.finished = convert_to_tensor(finished, bool_)
        self.inputs = _pytree.map_leaves(convert_to_tensor, inputs)
        self.state = _pytree.map_leaves(_kept, state)
        self.has_loop_state = loop_state is not None
        # A loop without a state of its own carries a number, as TensorFlow's does.
        self.loop_state = constant(0, int32) if loop_state is None else loop_state
        self.batch = batch_size_of(_pytree.flatten(self.inputs)[0], 0)
        self.emit = self._emitted(emit)

    def _emitted(self, emit: Any) -> Any:
        """Zeros of what each step emits: like the example of `loop_fn`, or of the cell's output size."""
        if emit is not None:
            return _pytree.map_leaves(self._zeros_like_rows, emit)
        dtype = _pytree.flatten(self.state)[0].dtype.base_dtype
        return map_sizes(lambda size: self._zeros(dims_of(size), dtype), self.cell.output_size)

    def _zeros_like_rows(self, example: Any) -> Tensor:
        tensor = convert_to_tensor(example)
        if tensor.shape.is_fully_defined():
            return self._zeros(tensor.shape.as_list(), tensor.dtype.base_dtype)
        batch = convert_to_tensor(self.batch, int32)
        kernel = lambda row, count: row.new_zeros((int(count), *row.shape))  # noqa: E731
        return create_op("Fill", kernel, [tensor, batch], name="zeros").outputs[0]

    def _zeros(self, sizes: list[int | None], dtype: Any) -> Tensor:
        kind, rest = as_dtype(dtype), [size or 0 for size in sizes]
        kernel = lambda count: torch.zeros((int(count), *rest), dtype=kind.torch_dtype)  # noqa: E731
        return create_op("Fill", kernel, [convert_to_tensor(self.batch, int32)], name="zeros").outputs[0]

    def run(self) -> tuple[Any, Any, Any]:
        arrays = _pytree.map_leaves(self._array, self.emit)
        variables = [self.time, self.finished, self.inputs, arrays, self.state, self.loop_state]
        result = while_loop(self._goes_on, self._body, variables, shape_invariants=self._invariants(variables))
        _, _, _, arrays, state, loop_state = result
        return arrays, state, loop_state if self.has_loop_state else None

    def _invariants(self, variables: list[Any]) -> Any:
        """What comes from `loop_fn` may have a less known shape later; the rank and the features stay."""
        return _pytree.map_leaves(_open_batch, variables)

    def _array(self, emit: Tensor) -> TensorArray:
        return TensorArray(
            emit.dtype.base_dtype, size=0, dynamic_size=True, clear_after_read=False, element_shape=_open_batch(emit)
        )

    def _goes_on(self, time: Any, finished: Tensor, *_: Any) -> Tensor:
        return create_op("LogicalNot", lambda done: torch.logical_not(done.all()), [finished]).outputs[0]

    def _body(self, time: Tensor, finished: Tensor, inputs: Any, arrays: Any, state: Any, loop_state: Any) -> Any:
        output, new_state = self.cell(inputs, state)
        following: Any = add(time, 1)
        given = loop_state if self.has_loop_state else None
        next_finished, next_inputs, next_state, emit, next_loop = self.loop_fn(following, output, new_state, given)
        emitted = _pytree.map_leaves(lambda zero, new: _unless(finished, zero, new), self.emit, emit)
        carried = _pytree.map_leaves(lambda old, new: _unless(finished, old, new), state, next_state)
        written = _pytree.map_leaves(lambda array, new: array.write(time, new), arrays, emitted)
        both = create_op("LogicalOr", torch.logical_or, [convert_to_tensor(next_finished, bool_), finished]).outputs[0]
        return following, both, next_inputs, written, carried, loop_state if next_loop is None else next_loop


def _kept(leaf: Any) -> Any:
    return leaf if isinstance(leaf, TensorArray) else convert_to_tensor(leaf)


def _open_batch(leaf: Any) -> Any:
    if isinstance(leaf, TensorArray):
        return None
    sizes = convert_to_tensor(leaf).shape.sizes
    return TensorShape(None) if sizes is None else TensorShape([None, *sizes[1:]] if sizes else [])


def _unless(finished: Tensor, old: Any, new: Any) -> Any:
    """`old` for sequences that have ended, else `new`; what has no batch axis is new."""
    if isinstance(new, TensorArray):
        return new
    new = convert_to_tensor(new)
    if new.shape.ndims == 0:
        return new

    def kernel(done: torch.Tensor, before: torch.Tensor, after: torch.Tensor) -> torch.Tensor:
        return torch.where(done.reshape([-1] + [1] * (after.ndim - 1)), before, after)

    return create_op("Select", kernel, [finished, convert_to_tensor(old), new]).outputs[0]


__all__ = ["float32", "raw_rnn"]
