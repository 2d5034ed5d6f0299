"""`static_rnn` and its relatives: sequences as lists of steps."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, overload

import torch
from torch import Tensor

from throughtime import _pytree
from throughtime._errors import check_name, problem, shape_of, type_name
from throughtime._pytree import Nest
from throughtime._tensors import as_tensor, check_same_device
from throughtime.cells._base import check_cell
from throughtime.cells._cell_types import Cell, CellLike, State
from throughtime.unroll._arguments import (
    Lengths,
    check_lengths,
    check_output_dtype,
    check_state,
    note_scope,
)
from throughtime.unroll._batch_format import BatchFormat, open_inputs
from throughtime.unroll._engine import Unrolled, check_fits, unroll
from throughtime.unroll._jit_trace import check_not_traced
from throughtime.unroll._options import UnrollOptions


@overload
def static_rnn(
    cell: Cell[State],
    inputs: Nest,
    initial_state: Nest = None,
    dtype: torch.dtype | None = None,
    sequence_length: Lengths = None,
    scope: str | None = None,
) -> tuple[list[Tensor], State]: ...
@overload
def static_rnn(
    cell: Any,
    inputs: Nest,
    initial_state: Nest = None,
    dtype: torch.dtype | None = None,
    sequence_length: Lengths = None,
    scope: str | None = None,
) -> tuple[list[Nest], Nest]: ...
def static_rnn(
    cell: Any,
    inputs: Nest,
    initial_state: Nest = None,
    dtype: torch.dtype | None = None,
    sequence_length: Lengths = None,
    scope: str | None = None,
) -> tuple[list[Nest], Nest]:
    """Run `cell` over a list of T steps [B, I] (or nests of them): a list of T outputs, and the final state.

    The same as `dynamic_rnn` for sequences that are lists; `sequence_length`, `initial_state` and `dtype` mean the
    same. Note the order of the arguments, which is TensorFlow's.

    >>> import torch, throughtime as tt
    >>> steps = torch.randn(4, 2, 3).unbind(1)
    >>> outputs, state = tt.static_rnn(tt.BasicRNNCell(5), steps, dtype=torch.float32)
    >>> len(outputs), torch.equal(outputs[-1], state)
    (2, True)
    """
    check_cell("cell", cell)
    scope = check_name("scope", scope) or "rnn"
    form, sequences = open_steps(inputs)
    result = plan_static(cell, form, sequences, sequence_length, initial_state, UnrollOptions(dtype))()
    note_scope(cell, scope)
    return split_steps(result.outputs), result.state


def plan_static(
    cell: CellLike,
    form: BatchFormat,
    sequences: Nest,
    sequence_length: Lengths,
    initial_state: Nest,
    options: UnrollOptions,
    name: str = "initial_state",
) -> Callable[[], Unrolled]:
    """Check the arguments of one cell and one direction; calling the result runs it. `name` is that of the state."""
    if sequence_length is not None:
        check_not_traced("an unroll with `sequence_length`", "its lengths")
    lengths = check_lengths(sequence_length, form.batch_size)
    device = _pytree.flatten(sequences)[0].device
    state = check_state(cell, initial_state, form.batch_size, options.dtype, device, name)
    # Only zeros past a length need a dtype; without lengths the outputs are what the cell returns.
    dtype = None if lengths is None and options.dtype is None else check_output_dtype(options.dtype, state)
    check_fits(cell, form, sequences, state)
    return partial(unroll, cell, form, sequences, lengths, state, replace(options, dtype=dtype))


def open_steps(inputs: Nest) -> tuple[BatchFormat, Nest]:
    """A list of steps as time-major sequences [T, B, ...]."""
    if not _pytree.is_nest(inputs) or isinstance(inputs, dict):
        raise TypeError(
            problem(
                "`inputs` must be a list of steps",
                got=type_name(inputs),
                expected="a list of T tensors [B, I]",
                fix="Split a tensor [B, T, I] with `x.unbind(1)`, or use tt.dynamic_rnn.",
            )
        )
    if not len(inputs):
        raise ValueError(
            problem(
                "`inputs` must not be empty",
                got="no step",
                expected="at least one step",
                fix="Pass a list of T tensors.",
            )
        )
    steps = [_pytree.conform(inputs[0], step, f"step {time} of `inputs`") for time, step in enumerate(inputs)]
    leaves = zip(*map(_pytree.flatten, steps), strict=True)
    sequences = _pytree.pack_as(inputs[0], [_stack(leaf_steps) for leaf_steps in leaves])
    return open_inputs(sequences, time_major=True, minimum_rank=2)


def _stack(steps: tuple[Any, ...]) -> Tensor:
    """One sequence [T, B, ...] of the steps [B, ...] of a leaf; nothing is broadcast, cast or moved on the way."""
    tensors = [as_tensor("inputs", step) for step in steps]
    first = tensors[0]
    for time, step in enumerate(tensors):
        if not step.ndim:
            what, fix = f"step {time} of `inputs` has no batch axis", "Pass tensors [B, I]."
            raise ValueError(problem(what, got="shape ()", expected="[B, I]", fix=fix))
        if step.shape != first.shape:
            what = f"step {time} of `inputs` differs in shape from step 0, so their dimensions are not compatible"
            fix = "Pad every step to the same batch and width."
            raise ValueError(problem(what, got=shape_of(step), expected=shape_of(first), fix=fix))
        if step.dtype != first.dtype:
            what = f"step {time} of `inputs` differs in dtype from step 0"
            fix = f"Convert it with `.to({first.dtype})`."
            raise TypeError(problem(what, got=step.dtype, expected=first.dtype, fix=fix))
        check_same_device(f"inputs[{time}]", step, "step 0", first)
    return torch.stack(tensors)


def split_steps(sequences: Nest) -> list[Nest]:
    """Time-major sequences as a list of steps."""
    leaves = [leaf.unbind(0) for leaf in _pytree.flatten(sequences)]
    return [_pytree.pack_as(sequences, step) for step in zip(*leaves, strict=True)]


@overload
def static_state_saving_rnn(
    cell: Cell[State],
    inputs: Nest,
    state_saver: Any,
    state_name: Any,
    sequence_length: Lengths = None,
    scope: str | None = None,
) -> tuple[list[Tensor], State]: ...
@overload
def static_state_saving_rnn(
    cell: Any,
    inputs: Nest,
    state_saver: Any,
    state_name: Any,
    sequence_length: Lengths = None,
    scope: str | None = None,
) -> tuple[list[Nest], Nest]: ...
def static_state_saving_rnn(
    cell: Any,
    inputs: Nest,
    state_saver: Any,
    state_name: Any,
    sequence_length: Lengths = None,
    scope: str | None = None,
) -> tuple[list[Nest], Nest]:
    """`static_rnn` from the state `state_saver.state(name)`; the final one goes to its `save_state(name, value)`.

    `state_name` is a name, or a nest of names, one for each tensor of the state: for carrying a state between the
    pieces of a long sequence. What is saved is the tensor itself: a saver that detaches it, as here, keeps gradients
    within a piece.

    >>> import torch, throughtime as tt
    >>> class Saver(dict):
    ...     state = dict.__getitem__
    ...     def save_state(self, name, value):
    ...         self[name] = value.detach()
    >>> saver = Saver(h=torch.zeros(4, 5))
    >>> outputs, state = tt.static_state_saving_rnn(tt.GRUCell(5), [torch.ones(4, 3)] * 2, saver, "h")
    >>> torch.equal(saver["h"], state)
    True
    """
    check_cell("cell", cell)
    if not all(callable(getattr(state_saver, method, None)) for method in ("state", "save_state")):
        what, fix = "`state_saver` must have `state` and `save_state`", "Give it both methods."
        expected = "an object with state(name) and save_state(name, value)"
        raise TypeError(problem(what, got=type_name(state_saver), expected=expected, fix=fix))
    names = _check_state_names(cell, state_name)
    saved = [state_saver.state(name) for name in names]
    if any(state is None for state in saved):
        missing = names[saved.index(None)]
        what, fix = "the `state_saver` has no state", "Save one before the first call, such as zeros."
        raise ValueError(problem(what, got=f"None for {missing!r}", expected="a tensor [B, ...]", fix=fix))
    initial = _pytree.pack_as(cell.state_size, saved)
    outputs, state = static_rnn(cell, inputs, initial_state=initial, sequence_length=sequence_length, scope=scope)
    for name, leaf in zip(names, _pytree.flatten(state), strict=True):
        state_saver.save_state(name, leaf)
    return outputs, state


def _check_state_names(cell: Any, state_name: Any) -> list[Any]:
    """The flat list of names, one for each leaf of the state and in the same order."""
    with contextlib.suppress(TypeError, ValueError):
        # In the structure of the state they go by key.
        state_name = _pytree.conform(cell.state_size, state_name, "`state_name`")
    names = _pytree.flatten(state_name)
    alike = _pytree.is_nest(state_name) == _pytree.is_nest(cell.state_size)
    if not alike or len(names) != len(_pytree.flatten(cell.state_size)):
        what = "`state_name` must name every part of `cell.state_size`"
        fix = "Give one name for each tensor of the state."
        got, expected = repr(state_name), _pytree.describe(cell.state_size)
        raise ValueError(problem(what, got=got, expected=expected, fix=fix))
    return names
