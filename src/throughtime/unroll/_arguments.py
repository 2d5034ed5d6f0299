"""The checks of arguments that all unrolls share: nothing runs before they pass."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, SupportsInt, TypeAlias

import numpy as np
import torch
from torch import Tensor

from throughtime import _pytree
from throughtime._errors import InvalidArgumentError, check_dtype, check_positive_int, problem, shape_of, type_name
from throughtime._pytree import Nest
from throughtime._tensors import as_tensor, autocast_on
from throughtime.cells._base import RNNCell, dims, initial_state
from throughtime.cells._cell_types import CellLike
from throughtime.cells._lstm import LSTMStateTuple

Lengths: TypeAlias = Tensor | np.ndarray[Any, Any] | Sequence[SupportsInt] | None
"""The lengths of sequences, as a caller passes them; None if all have all steps."""

_STATE_FIX = "Make one with `cell.zero_state(batch_size, dtype)`, for the batch size of the inputs."
_LSTM_FIX = (
    "A plain tuple is taken as `(c, h)`, as in TensorFlow; torch's is `(h, c)`, each [layers, B, H]. Say which is "
    "which: `tt.LSTMStateTuple(c=c_n[0], h=h_n[0])`."
)
_NUMBERS = (np.ndarray, np.number, float, int)


def check_parallel_iterations(value: Any) -> int | None:
    """TensorFlow's rule: None and 0 leave the choice to the engine."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 0:
        raise TypeError(
            problem(
                "`parallel_iterations` must be a positive integer",
                got=repr(value),
                expected="an int of at least 1, or None",
                fix="Leave it out to let the engine choose.",
            )
        )
    return int(value) or None


def check_checkpoint_every(value: Any) -> int | None:
    """None, or how many steps to recompute at a time."""
    return None if value is None else check_positive_int("checkpoint_every", value)


def note_scope(cell: CellLike | None, scope: str) -> None:
    """As in TensorFlow, the first unroll decides under which name a cell's variables are known."""
    if isinstance(cell, RNNCell) and cell.variable_scope is None:
        cell.variable_scope = scope


def check_lengths(sequence_length: Any, batch_size: int) -> list[int] | None:
    """Lengths as a list of ints, one for each row, from any device; floats are truncated, as in TensorFlow."""
    if sequence_length is None:
        return None
    # Plain numbers need no tensor, in which torch.compile could not see their values.
    if _are_lengths(sequence_length) and len(sequence_length) == batch_size:
        return list(sequence_length)
    if _are_ready(sequence_length, batch_size):
        ready: list[int] = sequence_length.tolist()
        return ready
    lengths = _lengths_tensor(sequence_length, batch_size)
    what = "`sequence_length` must be a vector of length batch_size"
    got, expected = f"shape {shape_of(lengths)}", f"shape ({batch_size},)"
    fix = "Pass one length for each row of the batch."
    if lengths.ndim == 2 and lengths.shape[0] == batch_size:
        fix += " The lengths of a mask [B, T] are `mask.sum(1)`."
    if lengths.ndim != 1:
        raise ValueError(problem(what, got=got, expected=expected, fix=fix))
    if lengths.shape[0] != batch_size:
        raise InvalidArgumentError(problem(what, got=got, expected=expected, fix=fix))
    if lengths.device.type == "meta":
        what, fix = "`sequence_length` has no values", "Pass it as a list, or on a real device."
        raise InvalidArgumentError(problem(what, got="a tensor on the meta device", expected="known lengths", fix=fix))
    # Reading a tensor on a GPU synchronises: once.
    numbers = lengths.tolist()
    if lengths.is_complex() or (lengths.is_floating_point() and not all(map(math.isfinite, numbers))):
        what, fix = "`sequence_length` has values that are no lengths", "Remove NaN and Inf."
        raise InvalidArgumentError(problem(what, got=numbers, expected="whole numbers", fix=fix))
    # Python's ints hold any length: also those of uint64, and of floats beyond int64.
    return [int(length) for length in numbers]


def lengths_at_hand(sequence_length: Any) -> Any:
    """Lengths that are read more than once: those on a GPU are copied to the host, others are returned as they are."""
    return sequence_length.cpu() if type(sequence_length) is Tensor and sequence_length.is_cuda else sequence_length


def _are_lengths(sequence_length: Any) -> bool:
    return type(sequence_length) is list and all(type(length) is int for length in sequence_length)


def _are_ready(sequence_length: Any, batch_size: int) -> bool:
    """Whether lengths are int64 on the CPU, one for each row: the common case, which needs no check."""
    return (
        type(sequence_length) is Tensor
        and not torch.compiler.is_compiling()
        and sequence_length.dtype is torch.int64
        and sequence_length.layout is torch.strided
        and sequence_length.shape == (batch_size,)
        and sequence_length.device.type == "cpu"
    )


def _lengths_tensor(sequence_length: Any, batch_size: int) -> Tensor:
    """Lengths as a tensor, from a tensor, an array or a list."""
    if isinstance(sequence_length, list | tuple | range):
        try:
            return torch.as_tensor(sequence_length)
        except (TypeError, ValueError, RuntimeError):
            what, fix = "`sequence_length` must hold numbers", "Pass a list, an array or a tensor of whole numbers."
            got, expected = repr(sequence_length), f"a vector of {batch_size} ints"
            if any(isinstance(leaf, Tensor) and leaf.ndim for leaf in _pytree.flatten(sequence_length)):
                got, fix = ", ".join(map(type_name, sequence_length)), "Pass a state by name, as `initial_state=`."
            raise TypeError(problem(what, got=got, expected=expected, fix=fix)) from None
    return as_tensor("sequence_length", sequence_length)


