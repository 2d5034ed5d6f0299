"""Cells around cells: stacks, dropout, residual connections, devices."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from throughtime import _pytree
from throughtime.cells import LSTMStateTuple
from throughtime.tf1._namespace import exported
from throughtime.tf1.graph._dtypes import as_dtype
from throughtime.tf1.graph._graph import create_op, get_default_graph
from throughtime.tf1.graph._operation import Tensor
from throughtime.tf1.graph._scopes import name_scope
from throughtime.tf1.graph._variable_scope import variable_scope
from throughtime.tf1.ops._arithmetic import add
from throughtime.tf1.ops._convert import constant_value, convert_to_tensor, is_tensor
from throughtime.tf1.rnn._cell import RNNCell, check_cell, dims_of, map_sizes


@exported("nn.rnn_cell.MultiRNNCell", "contrib.rnn.MultiRNNCell", "python.ops.rnn_cell.MultiRNNCell")
class MultiRNNCell(RNNCell):
    """Cells stacked on each other: the output of each is the input of the next."""

    def __init__(self, cells: Sequence[Any], state_is_tuple: bool = True):
        super().__init__()
        if not cells:
            raise ValueError("Must specify at least one cell for MultiRNNCell.")
        if not isinstance(cells, list | tuple):
            raise TypeError(f"cells must be a list or tuple, but saw: {cells}.")
        for cell in cells:
            check_cell(cell, "cells")
        self._cells = list(cells)
        self._state_is_tuple = state_is_tuple
        if not state_is_tuple and any(isinstance(cell.state_size, list | tuple) for cell in cells):
            raise ValueError(
                "Some cells return tuples of states, but the flag state_is_tuple is not set. "
                f"State sizes are: {[cell.state_size for cell in cells]}"
            )

    @property
    def state_size(self) -> Any:
        """The sizes of all states, or their sum."""
        sizes = tuple(cell.state_size for cell in self._cells)
        return sizes if self._state_is_tuple else sum(sizes)

    @property
    def output_size(self) -> Any:
        """The size of the top cell's output."""
        return self._cells[-1].output_size

    @property
    def weights(self) -> list[Any]:
        """The variables of all cells."""
        return [variable for cell in self._cells for variable in getattr(cell, "weights", [])]

    variables = weights
    trainable_weights = weights
    trainable_variables = weights

    def zero_state(self, batch_size: Any, dtype: Any) -> Any:
        """The zero states of all cells."""
        with name_scope(f"{type(self).__name__}ZeroState"):
            if self._state_is_tuple:
                return tuple(cell.zero_state(batch_size, dtype) for cell in self._cells)
        return super().zero_state(batch_size, dtype)

    def call(self, inputs: Any, state: Any) -> Any:
        """One step of every cell, bottom first."""
        start, new_states, current = 0, [], inputs
        for place, cell in enumerate(self._cells):
            with variable_scope(f"cell_{place}"):
                if self._state_is_tuple:
                    if not isinstance(state, list | tuple):
                        raise ValueError(
                            f"Expected state to be a tuple of length {len(self._cells)}, but received: {state}"
                        )
                    own = state[place]
                else:
                    own = state[:, start : start + cell.state_size]
                    start += cell.state_size
                current, new = cell(current, own)
                new_states.append(new)
        return current, tuple(new_states) if self._state_is_tuple else _joined(new_states)


def _joined(tensors: Sequence[Tensor]) -> Tensor:
    return create_op("ConcatV2", lambda *parts: torch.cat(parts, 1), list(tensors), name="concat").outputs[0]


