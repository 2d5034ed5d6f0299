"""One checked step: a cell, held to what it says of itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from throughtime import _pytree
from throughtime._errors import problem, shape_of, type_name
from throughtime._tensors import autocast_on, check_same_device, is_lazy
from throughtime._torch_internals import is_jit_tracing
from throughtime.cells._base import dims
from throughtime.cells._copies import call_on_copies, caller_on_copies
from throughtime.compiler import HOOKS


def is_row_leaf(leaf: Any) -> bool:
    """Whether a leaf of a state has one row for each sequence; scalars and TensorArrays pass through steps whole."""
    return isinstance(leaf, Tensor) and leaf.ndim > 0


def is_unbuilt(cell: Any) -> bool:
    """Whether some parameters of a cell are still to be made: its first call makes them."""
    return isinstance(cell, nn.Module) and any(is_lazy(parameter) for parameter in cell.parameters())


_CALL = nn.Module.__call__


def _without_hooks(cell: Any) -> Callable[[Any, Any], Any]:
    """What calls a cell: where no hook is to see that, its `forward`, which takes a microsecond less."""
    found: Callable[[Any, Any], Any] = cell
    is_module = isinstance(cell, nn.Module) and type(cell).__call__ is _CALL and nn.Module.__call__ is _CALL
    is_traced = torch.compiler.is_compiling() or is_jit_tracing()
    if is_module and not is_traced and cell._compiled_call_impl is None:
        hooked = any(map(vars(cell).get, HOOKS)) or nn.modules.module._has_any_global_hook()
        found = cell if hooked else cell.forward
    return found


class CheckedCell:
    """Calls a cell and checks what comes back, so that an error names the cell and not a distant stack or concat.

    `dtype` is that of the outputs; None takes whatever the cell gives.
    """

    def __init__(self, cell: Any, state: Any, dtype: torch.dtype | None) -> None:
        self.cell = cell
        self.dtype = dtype
        self._output_sizes = _pytree.flatten(cell.output_size)
        self._state = state
        self._state_leaves = _pytree.flatten(state)

    def __call__(self, inputs: Any, state: Any) -> tuple[Any, Any]:
        """`output, state` of the cell, in the structures of `output_size` and of the state it started with."""
        rows = next((leaf.shape[0] for leaf in _pytree.flatten(inputs)), None)
        return self._checked(call_on_copies(self.cell, inputs, state), rows)

    def for_rows(self, rows: int) -> Callable[[Any, Any], tuple[Any, Any]]:
        """The same for steps of `rows` rows, quicker: a result of the expected types and shapes is returned at once."""
        plain = not _pytree.is_nest(self.cell.output_size) and all(type(leaf) is Tensor for leaf in self._state_leaves)
        if plain and not _pytree.is_nest(self._state):
            return self._with_one_state(rows)
        if plain and isinstance(self._state, tuple) and not any(map(_pytree.is_nest, self._state)):
            return self._with_two_states(rows) if len(self._state) == 2 else self._with_several_states(rows)
        return self

    def _with_one_state(self, rows: int) -> Callable[[Any, Any], tuple[Any, Any]]:
        call, checked = caller_on_copies(self.cell, _without_hooks(self.cell)), self._checked
        shape, dtype = torch.Size((rows, *dims(self._output_sizes[0]))), self.dtype
        own, own_dtype, device = self._looks(self._state, rows)
        # Then what is right for one is right for the other.
        are_alike = (shape, dtype) == (own, own_dtype)

        def step(inputs: Any, state: Any) -> tuple[Any, Any]:
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

    def _with_two_states(self, rows: int) -> Callable[[Any, Any], tuple[Any, Any]]:
        """As `_with_several_states`, without a loop: most cells with several states have two."""
        call = caller_on_copies(self.cell, _without_hooks(self.cell), two_states=True)
        checked = self._checked
        shape, dtype = torch.Size((rows, *dims(self._output_sizes[0]))), self.dtype
        kind, looks = type(self._state), [self._looks(leaf, rows) for leaf in self._state]
        (shape_1, dtype_1, device_1), (shape_2, dtype_2, device_2) = looks
        # Then what is right for a state is right for an output that is the same tensor.
        alike_1, alike_2 = ((shape, dtype) == (own, own_dtype) for own, own_dtype, _ in looks)

        def is_right(output: Any, state: Any) -> bool:
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

        def step(inputs: Any, state: Any) -> tuple[Any, Any]:
            result = call(inputs, state)
            if type(result) is tuple and len(result) == 2 and is_right(*result):
                return result
            return checked(result, rows)

        return step

    def _with_several_states(self, rows: int) -> Callable[[Any, Any], tuple[Any, Any]]:
        call, checked = caller_on_copies(self.cell, _without_hooks(self.cell)), self._checked
        shape, dtype = torch.Size((rows, *dims(self._output_sizes[0]))), self.dtype
        kind, looks = type(self._state), [self._looks(leaf, rows) for leaf in self._state]
        count = len(looks)

        def step(inputs: Any, state: Any) -> tuple[Any, Any]:
            result = call(inputs, state)
            if type(result) is not tuple or len(result) != 2:
                return checked(result, rows)
            output, state = result
            if type(output) is not Tensor or output.shape != shape or output.dtype is not dtype:
                return checked(result, rows)
            if type(state) is not kind or len(state) != count:
                return checked(result, rows)
            for leaf, (own, own_dtype, device) in zip(state, looks, strict=False):
                if type(leaf) is not Tensor or leaf.shape != own or leaf.dtype is not own_dtype:
                    return checked(result, rows)
                if leaf.device != device:
                    return checked(result, rows)
            return output, state

        return step

    @staticmethod
    def _looks(leaf: Tensor, rows: int) -> tuple[torch.Size, torch.dtype, torch.device]:
        """What a leaf of the state must look like after a step."""
        return torch.Size((rows, *leaf.shape[1:]) if leaf.ndim else ()), leaf.dtype, leaf.device

    def _checked(self, result: Any, rows: int | None) -> tuple[Any, Any]:
        """What a cell has returned, as it must be."""
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

    def blank_output(self, batch_size: int, device: torch.device) -> Any:
        """The output of no step: zeros [batch_size, ...]."""
        return _pytree.map_leaves(
            lambda size: torch.zeros(batch_size, *dims(size), dtype=self.dtype, device=device), self.cell.output_size
        )

    @property
    def _name(self) -> str:
        return f"the cell {type(self.cell).__name__}"

    def _check_output(self, output: Any, rows: int | None) -> Any:
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

    def _check_tensor(self, what: str, leaf: Any, expected: Any) -> None:
        if not isinstance(leaf, Tensor):
            what = f"the {what} of {self._name} is no tensor"
            fix = "Return tensors from `forward`."
            raise TypeError(problem(what, got=type_name(leaf), expected=f"a tensor of shape {expected}", fix=fix))

    def _check_state(self, state: Any, rows: int | None) -> Any:
        pairs = zip(_pytree.flatten(state), self._state_leaves, strict=True)
        return _pytree.pack_as(state, [self._check_state_leaf(leaf, first, rows) for leaf, first in pairs])

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
