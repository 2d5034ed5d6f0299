"""What a cell is: one step of a recurrent network."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from throughtime import _pytree
from throughtime._errors import (
    check_device,
    check_dtype,
    check_flag,
    check_name,
    check_positive_int,
    problem,
    shape_of,
    type_name,
)
from throughtime._object_registry import find_object, object_number
from throughtime._tensors import is_lazy
from throughtime.cells._lazy_build import await_first_step, awaits_first_step, build_once, noting, placed, repeatable
from throughtime.cells._scripting import NotScriptable
from throughtime.cells._unknown_arguments import CheckedArguments

Size = Any
"""An int (features of a row), a `torch.Size` (dimensions of a row), or a nest of these."""


_Method = TypeVar("_Method", bound=Callable[..., Any])


def find_cell(number: int) -> RNNCell | None:
    """The cell with a number, by which compiled graphs refer to it; None if it does not exist any more."""
    found = find_object(number)
    return found if isinstance(found, RNNCell) else None


def not_looking(check_values: Callable[..., None]) -> Callable[..., None]:
    """Mark a `check_values` that does not look at values itself: no rows need to be gathered for it."""
    check_values.is_not_looking = True  # type: ignore[attr-defined]
    return check_values


def zeros_of(inside: Callable[[Any], Iterable[Any]]) -> Callable[[_Method], _Method]:
    """Mark a method that makes nothing but zeros if the cells `inside` do, so that its result can be reused."""

    def mark(method: _Method) -> _Method:
        method.zeros_of = inside  # type: ignore[attr-defined]
        return method

    return mark


class RNNCell(CheckedArguments, NotScriptable, nn.Module):
    """One step of a recurrent network: `output, state = cell(inputs, state)`.

    To write a cell, set `state_size` and `output_size` and define `forward`. A size is an int (a row of that
    many features), a `torch.Size` (a row of those dimensions), or a nest of these. A cell treats the rows of a batch
    independently of each other: that is what lets rows that have ended drop out of the loop.

    Any object with `state_size`, `output_size`, `zero_state` (or `get_initial_state`) that can be called
    is a cell too; inheriting only adds `zero_state`, `get_initial_state` and what `nn.Module` gives.

    >>> import torch, throughtime as tt
    >>> class Average(tt.RNNCell):
    ...     def __init__(self, size):
    ...         super().__init__()
    ...         self.state_size = self.output_size = size
    ...     def forward(self, inputs, state):
    ...         state = 0.5 * state + 0.5 * inputs
    ...         return state, state
    >>> outputs, state = tt.dynamic_rnn(Average(1), torch.ones(1, 3, 1), dtype=torch.float32)
    >>> outputs.flatten().tolist()
    [0.5, 0.75, 0.875]
    """

    state_size: Size
    output_size: Size
    # Attributes that do not change what a step computes, or not for longer than a sequence.
    unwatched: frozenset[str] = frozenset({"name", "variable_scope", "number"})

    def __init__(self, name: str | None = None) -> None:
        super().__init__()
        self.name = check_name("name", name) or snake_case(type(self).__name__)
        # Where TensorFlow would keep the variables; the first unroll decides (see `interop.tf_variables`).
        self.variable_scope: str | None = None
        self.number = self._registered()
        await_first_step(self)

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        # It may come from another class that is none of a cell.
        if noting(cls.build) is not cls.build:
            cls.build = noting(cls.build)  # type: ignore[method-assign]

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        # A copy is a cell of its own.
        self.number = self._registered()

    def _registered(self) -> int:
        number = object_number(self)
        assert number is not None
        return number

    def forward(self, inputs: Any, state: Any) -> tuple[Any, Any]:
        """One step for `inputs` [B, I] and `state` [B, S]: the output [B, O] and the next state."""
        raise NotImplementedError(f"{type(self).__name__} must define forward(inputs, state) -> (output, state)")

    @repeatable
    def build(self, inputs_shape: Any, *, dtype: torch.dtype | None = None, device: Any = None) -> None:
        """Create the parameters that depend on the input size; here there are none.

        Called once, before the first step, for inputs of shape `inputs_shape` [B, I]. `dtype` and `device` may be left
        out of the signature.
        """

    def _features_of(self, inputs: Any) -> Tensor | None:
        """What of the inputs of a step `build` is told the shape of; here the one tensor that they are."""
        return inputs if isinstance(inputs, Tensor) else None

    def check_step(self, inputs: Any, state: Any) -> None:
        """Raise if `inputs` and `state` do not fit the cell; here anything does until `forward` says otherwise."""

    @not_looking
    def check_values(self, inputs: Any) -> None:
        """Raise if the values of `inputs`, the rows [N, ...] of all steps, do not fit; here any values do."""

    def begin_sequence(self) -> None:
        """Called once before each unroll; cells that draw something once per sequence override it."""

    @zeros_of(lambda _: ())
    def zero_state(self, batch_size: int, dtype: torch.dtype, device: Any = None) -> Any:
        """Zeros of shape [batch_size, ...] for every leaf of `state_size`."""
        batch_size = check_positive_int("batch_size", batch_size, minimum=0)
        dtype = check_dtype("dtype", dtype)
        _check_sizes("cell.state_size", self.state_size)
        device = device_of(self) if device is None else check_device("device", device)
        return _pytree.map_leaves(
            lambda size: torch.zeros(batch_size, *dims(size), dtype=dtype, device=device), self.state_size
        )

    @zeros_of(lambda _: ())
    def get_initial_state(
        self, inputs: Any = None, batch_size: int | None = None, dtype: torch.dtype | None = None
    ) -> Any:
        """The zero state; `inputs` [B, ...], if given, says the batch size and the dtype."""
        if inputs is not None:
            if not isinstance(inputs, Tensor) or not inputs.ndim:
                expected, fix = "a tensor [B, ...]", "Pass one tensor, or `batch_size` and `dtype`."
                raise TypeError(problem("`inputs` must be a tensor", got=type_name(inputs), expected=expected, fix=fix))
            batch_size = _agree("batch_size", batch_size, inputs.shape[0])
            dtype = _agree("dtype", dtype, inputs.dtype)
        if batch_size is None or dtype is None:
            raise ValueError(
                problem(
                    "get_initial_state needs both `batch_size` and `dtype`",
                    got=f"batch_size={batch_size}, dtype={dtype}",
                    expected="both",
                    fix="Pass them, or pass `inputs` to take them from.",
                )
            )
        return self.zero_state(batch_size, dtype)


def _agree(name: str, given: Any, from_inputs: Any) -> Any:
    if given is not None and given != from_inputs:
        raise ValueError(
            problem(
                f"`{name}` differs from that of `inputs`",
                got=given,
                expected=from_inputs,
                fix=f"Leave `{name}` out, or make the two agree.",
            )
        )
    return from_inputs


def check_cell(name: str, cell: Any) -> None:
    """Raise a `TypeError` unless `cell` has what an unroll needs of a cell."""
    if isinstance(cell, type):
        fix = f"Call it first, as in `{cell.__name__}(num_units)`."
        raise TypeError(
            problem(f"`{name}` is not an RNNCell but a class", got=type_name(cell), expected="an instance", fix=fix)
        )
    if isinstance(cell, nn.Module) and "_parameters" not in vars(cell):
        what, fix = f"`{name}` was never initialised", "Call `super().__init__()` first in its `__init__`."
        got = f"{type(cell).__name__} without `super().__init__()`"
        raise TypeError(problem(what, got=got, expected="an initialised module", fix=fix))
    missing = [attribute for attribute in ("state_size", "output_size") if not hasattr(cell, attribute)]
    if not any(callable(getattr(cell, maker, None)) for maker in ("zero_state", "get_initial_state")):
        missing.append("zero_state (or get_initial_state)")
    if not callable(cell):
        missing.append("__call__")
    if missing:
        raise TypeError(
            problem(
                f"`{name}` is not an RNNCell",
                got=f"{type_name(cell)} without {', '.join(missing)}",
                expected="a tt.RNNCell, or any callable with state_size, output_size and zero_state",
                fix=_instead_of(cell),
            )
        )
    _check_sizes(f"{name}.state_size", cell.state_size)
    _check_sizes(f"{name}.output_size", cell.output_size)
    if not _pytree.flatten(cell.output_size):
        fix = "Use `torch.Size([])` for one number a row."
        raise ValueError(
            problem(f"`{name}.output_size` names no tensor", got=cell.output_size, expected="a size", fix=fix)
        )


_INSTEAD: list[tuple[Any, str]] = [
    (nn.RNNBase, "Make a cell, as in `tt.LSTMCell(64)`, or call `tt.nn.LSTM`: torch's modules unroll by themselves."),
    (nn.RNNCellBase, "Make a cell of this package, as in `tt.LSTMCell(64)`."),
    (
        list | tuple | nn.Sequential | nn.ModuleList,
        "Stack cells: `tt.MultiRNNCell([tt.LSTMCell(64), tt.LSTMCell(64)])`.",
    ),
    (Tensor | np.ndarray, "Pass the cell first, then the inputs: `tt.dynamic_rnn(cell, inputs)`."),
    (int, "Make a cell first, as in `tt.LSTMCell(64)`; torch's modules of sizes are `tt.nn.LSTM` and the like."),
    (object, "Add what is missing, or inherit from tt.RNNCell."),
]


def _instead_of(cell: Any) -> str:
    """What to pass instead of something that is no cell."""
    if isinstance(cell, nn.RNNBase) and hasattr(cell, "cell"):
        return "Pass one of its layers, as in `module.cell(0)`; the module unrolls by itself."
    if isinstance(getattr(cell, "cell", None), RNNCell):
        return "Pass the cell inside, `module.cell`; the module unrolls by itself."
    return next(fix for kinds, fix in _INSTEAD if isinstance(cell, kinds))


def _check_sizes(name: str, sizes: Size) -> None:
    """Raise unless every leaf is the size of a row: an int, or a `torch.Size`."""
    for size in _pytree.flatten(sizes):
        whole = isinstance(size, int | np.integer) and not isinstance(size, bool)
        if not whole and not isinstance(size, torch.Size):
            expected, fix = "an int or a torch.Size", "Say how many features a row has, or its dimensions."
            raise TypeError(problem(f"`{name}` has a leaf that is no size", got=repr(size), expected=expected, fix=fix))
        if whole and size < 0:
            fix = "A row has at least 0 features."
            raise ValueError(problem(f"`{name}` is negative", got=size, expected="an int of at least 0", fix=fix))


def initial_state(cell: Any, batch_size: int, dtype: torch.dtype) -> Any:
    """The state a cell starts from; as in TensorFlow, `get_initial_state` wins over `zero_state`."""
    if callable(getattr(cell, "get_initial_state", None)):
        return cell.get_initial_state(inputs=None, batch_size=batch_size, dtype=dtype)
    return cell.zero_state(batch_size, dtype)


def starts_from_zeros(cell: Any) -> bool:
    """Whether the state that a cell makes to begin with is nothing but zeros, however often it is asked."""
    if not isinstance(cell, RNNCell):
        return False
    for name in ("zero_state", "get_initial_state"):
        # Neither its class nor the cell itself has another.
        inside = None if name in vars(cell) else getattr(getattr(type(cell), name), "zeros_of", None)
        if inside is None or not all(map(starts_from_zeros, inside(cell))):
            return False
    return True


def begin_sequence(cell: Any) -> None:
    """Tell every cell inside `cell` that an unroll begins."""
    for module in cell.modules() if isinstance(cell, nn.Module) else ():
        if isinstance(module, RNNCell):
            module.begin_sequence()


def is_lazy_cell(cell: Any) -> bool:
    """Whether some parameters of a cell are still to be made, or have been made without a first call."""
    modules = cell.modules() if isinstance(cell, nn.Module) else ()
    return any(map(awaits_first_step, modules))


def has_own_checks(cell: Any) -> bool:
    """Whether a cell, or one inside of it, looks at the values of its inputs."""
    modules = cell.modules() if isinstance(cell, nn.Module) else ()
    return any(isinstance(module, RNNCell) and not hasattr(module.check_values, "is_not_looking") for module in modules)


def build_for(cell: Any, inputs: Any, state: Any) -> None:
    """Check and build a cell that will not be called, as if it were: a mistake must not depend on the lengths."""
    if not isinstance(cell, RNNCell):
        return
    cell.check_step(inputs, state)
    shape, dtype, device = placed(cell, inputs, state)
    if isinstance(shape, torch.Size):
        build_once(cell, shape, dtype, device)


def dims(size: Size) -> tuple[int, ...]:
    """The dimensions of one row of a size leaf."""
    return tuple(size) if isinstance(size, torch.Size) else (size,)


def device_of(module: nn.Module) -> torch.device | None:
    """The device of the module's first parameter that exists; None leaves the choice to torch's default."""
    for parameter in module.parameters():
        if not is_lazy(parameter):
            return parameter.device
    return None


def shown_options(module: nn.Module, usual: dict[str, Any]) -> str:
    """For `extra_repr`: the attributes that differ from their usual values."""
    found = {name: getattr(module, name) for name in usual}
    return ", ".join(
        f"{name}={value!r}" for name, value in found.items() if value is not usual[name] and value != usual[name]
    )


def snake_case(name: str) -> str:
    """`BasicLSTMCell` as TensorFlow names its scope: `basic_lstm_cell`."""
    name = re.sub(r"(.)([A-Z][a-z0-9]+)", r"\1_\2", name)
    return re.sub(r"([a-z])([A-Z])", r"\1_\2", name).lower()


def check_no_reuse(reuse: bool | None) -> None:
    """Variable reuse by name does not exist here: a cell owns its parameters."""
    if reuse is not None and check_flag("reuse", reuse):
        raise ValueError(
            problem(
                "`reuse` names variables of another cell",
                got=f"reuse={reuse!r}",
                expected="None or False",
                fix="A cell owns its parameters: to share them, use the same cell object twice.",
            )
        )


def check_rows(name: str, tensor: Any, width: int, batch_size: int | None = None) -> None:
    """Raise unless `tensor` is [B, width], with the given B if there is one."""
    fix = "Make a state with `cell.zero_state(batch_size, dtype)`, for the batch size of the inputs."
    if not isinstance(tensor, Tensor):
        expected = f"a tensor [B, {width}]"
        raise TypeError(problem(f"`{name}` must be a tensor", got=type_name(tensor), expected=expected, fix=fix))
    if tensor.ndim != 2 or tensor.shape[1] != width or batch_size not in (None, tensor.shape[0]):
        expected = f"[{'B' if batch_size is None else batch_size}, {width}]"
        raise ValueError(problem(f"`{name}` has the wrong shape", got=shape_of(tensor), expected=expected, fix=fix))
