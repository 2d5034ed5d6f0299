"""One checked step: a cell, held to what it says of itself."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from throughtime import _nest
from throughtime._errors import problem, shape_of, type_name
from throughtime._tensors import autocast_on, check_same_device, is_lazy
from throughtime.cells._base import dims
from throughtime.cells._copies import call_on_copies


def is_row_leaf(leaf: Any) -> bool:
    """Whether a leaf of a state has one row for each sequence; scalars and TensorArrays pass through steps whole."""
    return isinstance(leaf, Tensor) and leaf.ndim > 0


def is_unbuilt(cell: Any) -> bool:
    """Whether some parameters of a cell are still to be made: its first call makes them."""
    return isinstance(cell, nn.Module) and any(is_lazy(parameter) for parameter in cell.parameters())


class Step:
    """Calls a cell and checks what comes back, so that an error names the cell and not a distant stack or concat.

    `dtype` is that of the outputs; None takes whatever the cell gives.
    """

    def __init__(self, cell: Any, state: Any, dtype: torch.dtype | None) -> None:
        self.cell = cell
        self.dtype = dtype
        self._output_sizes = _nest.flatten(cell.output_size)
        self._state = state
        self._state_leaves = _nest.flatten(state)

    def __call__(self, inputs: Any, state: Any) -> tuple[Any, Any]:
        """`output, state` of the cell, in the structures of `output_size` and of the state it started with."""
        result = call_on_copies(self.cell, inputs, state)
        if not isinstance(result, tuple | list) or len(result) != 2:
            raise TypeError(
                problem(
                    f"{self._name} must return a pair",
                    got=type_name(result),
                    expected="(output, state)",
                    fix="End the cell with `return output, state`.",
                )
            )
        output = _nest.conform(self.cell.output_size, result[0], f"the output of {self._name}")
        new_state = _nest.conform(self._state, result[1], f"the state returned by {self._name}")
        rows = next((leaf.shape[0] for leaf in _nest.flatten(inputs)), None)
        return self._check_output(output, rows), self._check_state(new_state, rows)

    def blank_output(self, batch_size: int, device: torch.device) -> Any:
        """The output of no step: zeros [batch_size, ...]."""
        return _nest.map_leaves(
            lambda size: torch.zeros(batch_size, *dims(size), dtype=self.dtype, device=device), self.cell.output_size
        )

    @property
    def _name(self) -> str:
        return f"the cell {type(self.cell).__name__}"

    def _check_output(self, output: Any, rows: int | None) -> Any:
        leaves = []
        for leaf, size in zip(_nest.flatten(output), self._output_sizes, strict=True):
            expected = (rows, *dims(size))
            self._check_tensor("output", leaf, expected)
            if shape_of(leaf) != expected:
                what = f"Inconsistent shapes: the output of {self._name} does not fit its `output_size`"
                fix = "Correct `output_size`, or the output that `forward` returns."
                raise ValueError(problem(what, got=shape_of(leaf), expected=expected, fix=fix))
            leaves.append(self._typed("output", leaf, self.dtype, "`dtype`"))
        return _nest.pack_as(output, leaves)

    def _check_tensor(self, what: str, leaf: Any, expected: Any) -> None:
        if not isinstance(leaf, Tensor):
            what = f"the {what} of {self._name} is no tensor"
            fix = "Return tensors from `forward`."
            raise TypeError(problem(what, got=type_name(leaf), expected=f"a tensor of shape {expected}", fix=fix))

    def _check_state(self, state: Any, rows: int | None) -> Any:
        pairs = zip(_nest.flatten(state), self._state_leaves, strict=True)
        return _nest.pack_as(state, [self._check_state_leaf(leaf, first, rows) for leaf, first in pairs])

    def _check_state_leaf(self, leaf: Any, first: Any, rows: int | None) -> Any:
        """A leaf has the shape and the dtype of the one that entered the loop; a TensorArray is its own business."""
        if not isinstance(first, Tensor):
            return leaf
        expected = (rows, *first.shape[1:]) if is_row_leaf(first) else ()
        self._check_tensor("state", leaf, expected)
        if shape_of(leaf) != expected:
            what = f"a state of {self._name} enters the loop with one shape but has another after one step"
            fix = "Return a state of the shape that came in."
            raise ValueError(problem(what, got=shape_of(leaf), expected=expected, fix=fix))
        check_same_device("state", leaf, "the state before it", first)
        return self._typed("state", leaf, first.dtype, "the state it started with")

    def _typed(self, what: str, leaf: Tensor, dtype: torch.dtype | None, whose: str) -> Tensor:
        """`leaf` if it has the dtype it must have; autocast, which changes dtypes on purpose, is undone."""
        if dtype is None or leaf.dtype == dtype:
            return leaf
        if autocast_on(leaf.device):
            return leaf.to(dtype)
        raise TypeError(
            problem(
                f"the {what} of {self._name} has another dtype than {whose}",
                got=leaf.dtype,
                expected=dtype,
                fix=f"Convert it in the cell with `.to({dtype})`, or ask for `dtype={leaf.dtype}`.",
            )
        )