class _Wrapper(RNNCell):
    """A cell with the sizes, variables and states of the one inside."""

    def __init__(self, cell: Any, **options: Any):
        super().__init__(**options)
        check_cell(cell)
        self._cell = cell

    @property
    def wrapped_cell(self) -> Any:
        """The cell inside."""
        return self._cell

    @property
    def state_size(self) -> Any:
        """The sizes of the cell inside."""
        return self._cell.state_size

    @property
    def output_size(self) -> Any:
        """The size of the cell inside."""
        return self._cell.output_size

    @property
    def weights(self) -> list[Any]:
        """The variables of the cell inside."""
        return list(getattr(self._cell, "weights", []))

    variables = weights
    trainable_weights = weights
    trainable_variables = weights

    def zero_state(self, batch_size: Any, dtype: Any) -> Any:
        """The zero state of the cell inside."""
        with name_scope(f"{type(self).__name__}ZeroState"):
            return self._cell.zero_state(batch_size, dtype)

    def __call__(self, inputs: Any, state: Any, scope: Any = None, *args: Any, **kwargs: Any) -> Any:
        """One step; a wrapper opens no scope of its own."""
        return self.wrapped_step(inputs, state, scope, *args, **kwargs)

    def wrapped_step(self, inputs: Any, state: Any, scope: Any, *args: Any, **kwargs: Any) -> Any:
        """One step of the cell inside, changed."""
        raise NotImplementedError

    def _inside(self, inputs: Any, state: Any, scope: Any, *args: Any, **kwargs: Any) -> Any:
        given = {} if scope is None else {"scope": scope}
        return self._cell(inputs, state, *args, **given, **kwargs)


def _drop(value: Any, keep: Any, noise: Any = None) -> Tensor:
    """Dropout of one tensor inside of a step; `noise` is drawn outside of it if one mask serves all steps."""
    tensor = convert_to_tensor(value)
    inputs = [tensor]
    fixed = None if is_tensor(keep) else float(keep)
    if fixed is None:
        inputs.append(convert_to_tensor(keep, name="keep_prob"))
    if noise is not None:
        inputs.append(noise)

    def kernel(x: torch.Tensor, *more: torch.Tensor) -> torch.Tensor:
        kept: Any = more[0] if fixed is None else fixed
        drawn = more[-1] if noise is not None else torch.rand(x.shape, dtype=x.dtype, device=x.device)
        dropped: torch.Tensor = x * (torch.floor(drawn + kept) / kept)
        return dropped

    return create_op("Dropout", kernel, inputs, name="dropout", attrs={"random": True}).outputs[0]


def _default_state_filter(substate: Any) -> Any:
    if isinstance(substate, LSTMStateTuple):
        return LSTMStateTuple(c=False, h=True)
    return not hasattr(substate, "flow")


@exported("nn.rnn_cell.DropoutWrapper", "contrib.rnn.DropoutWrapper", "python.ops.rnn_cell.DropoutWrapper")
class DropoutWrapper(_Wrapper):
    """Dropout on a cell's inputs, outputs and outgoing state, with probabilities to keep a value."""

    def __init__(
        self,
        cell: Any,
        input_keep_prob: Any = 1.0,
        output_keep_prob: Any = 1.0,
        state_keep_prob: Any = 1.0,
        variational_recurrent: bool = False,
        input_size: Any = None,
        dtype: Any = None,
        seed: int | None = None,
        dropout_state_filter_visitor: Callable[[Any], Any] | None = None,
        **_: Any,
    ):
        super().__init__(cell, dtype=dtype)
        if dropout_state_filter_visitor is not None and not callable(dropout_state_filter_visitor):
            raise TypeError("dropout_state_filter_visitor must be callable")
        self._visitor = dropout_state_filter_visitor or _default_state_filter
        self._keep = {
            "input": _check_probability("input", input_keep_prob),
            "state": _check_probability("state", state_keep_prob),
            "output": _check_probability("output", output_keep_prob),
        }
        self._seed = seed
        self._variational = variational_recurrent
        self._noise: dict[str, Any] = {}
        if variational_recurrent:
            self._draw_noise(input_size, dtype)

    def _draw_noise(self, input_size: Any, dtype: Any) -> None:
        """One mask for every step of a run."""
        if dtype is None:
            raise ValueError("When variational_recurrent=True, dtype must be provided")
        if self._drops("input") and input_size is None:
            raise ValueError(
                "When variational_recurrent=True and input_keep_prob < 1.0 or is unknown, input_size must be given"
            )
        sizes = {"input": input_size, "state": self._cell.state_size, "output": self._cell.output_size}
        for slot, size in sizes.items():
            if self._drops(slot):
                self._noise[slot] = _pytree.flatten(map_sizes(lambda one: _uniform([1, *dims_of(one)], dtype), size))

    def _drops(self, slot: str) -> bool:
        keep = self._keep[slot]
        return is_tensor(keep) or keep < 1

    def wrapped_step(self, inputs: Any, state: Any, scope: Any, *args: Any, **kwargs: Any) -> Any:
        """One step of the cell inside, with dropout before and after it."""
        if self._drops("input"):
            inputs = self._dropped("input", inputs, lambda _: True)
        output, new = self._inside(inputs, state, scope, *args, **kwargs)
        if self._drops("state"):
            new = self._dropped("state", new, self._visitor)
        if self._drops("output"):
            output = self._dropped("output", output, lambda _: True)
        return output, new

    def _dropped(self, slot: str, tree: Any, visitor: Callable[[Any], Any]) -> Any:
        places = itertools.count()
        noise = self._noise.get(slot)

        def visit(node: Any, wanted: bool) -> Any:
            verdict = visitor(node) if wanted else False
            if not _pytree.is_nest(node):
                place = next(places)
                return _drop(node, self._keep[slot], noise and noise[place]) if verdict else node
            parts = _pytree.children(node)
            wants = [bool(verdict)] * len(parts) if isinstance(verdict, bool) else _pytree.children(verdict)
            return _pytree.rebuild(node, [visit(part, want) for part, want in zip(parts, wants, strict=True)])

        return visit(tree, True)


