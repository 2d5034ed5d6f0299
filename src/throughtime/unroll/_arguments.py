"""The checks at the door of every unroll: nothing runs before they pass."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from throughtime import _nest
from throughtime._errors import InvalidArgumentError, check_dtype, check_positive_int, problem, shape_of, type_name
from throughtime.cells._base import RNNCell, check_cell, dims, initial_state

DEFAULT_PARALLEL_ITERATIONS = 32


def as_tensor(name: str, value: Any) -> Tensor:
    """`value` as a tensor without a change of dtype; numpy arrays and numbers are taken too."""
    if isinstance(value, Tensor):
        return value
    if isinstance(value, np.ndarray | np.generic | float | int | bool):
        return torch.as_tensor(value)
    raise TypeError(
        problem(
            f"`{name}` holds something that is no tensor",
            got=type_name(value),
            expected="tensors or numpy arrays",
            fix="Convert it with `torch.as_tensor`.",
        )
    )


def check_parallel_iterations(value: Any) -> int:
    """TensorFlow's rule: None and 0 mean the default."""
    if value is None:
        return DEFAULT_PARALLEL_ITERATIONS
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 0:
        raise TypeError(
            problem(
                "`parallel_iterations` must be a positive integer",
                got=repr(value),
                expected="an int of at least 1, or None",
                fix="Leave it out to let the engine choose.",
            )
        )
    return int(value) or DEFAULT_PARALLEL_ITERATIONS


def check_checkpoint_every(value: Any) -> int | None:
    """None, or how many steps to recompute at a time."""
    return None if value is None else check_positive_int("checkpoint_every", value)


def check_scope(scope: Any) -> str | None:
    """A scope is a name; variable scopes as objects belong to TensorFlow's graphs."""
    if scope is None or isinstance(scope, str):
        return scope
    raise TypeError(
        problem(
            "`scope` must be a name",
            got=type_name(scope),
            expected="a str or None",
            fix="It names the variables for checkpoints; the cell owns its parameters.",
        )
    )


def note_scope(cell: Any, scope: str) -> None:
    """As in TensorFlow, the first unroll decides under which name a cell's variables are known."""
    if isinstance(cell, RNNCell) and cell.variable_scope is None:
        cell.variable_scope = scope


def check_lengths(sequence_length: Any, batch_size: int) -> list[int] | None:
    """Lengths as a list of ints, one for each row, from any device; floats are truncated, as in TensorFlow."""
    if sequence_length is None:
        return None
    try:
        lengths = torch.as_tensor(sequence_length)
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(
            problem(
                "`sequence_length` must hold numbers",
                got=type_name(sequence_length),
                expected=f"a vector of {batch_size} ints",
                fix="Pass a list, an array or a tensor of whole numbers.",
            )
        ) from None
    expected = f"shape ({batch_size},)"
    fix = "Pass one length for each row of the batch."
    if lengths.ndim != 1:
        raise ValueError(
            problem(
                "`sequence_length` must be a vector of length batch_size",
                got=f"shape {shape_of(lengths)}",
                expected=expected,
                fix=fix,
            )
        )
    if lengths.shape[0] != batch_size:
        raise InvalidArgumentError(
            problem(
                "`sequence_length` must be a vector of length batch_size",
                got=f"shape {shape_of(lengths)}",
                expected=expected,
                fix=fix,
            )
        )
    if lengths.is_complex() or (lengths.is_floating_point() and not bool(lengths.isfinite().all())):
        raise InvalidArgumentError(
            problem(
                "`sequence_length` has values that are no lengths",
                got=lengths.tolist(),
                expected="whole numbers",
                fix="Remove NaN and Inf.",
            )
        )
    return lengths.long().tolist()


def check_state(cell: Any, initial: Any, batch_size: int, dtype: Any, device: torch.device) -> Any:
    """The state to start from, in the structure of `cell.state_size`: the one given, or the cell's own for `dtype`."""
    if initial is None:
        if dtype is None:
            raise ValueError(
                problem(
                    "If no `initial_state` is provided, `dtype` must be specified",
                    got="neither",
                    expected="one of the two",
                    fix="Pass `dtype=torch.float32`, or an `initial_state`.",
                )
            )
        with torch.device(device):
            return initial_state(cell, batch_size, check_dtype("dtype", dtype))
    state = _nest.conform(cell.state_size, initial, "`initial_state`")
    return _nest.map_up_to(lambda size, leaf: _as_state(leaf, size, batch_size, device), cell.state_size, state)


def _as_state(leaf: Any, size: Any, batch_size: int, device: torch.device) -> Any:
    if isinstance(leaf, np.ndarray | np.generic | float | int):
        leaf = as_tensor("initial_state", leaf).to(device)
    # A part without a size, such as a TensorArray, is taken as it is.
    if not isinstance(leaf, Tensor) or size == ():
        return leaf
    expected = (batch_size, *dims(size))
    # A scalar belongs to no row: it passes through every step whole.
    if leaf.ndim and shape_of(leaf) != expected:
        raise ValueError(
            problem(
                "`initial_state` has the wrong shape",
                got=shape_of(leaf),
                expected=expected,
                fix="Make it with `cell.zero_state(batch_size, dtype)`, with the batch size of the inputs.",
            )
        )
    return leaf


def check_output_dtype(dtype: Any, state: Any) -> torch.dtype:
    """The dtype of the outputs: the one asked for, else the one dtype of the state."""
    if dtype is not None:
        return check_dtype("dtype", dtype)
    dtypes = sorted({str(leaf.dtype) for leaf in _nest.flatten(state)})
    if len(dtypes) != 1:
        raise ValueError(
            problem(
                "the state has leaves of different inferred dtypes, so the dtype of the outputs is not known",
                got=", ".join(dtypes) or "no state",
                expected="one dtype",
                fix="Pass `dtype=`: it types the outputs, and the states keep theirs.",
            )
        )
    return _nest.flatten(state)[0].dtype  # type: ignore[no-any-return]


def check_dtypes_agree(dtype: torch.dtype, state: Any, inputs: Any) -> None:
    """A `dtype` that neither state nor inputs have is found before the first step."""
    found = {leaf.dtype for leaf in [*_nest.flatten(state), *_nest.flatten(inputs)] if isinstance(leaf, Tensor)}
    autocast = any(torch.is_autocast_enabled(leaf.device.type) for leaf in _nest.flatten(inputs))
    if len(found) == 1 and found != {dtype} and next(iter(found)).is_floating_point and not autocast:
        raise TypeError(
            problem(
                "`dtype` differs from that of `initial_state` and `inputs`",
                got=dtype,
                expected=found.pop(),
                fix="Leave `dtype` out, or convert the state and the inputs to it.",
            )
        )


__all__ = [
    "as_tensor",
    "check_cell",
    "check_checkpoint_every",
    "check_dtypes_agree",
    "check_lengths",
    "check_output_dtype",
    "check_parallel_iterations",
    "check_scope",
    "check_state",
    "note_scope",
]