def check_state(
    cell: CellLike, initial: Nest, batch_size: int, dtype: Any, device: torch.device, name: str = "initial_state"
) -> Nest:
    """The state to start from, in the structure of `cell.state_size`: the one given, or the cell's own for `dtype`."""
    what = f"`{name}`"
    if initial is None:
        if dtype is None:
            missing = f"If no `{name}` is provided, `dtype` must be specified"
            fix = f"Pass `dtype=torch.float32`, or `{name}`."
            raise ValueError(problem(missing, got="neither", expected="one of the two", fix=fix))
        what = f"the zero state of {type(cell).__name__}"
        dtype = check_dtype("dtype", dtype)
        # torch.compile can trace neither the question which device is the default, nor another default for a while.
        if torch.compiler.is_compiling():
            made = initial_state(cell, batch_size, dtype)
            initial = _pytree.map_leaves(lambda leaf: leaf.to(device) if isinstance(leaf, Tensor) else leaf, made)
        elif device.type == "cpu" and torch.get_default_device().type == "cpu":
            initial = initial_state(cell, batch_size, dtype)
        else:
            with torch.device(device):
                initial = initial_state(cell, batch_size, dtype)
    _pytree.check_nested(cell.state_size, initial, what)
    return fit_state(cell.state_size, initial, batch_size, device, what)


def fit_state(state_size: Nest, state: Nest, batch_size: int, device: torch.device, what: str) -> Nest:
    """A state in the structure of `state_size`, every leaf with one row for each sequence of the batch."""
    fix = _LSTM_FIX if _may_be_torchs(state_size, state) else _STATE_FIX
    state = _pytree.conform(state_size, state, what)
    return _pytree.map_up_to(lambda size, leaf: _fit_leaf(leaf, size, batch_size, device, what, fix), state_size, state)


def _may_be_torchs(state_size: Nest, state: Nest) -> bool:
    """Whether a plain tuple is given for the `(c, h)` of an LSTM: torch's is `(h, c)`, of all layers."""
    if isinstance(state_size, LSTMStateTuple):
        return type(state) in (tuple, list)
    if type(state_size) not in (tuple, list) or type(state) not in (tuple, list):
        return False
    return any(_may_be_torchs(*pair) for pair in zip(state_size, state, strict=False))


def _fit_leaf(leaf: Any, size: Any, batch_size: int, device: torch.device, what: str, fix: str) -> Any:
    # A part without a size, such as a TensorArray, is taken as it is.
    if isinstance(size, tuple) and not isinstance(size, torch.Size):
        return leaf
    expected = (batch_size, *dims(size))
    # A tuple of types: torch.compile cannot trace their union.
    if isinstance(leaf, _NUMBERS):
        leaf = as_tensor(what.strip("`"), leaf).to(device)
    if not isinstance(leaf, Tensor):
        what = f"{what} holds something that is no tensor"
        raise TypeError(problem(what, got=type_name(leaf), expected=f"a tensor of shape {expected}", fix=fix))
    leaf = as_tensor(what.strip("`"), leaf)
    # A scalar belongs to no row: it passes through every step whole.
    scalar = isinstance(size, torch.Size) and not size and not leaf.ndim
    if not scalar and shape_of(leaf) != expected:
        if shape_of(leaf) == (1, *expected):
            fix = "States of torch.nn have an axis of layers: take `h[0]`, of an LSTM `tt.LSTMStateTuple(c[0], h[0])`."
        raise ValueError(problem(f"{what} has the wrong shape", got=shape_of(leaf), expected=expected, fix=fix))
    return leaf


def check_output_dtype(dtype: Any, state: Nest) -> torch.dtype:
    """The dtype of the outputs: the one asked for, else the one dtype of the state."""
    if dtype is not None:
        return check_dtype("dtype", dtype)
    dtypes = sorted({str(leaf.dtype) for leaf in _pytree.flatten(state)})
    if len(dtypes) != 1:
        raise ValueError(
            problem(
                "the state has leaves of different inferred dtypes, so the dtype of the outputs is not known",
                got=", ".join(dtypes) or "no state",
                expected="one dtype",
                fix="Pass `dtype=`: it types the outputs, and the states keep theirs.",
            )
        )
    found: torch.dtype = _pytree.flatten(state)[0].dtype
    return found


def check_dtypes_agree(dtype: torch.dtype, state: Nest, inputs: Nest) -> None:
    """A floating point `dtype` that neither state nor inputs have is found before the first step."""
    leaves = [leaf for leaf in _pytree.flatten([state, inputs]) if isinstance(leaf, Tensor)]
    found = {leaf.dtype for leaf in leaves}
    clash = len(found) == 1 and found != {dtype} and dtype.is_floating_point and next(iter(found)).is_floating_point
    if clash and not any(autocast_on(leaf.device) for leaf in leaves):
        what = "`dtype` differs from that of the state and of `inputs`"
        fix = "Leave `dtype` out, or convert the state and the inputs to it."
        raise TypeError(problem(what, got=dtype, expected=found.pop(), fix=fix))
