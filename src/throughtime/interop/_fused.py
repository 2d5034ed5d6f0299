"""TensorFlow's fused cells: objects that run all steps in one call. Here every unroll does, so they are thin."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from throughtime import _pytree
from throughtime._errors import check_flag, problem, shape_of, type_name
from throughtime._tensors import as_tensor, backwards
from throughtime.cells import LSTMBlockCell
from throughtime.cells._base import check_cell
from throughtime.unroll import dynamic_rnn, static_rnn
from throughtime.unroll._arguments import check_lengths


class FusedRNNCell(nn.Module):
    """Runs all steps in one call: `outputs, state = fused(inputs, initial_state, dtype, sequence_length, scope)`.

    `inputs` are [T, B, I], or a list of T tensors [B, I] (or nests of them); outputs come back in the form of the
    inputs, and if the cell's output is a nest, so is a step of the list, or what holds the tensors [T, B, ...].
    """

    def forward(
        self,
        inputs: Any,
        initial_state: Any = None,
        dtype: torch.dtype | None = None,
        sequence_length: Any = None,
        scope: str | None = None,
    ) -> tuple[Any, Any]:
        """All steps; a subclass says how."""
        raise NotImplementedError(f"{type(self).__name__} must define forward(inputs, ...) -> (outputs, state)")


class FusedRNNCellAdaptor(FusedRNNCell):
    """Any cell as a fused one, by `dynamic_rnn` or `static_rnn`.

    >>> import torch, throughtime as tt
    >>> fused = tt.interop.FusedRNNCellAdaptor(tt.GRUCell(4), use_dynamic_rnn=True)
    >>> fused(torch.ones(5, 2, 3), dtype=torch.float32)[0].shape
    torch.Size([5, 2, 4])
    """

    def __init__(self, cell: Any, use_dynamic_rnn: bool = False) -> None:
        super().__init__()
        check_cell("cell", cell)
        self.cell = cell
        self.use_dynamic_rnn = check_flag("use_dynamic_rnn", use_dynamic_rnn)

    def forward(
        self,
        inputs: Any,
        initial_state: Any = None,
        dtype: torch.dtype | None = None,
        sequence_length: Any = None,
        scope: str | None = None,
    ) -> tuple[Any, Any]:
        """`inputs` [T, B, I] or a list of steps -> outputs of the same form, and the state of each last step."""
        steps, is_list = _stacked(inputs)
        if self.use_dynamic_rnn:
            outputs, state = dynamic_rnn(
                self.cell, steps, sequence_length, initial_state, dtype, time_major=True, scope=scope
            )
            return (_listed(outputs) if is_list else outputs), state
        listed, state = static_rnn(self.cell, _listed(steps), initial_state, dtype, sequence_length, scope)
        return (listed if is_list else _pytree.map_leaves(_stack, *listed)), state


class LSTMBlockFusedCell(FusedRNNCell):
    """An LSTM over all steps in one call, with the variables of `LSTMCell`.

    >>> import torch, throughtime as tt
    >>> outputs, state = tt.interop.LSTMBlockFusedCell(4)(torch.ones(5, 2, 3), dtype=torch.float32)
    >>> outputs.shape, state.c.shape
    (torch.Size([5, 2, 4]), torch.Size([2, 4]))
    """

    def __init__(
        self,
        num_units: int,
        forget_bias: float = 1.0,
        cell_clip: float | None = None,
        use_peephole: bool = False,
        reuse: bool | None = None,
        dtype: torch.dtype | None = None,
        name: str | None = "lstm_fused_cell",
    ) -> None:
        super().__init__()
        cell = LSTMBlockCell(num_units, forget_bias, cell_clip, use_peephole, dtype, reuse, name)
        self.adapted = FusedRNNCellAdaptor(cell, use_dynamic_rnn=True)

    @property
    def cell(self) -> LSTMBlockCell:
        """The cell that holds the parameters."""
        return self.adapted.cell  # type: ignore[no-any-return]

    @property
    def num_units(self) -> int:
        """The number of units."""
        return self.cell.num_units

    def forward(
        self,
        inputs: Any,
        initial_state: Any = None,
        dtype: torch.dtype | None = None,
        sequence_length: Any = None,
        scope: str | None = None,
    ) -> tuple[Any, Any]:
        """`inputs` [T, B, I] or a list of steps -> outputs of the same form, and the state of each last step."""
        return self.adapted(inputs, initial_state, dtype, sequence_length, scope)  # type: ignore[no-any-return]


class TimeReversedFusedRNN(FusedRNNCell):
    """A fused cell that goes backwards: inputs are reversed, each row within its length, and outputs reversed back.

    >>> import torch, throughtime as tt
    >>> backwards = tt.interop.TimeReversedFusedRNN(tt.interop.LSTMBlockFusedCell(4))
    >>> backwards(torch.ones(5, 2, 3), dtype=torch.float32, sequence_length=[5, 2])[0].shape
    torch.Size([5, 2, 4])
    """

    def __init__(self, cell: Any) -> None:
        super().__init__()
        if not isinstance(cell, FusedRNNCell):
            fix = "Wrap a cell in FusedRNNCellAdaptor first."
            what = "`cell` does not run all steps in one call"
            raise TypeError(problem(what, got=type_name(cell), expected="a FusedRNNCell", fix=fix))
        self.cell = cell

    def forward(
        self,
        inputs: Any,
        initial_state: Any = None,
        dtype: torch.dtype | None = None,
        sequence_length: Any = None,
        scope: str | None = None,
    ) -> tuple[Any, Any]:
        """`inputs` [T, B, I] or a list of steps -> outputs of the same form, and the state at the beginning."""
        steps, is_list = _stacked(inputs)
        lengths = check_lengths(sequence_length, _pytree.flatten(steps)[0].shape[1])
        turned = partial(_reversed, lengths=lengths)
        steps = _pytree.map_leaves(turned, steps)
        # A nest of stacked steps would pass for a list of steps.
        nested = _pytree.is_nest(steps)
        outputs, state = self.cell(_listed(steps) if nested else steps, initial_state, dtype, sequence_length, scope)
        outputs = _pytree.map_leaves(turned, _pytree.map_leaves(_stack, *outputs) if nested else outputs)
        return (_listed(outputs) if is_list else outputs), state


def _stacked(inputs: Any) -> tuple[Any, bool]:
    """Steps as a tensor [T, B, ...], or a nest of them, and whether they came as a list."""
    if isinstance(inputs, list | tuple) and inputs:
        steps = [_pytree.map_leaves(partial(as_tensor, "inputs"), step) for step in inputs]
        if not all(leaf.ndim for leaf in _pytree.flatten(steps)):
            raise TypeError(_no_steps("a list of numbers"))
        for index, step in enumerate(steps):
            _check_alike(steps[0], step, index)
        return _pytree.map_leaves(_stack, *steps), True
    if not isinstance(inputs, Tensor | np.ndarray) or inputs.ndim < 2:
        raise TypeError(_no_steps(type_name(inputs)))
    return as_tensor("inputs", inputs), False


def _no_steps(got: str) -> str:
    expected, fix = "a tensor [T, B, I], or a list of tensors [B, I]", "Stack the steps."
    return problem("`inputs` are no steps", got=got, expected=expected, fix=fix)


def _check_alike(first: Any, step: Any, index: int) -> None:
    """Raise unless a step has the structure, shapes, dtypes and device of the first: they become one tensor."""
    step = _pytree.conform(first, step, f"`inputs[{index}]`")
    for one, other in zip(_pytree.flatten(first), _pytree.flatten(step), strict=True):
        if (one.shape, one.dtype, one.device) != (other.shape, other.dtype, other.device):
            got = " and ".join(f"{shape_of(tensor)} of {tensor.dtype} on {tensor.device}" for tensor in (one, other))
            fix = f"Make `inputs[{index}]` like `inputs[0]`; pad what ends early, and pass `sequence_length`."
            raise ValueError(problem("the steps of `inputs` differ", got=got, expected="tensors [B, I] alike", fix=fix))


def _stack(*steps: Tensor) -> Tensor:
    return torch.stack(steps)


def _listed(tree: Any) -> list[Any]:
    """The steps of a tensor [T, ...], or of a nest of them."""
    return [
        _pytree.pack_as(tree, step) for step in zip(*(leaf.unbind() for leaf in _pytree.flatten(tree)), strict=True)
    ]


def _reversed(steps: Tensor, lengths: list[int] | None) -> Tensor:
    """Each row backwards, within its length if there are lengths."""
    return steps.flip(0) if lengths is None else backwards(steps, lengths)