def _uniform(sizes: Sequence[Any], dtype: Any) -> Tensor:
    kind = as_dtype(dtype)
    kernel = lambda state: torch.rand(list(sizes), dtype=kind.torch_dtype, device=state.device)  # noqa: E731
    return create_op(
        "RandomUniform",
        kernel,
        dtypes=[kind],
        shapes=[sizes],
        stateful=True,
        differentiable=False,
        attrs={"random": True},
    ).outputs[0]


def _check_probability(slot: str, value: Any) -> Any:
    """A number in (0, 1], or a tensor of which the value is known at run time."""
    known = constant_value(value) if is_tensor(value) else value
    if known is None:
        return value
    if not 0 <= float(known) <= 1:
        raise ValueError(f"Parameter {slot}_keep_prob must be between 0 and 1: {float(known)}")
    return float(known)


@exported("nn.rnn_cell.ResidualWrapper", "contrib.rnn.ResidualWrapper", "python.ops.rnn_cell.ResidualWrapper")
class ResidualWrapper(_Wrapper):
    """The cell's output plus its inputs."""

    def __init__(self, cell: Any, residual_fn: Callable[[Any, Any], Any] | None = None, **_: Any):
        super().__init__(cell)
        self._residual_fn = residual_fn

    def wrapped_step(self, inputs: Any, state: Any, scope: Any, *args: Any, **kwargs: Any) -> Any:
        """One step of the cell inside, with its inputs added."""
        output, new = self._inside(inputs, state, scope, *args, **kwargs)
        if self._residual_fn is not None:
            return self._residual_fn(inputs, output), new
        return _pytree.map_leaves(_added, inputs, output), new


def _added(inputs: Any, output: Any) -> Any:
    inputs.shape.assert_is_compatible_with(output.shape)
    return add(inputs, output)


@exported("nn.rnn_cell.DeviceWrapper", "contrib.rnn.DeviceWrapper", "python.ops.rnn_cell.DeviceWrapper")
class DeviceWrapper(_Wrapper):
    """The cell, with a device asked for."""

    def __init__(self, cell: Any, device: Any, **_: Any):
        super().__init__(cell)
        self._device = device

    def wrapped_step(self, inputs: Any, state: Any, scope: Any, *args: Any, **kwargs: Any) -> Any:
        """One step of the cell inside."""
        with get_default_graph().device(self._device):
            return self._inside(inputs, state, scope, *args, **kwargs)
