"""`dynamic_rnn`: the step of a cell, built once, and one node that unrolls it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from throughtime import _pytree
from throughtime.tf1._namespace import exported
from throughtime.tf1.functions._func_graph import Function, build_function, call_node
from throughtime.tf1.graph._dtypes import as_dtype
from throughtime.tf1.graph._operation import Operation, Tensor
from throughtime.tf1.graph._shapes import TensorShape
from throughtime.tf1.graph._variable_scope import variable_scope
from throughtime.tf1.ops._convert import convert_to_tensor
from throughtime.tf1.rnn import _engine
from throughtime.tf1.rnn._cell import ZERO_STATE, batch_size_of, check_cell
from throughtime.tf1.rnn._whole_batch import unroll_whole_batch

RNN = "RNN"


@exported("nn.dynamic_rnn", "python.ops.rnn.dynamic_rnn", "contrib.rnn.dynamic_rnn")
def dynamic_rnn(
    cell: Any,
    inputs: Any,
    sequence_length: Any = None,
    initial_state: Any = None,
    dtype: Any = None,
    parallel_iterations: int | None = None,
    swap_memory: bool = False,
    time_major: bool = False,
    scope: Any = None,
) -> tuple[Any, Any]:
    """The outputs of `cell` over `inputs` and its final state."""
    del parallel_iterations, swap_memory
    check_cell(cell)
    with variable_scope(scope or "rnn"):
        return unrolled(cell, inputs, sequence_length, initial_state, dtype, time_major=time_major)


def unrolled(
    cell: Any,
    inputs: Any,
    sequence_length: Any,
    initial_state: Any,
    dtype: Any,
    *,
    time_major: bool,
    reverse: bool = False,
) -> tuple[Any, Any]:
    """The node of an unroll, in the open variable scope; with `reverse` from the ends of sequences to their starts."""
    leaves = [convert_to_tensor(leaf, name="input") for leaf in _pytree.flatten(inputs)]
    shapes = [_step_shape(leaf, time_major) for leaf in leaves]
    lengths = None if sequence_length is None else _check_lengths(sequence_length, leaves[0], time_major)
    batch = batch_size_of(leaves[0], 1 if time_major else 0)
    from_zeros = initial_state is None
    state = _first_state(cell, batch, dtype) if initial_state is None else initial_state
    state = _pytree.map_leaves(lambda leaf: convert_to_tensor(leaf, name="initial_state"), state)
    step, structure = build_step(
        cell, inputs, [(leaf.dtype.base_dtype, shape) for leaf, shape in zip(leaves, shapes, strict=True)], state
    )
    first = _pytree.flatten(state)
    node = _Unroll(step, leaves, lengths, first, structure, time_major, reverse, from_zeros, type(cell).__name__)
    op = node.make()
    count = len(_pytree.flatten(structure))
    return _pytree.pack_as(structure, op.outputs[:count]), _pytree.pack_as(state, op.outputs[count:])


def _step_shape(leaf: Tensor, time_major: bool) -> TensorShape:
    sizes = leaf.shape.sizes
    if sizes is None or len(sizes) < 2:
        raise ValueError(
            f"Input must be a tensor of at least 3 dimensions, [batch, time, ...], got {leaf}; use set_shape"
        )
    return TensorShape([sizes[1 if time_major else 0], *sizes[2:]])


def _check_lengths(sequence_length: Any, leaf: Tensor, time_major: bool) -> Tensor:
    lengths = convert_to_tensor(sequence_length, name="sequence_length")
    if lengths.shape.ndims not in {None, 1}:
        raise ValueError(f"sequence_length must be a vector of length batch_size, but saw shape: {lengths.shape}")
    batch = (leaf.shape.sizes or (None, None))[1 if time_major else 0]
    if not lengths.shape.is_compatible_with([batch]):
        raise ValueError(
            f"sequence_length must have one entry for each of {batch} sequences, got shape {lengths.shape}"
        )
    return lengths


def _first_state(cell: Any, batch: Any, dtype: Any) -> Any:
    if dtype is None:
        raise ValueError("If there is no initial_state, you must give a dtype.")
    kind = as_dtype(dtype) if not _pytree.is_nest(dtype) else dtype
    if getattr(cell, "get_initial_state", None) is not None:
        return cell.get_initial_state(inputs=None, batch_size=batch, dtype=kind)
    return cell.zero_state(batch, kind)


def build_step(cell: Callable[..., Any], inputs: Any, specs: Sequence[Any], state: Any) -> tuple[Function, Any]:
    """`cell(inputs, state)` as a function of the leaves of both; and the structure of its output."""
    count = len(specs)
    found: list[Any] = []

    def called(*leaves: Tensor) -> Any:
        x = _pytree.pack_as(inputs, leaves[:count]) if _pytree.is_nest(inputs) else leaves[0]
        output, new = cell(x, _pytree.pack_as(state, leaves[count:]) if _pytree.is_nest(state) else leaves[count])
        new = _same_structure(state, new)
        found.append(output)
        return [*_pytree.flatten(output), *_pytree.flatten(new)]

    first = _pytree.flatten(state)
    every = [*specs, *((tensor.dtype.base_dtype, tensor.shape) for tensor in first)]
    step = build_function(called, every, name="step", convert=convert_to_tensor)
    outputs = len(_pytree.flatten(found[0]))
    for old, new in zip(first, step.outputs[outputs:], strict=True):
        if old.dtype.base_dtype != new.dtype.base_dtype:
            raise TypeError(
                f"The cell's new state has another dtype: got {new.dtype.base_dtype.name}, expected "
                f"{old.dtype.base_dtype.name}; use tf.cast"
            )
        if not old.shape.is_compatible_with(new.shape):
            raise ValueError(f"The cell's new state has another shape: got {new.shape}, expected {old.shape}")
    return step, found[0]


def _same_structure(state: Any, new: Any) -> Any:
    if not _pytree.is_nest(state):
        return new
    try:
        return _pytree.conform(state, new, "the cell's new state")
    except (TypeError, ValueError):
        if len(_pytree.flatten(state)) != len(_pytree.flatten(new)):
            raise
        return _pytree.pack_as(state, _pytree.flatten(new))


class _Unroll:
    """The parts of a node that unrolls a step."""

    def __init__(
        self,
        step: Function,
        inputs: list[Tensor],
        lengths: Tensor | None,
        first: list[Tensor],
        structure: Any,
        time_major: bool,
        reverse: bool,
        from_zeros: bool,
        name: str,
    ):
        self.step, self.inputs, self.lengths, self.first = step, inputs, lengths, first
        self.order = {"time_major": time_major, "reverse": reverse}
        self.count = len(_pytree.flatten(structure))
        self.refusal = _engine.refusal(step, self.count)
        self.kind = None if self.refusal else _engine.step_kind(step, self.count, name)
        # The engine begins with zeros by itself, unless the program made the state.
        self.from_zeros = from_zeros and self.kind is not None and all(one.op.type == ZERO_STATE for one in first)
        self.dtype = step.outputs[0].dtype.torch_dtype
        self.rows_proven = False

    def make(self) -> Operation:
        given = [] if self.from_zeros else self.first
        lengths = [] if self.lengths is None else [self.lengths]
        op = call_node(
            RNN,
            self.run,
            [*self.inputs, *lengths, *given, *self.step.outer],
            [self.step],
            name=RNN,
            dtypes=[tensor.dtype.base_dtype for tensor in self.step.outputs],
            shapes=[self._with_time(tensor) for tensor in self.step.outputs[: self.count]]
            + [
                new.shape.merge_with(old.shape)
                for new, old in zip(self.step.outputs[self.count :], self.first, strict=True)
            ],
        )
        op.attrs["unroll"] = self
        return op

    def _with_time(self, tensor: Tensor) -> TensorShape:
        sizes = tensor.shape.sizes
        if sizes is None:
            return tensor.shape
        leading = self.inputs[0].shape.sizes or (None, None)
        batch, time = (leading[1], leading[0]) if self.order["time_major"] else leading[:2]
        batch = sizes[0] if batch is None and sizes else batch
        if batch is None and self.lengths is not None and self.order["reverse"]:
            # TensorFlow's reversal learns it from the lengths.
            batch = (self.lengths.shape.sizes or (None,))[0]
        return TensorShape([time, batch, *sizes[1:]] if self.order["time_major"] else [batch, time, *sizes[1:]])

    def opened(self, values: Sequence[Any]) -> tuple[Sequence[Any], Any, Any, Sequence[Any]]:
        """Inputs, lengths, first state and captures among the values of the node's inputs."""
        at = len(self.inputs)
        inputs = values[:at]
        lengths = None
        if self.lengths is not None:
            lengths, at = values[at], at + 1
        state = None
        if not self.from_zeros:
            state, at = values[at : at + len(self.first)], at + len(self.first)
        return inputs, lengths, state, values[at:]

    def _zeros(self, inputs: torch.Tensor) -> list[torch.Tensor]:
        batch = inputs.shape[1 if self.order["time_major"] else 0]
        rows = [[size or 0 for size in (tensor.shape.sizes or ())[1:]] for tensor in self.first]
        kinds = [tensor.dtype.torch_dtype for tensor in self.first]
        return [
            torch.zeros((batch, *row), dtype=kind, device=inputs.device) for row, kind in zip(rows, kinds, strict=True)
        ]

    def _prove_rows(self, captures: Sequence[Any]) -> None:
        """Rows that have ended leave the batch: that must not change the others."""
        self.rows_proven = True
        if self.kind is not None and not _engine.rows_are_independent(self.step, captures):
            self.kind, self.refusal = None, "the rows of a batch depend on each other"

    def run(self, session_state: Any, *values: Any) -> tuple[Any, ...]:
        """The kernel."""
        inputs, lengths, state, captures = self.opened(values)
        if lengths is not None and not self.rows_proven:
            self._prove_rows(captures)
        if self.kind is None:
            state = self._zeros(inputs[0]) if state is None else state
            outputs, final = unroll_whole_batch(
                self.step, session_state, captures, inputs, lengths, state, self.count, **self.order
            )
        else:
            outputs, final = _engine.unroll(self.kind, captures, inputs, lengths, state, self.dtype, **self.order)
        return (*outputs, *final)


__all__ = ["RNN", "build_step", "dynamic_rnn", "torch", "unrolled"]
