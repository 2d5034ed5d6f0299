"""A cell call whose results are checked against the sizes that the cell declares."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from throughtime import _pytree
from throughtime._errors import problem, shape_of, type_name
from throughtime._pytree import Nest
from throughtime._tensors import autocast_on, check_same_device, is_lazy
from throughtime._torch_internals import is_jit_tracing
from throughtime.cells._base import dims
from throughtime.cells._cell_types import CellLike
from throughtime.cells._copies import call_on_copies, caller_on_copies
from throughtime.compiler import HOOKS

Step = Callable[[Nest, Nest], tuple[Nest, Nest]]
"""One step: from inputs and a state to an output and the next state."""


def is_row_leaf(leaf: Any) -> bool:
    """Whether a leaf of a state has one row for each sequence; scalars and TensorArrays have none."""
    return isinstance(leaf, Tensor) and leaf.ndim > 0


def is_unbuilt(cell: CellLike) -> bool:
    """Whether a cell has uninitialised parameters, which its first call makes."""
    return isinstance(cell, nn.Module) and any(is_lazy(parameter) for parameter in cell.parameters())


_CALL = nn.Module.__call__


def _without_hooks(cell: CellLike) -> Callable[[Nest, Nest], Any]:
    """The function that calls a cell: its `forward` if there are no hooks, which takes a microsecond less."""
    found: Callable[[Nest, Nest], Any] = cell
    if not isinstance(cell, nn.Module) or type(cell).__call__ is not _CALL or nn.Module.__call__ is not _CALL:
        return found
    is_traced = torch.compiler.is_compiling() or is_jit_tracing()
    if not is_traced and cell._compiled_call_impl is None:
        hooked = any(map(vars(cell).get, HOOKS)) or nn.modules.module._has_any_global_hook()
        found = cell if hooked else cell.forward
    return found


class CheckedCell:
    """Calls a cell and checks its results, so that an error names the cell and not a later stack or concat.

    `dtype` is that of the outputs; None accepts any.
    """

    def __init__(self, cell: CellLike, state: Nest, dtype: torch.dtype | None) -> None:
        self.cell = cell
        self.dtype = dtype
        self._output_sizes = _pytree.flatten(cell.output_size)
        self._state = state
        self._state_leaves = _pytree.flatten(state)

    def __call__(self, inputs: Nest, state: Nest) -> tuple[Nest, Nest]:
        """`output, state` of the cell, in the structures of `output_size` and of the state it started with."""
        rows = next((leaf.shape[0] for leaf in _pytree.flatten(inputs)), None)
        return self._checked(call_on_copies(self.cell, inputs, state), rows)

    def for_rows(self, rows: int) -> Step:
        """The same for steps of `rows` rows, faster: the common structures have a check of their own."""
        plain = not _pytree.is_nest(self.cell.output_size) and all(type(leaf) is Tensor for leaf in self._state_leaves)
        if plain and not _pytree.is_nest(self._state):
            return self._with_one_state(rows)
        if plain and isinstance(self._state, tuple) and not any(map(_pytree.is_nest, self._state)):
            return self._with_two_states(rows) if len(self._state) == 2 else self._with_several_states(rows)
        return self

    def _with_one_state(self, rows: int) -> Step:
        call, checked = caller_on_copies(self.cell, _without_hooks(self.cell)), self._checked
        shape, dtype = torch.Size((rows, *dims(self._output_sizes[0]))), self.dtype
        own, own_dtype, device = self._spec(self._state, rows)
        # Then one check serves both.
        are_alike = (shape, dtype) == (own, own_dtype)

        def step(inputs: Nest, state: Nest) -> tuple[Nest, Nest]:
            result = call(inputs, state)
            if type(result) is not tuple or len(result) != 2:
                return checked(result, rows)
            output, state = result
            if type(state) is not Tensor or state.shape != own or state.dtype is not own_dtype:
                return checked(result, rows)
            if state.device != device:
                return checked(result, rows)
            if output is state and are_alike:
                return output, state
            if type(output) is not Tensor or output.shape != shape or output.dtype is not dtype:
                return checked(result, rows)
            return output, state

        return step

    def _with_two_states(self, rows: int) -> Step:
        """As `_with_several_states`, without a loop: most cells with several states have two."""
        call = caller_on_copies(self.cell, _without_hooks(self.cell), two_states=True)
        checked = self._checked
        shape, dtype = torch.Size((rows, *dims(self._output_sizes[0]))), self.dtype
        kind, specs = type(self._state), [self._spec(leaf, rows) for leaf in self._state]
        (shape_1, dtype_1, device_1), (shape_2, dtype_2, device_2) = specs
        # Then one check serves both a state and an output that is the same tensor.
        alike_1, alike_2 = ((shape, dtype) == (own, own_dtype) for own, own_dtype, _ in specs)

        def is_right(output: Nest, state: Nest) -> bool:
            if type(state) is not kind or len(state) != 2:
                return False
            first, second = state
            if type(first) is not Tensor or type(second) is not Tensor:
                return False
            if first.shape != shape_1 or first.dtype is not dtype_1 or first.device != device_1:
                return False
            if second.shape != shape_2 or second.dtype is not dtype_2 or second.device != device_2:
                return False
            if (output is second and alike_2) or (output is first and alike_1):
                return True
            return type(output) is Tensor and output.shape == shape and output.dtype is dtype

        def step(inputs: Nest, state: Nest) -> tuple[Nest, Nest]:
            result = call(inputs, state)
            if type(result) is tuple and len(result) == 2 and is_right(*result):
                return result
            return checked(result, rows)

        return step

    def _with_several_states(self, rows: int) -> Step:
        call, checked = caller_on_copies(self.cell, _without_hooks(self.cell)), self._checked
        shape, dtype = torch.Size((rows, *dims(self._output_sizes[0]))), self.dtype
        kind, specs = type(self._state), [self._spec(leaf, rows) for leaf in self._state]
        count = len(specs)

        def step(inputs: Nest, state: Nest) -> tuple[Nest, Nest]:
            result = call(inputs, state)
            if type(result) is not tuple or len(result) != 2:
                return checked(result, rows)
            output, state = result
            if type(output) is not Tensor or output.shape != shape or output.dtype is not dtype:
                return checked(result, rows)
            if type(state) is not kind or len(state) != count:
                return checked(result, rows)
            for leaf, (own, own_dtype, device) in zip(state, specs, strict=False):
                if type(leaf) is not Tensor or leaf.shape != own or leaf.dtype is not own_dtype:
                    return checked(result, rows)
                if leaf.device != device:
                    return checked(result, rows)
            return output, state

        return step

    @staticmethod
    def _spec(leaf: Tensor, rows: int) -> tuple[torch.Size, torch.dtype, torch.device]:
        """The shape, dtype and device of a leaf of the state after a step."""
        return torch.Size((rows, *leaf.shape[1:]) if leaf.ndim else ()), leaf.dtype, leaf.device

    def _checked(self, result: Any, rows: int | None) -> tuple[Nest, Nest]:
        """The output and the state that a cell has returned; raises if they do not fit."""
        if not isinstance(result, tuple | list) or len(result) != 2:
            raise TypeError(
                problem(
                    f"{self._name} must return a pair",
                    got=type_name(result),
                    expected="(output, state)",
                    fix="End the cell with `return output, state`.",
                )
            )
        output = _pytree.conform(self.cell.output_size, result[0], f"the output of {self._name}")
        new_state = _pytree.conform(self._state, result[1], f"the state returned by {self._name}")
        return self._check_output(output, rows), self._check_state(new_state, rows)

    def blank_output(self, batch_size: int, device: torch.device) -> Nest:
        """Zeros [batch_size, ...] like an output."""
        return _pytree.map_leaves(
            lambda size: torch.zeros(batch_size, *dims(size), dtype=self.dtype, device=device), self.cell.output_size
        )

    @property
    def _name(self) -> str:
        return f"the cell {type(self.cell).__name__}"

    def _check_output(self, output: Nest, rows: int | None) -> Nest:
        leaves = []
        for leaf, size in zip(_pytree.flatten(output), self._output_sizes, strict=True):
            expected = (rows, *dims(size))
            self._check_tensor("output", leaf, expected)
            if shape_of(leaf) != expected:
                what = f"Inconsistent shapes: the output of {self._name} does not fit its `output_size`"
                fix = "Correct `output_size`, or the output that `forward` returns."
                raise ValueError(problem(what, got=shape_of(leaf), expected=expected, fix=fix))
            leaves.append(self._typed("output", leaf, self.dtype, "`dtype`"))
        return _pytree.pack_as(output, leaves)

    def _check_tensor(self, what: str, leaf: Any, expected: tuple[int | None, ...]) -> None:
        if not isinstance(leaf, Tensor):
            what = f"the {what} of {self._name} is no tensor"
            fix = "Return tensors from `forward`."
            raise TypeError(problem(what, got=type_name(leaf), expected=f"a tensor of shape {expected}", fix=fix))

    def _check_state(self, state: Nest, rows: int | None) -> Nest:
        pairs = zip(_pytree.flatten(state), self._state_leaves, strict=True)
        return _pytree.pack_as(state, [self._check_state_leaf(leaf, first, rows) for leaf, first in pairs])

    def _check_state_leaf(self, leaf: Any, first: Any, rows: int | None) -> Any:
        """A leaf must have the shape and the dtype of the one that entered the loop; a TensorArray is not checked."""
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

    def _typed(self, what: str, leaf: Tensor, dtype: torch.dtype | None, than: str) -> Tensor:
        """`leaf`, if it has the required dtype; a dtype that autocast has changed is converted back."""
        if dtype is None or leaf.dtype == dtype:
            return leaf
        if autocast_on(leaf.device):
            return leaf.to(dtype)
        raise TypeError(
            problem(
                f"the {what} of {self._name} has another dtype than {than}",
                got=leaf.dtype,
                expected=dtype,
                fix=f"Convert it in the cell with `.to({dtype})`, or ask for `dtype={leaf.dtype}`.",
            )
        )
