"""TensorFlow's fused cells: objects that run all steps in one call. Here every unroll does, so they are thin."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from throughtime._errors import check_flag, problem, type_name
from throughtime._tensors import backwards
from throughtime.cells import LSTMBlockCell
from throughtime.cells._base import check_cell
from throughtime.unroll import dynamic_rnn, static_rnn
from throughtime.unroll._arguments import check_lengths


class FusedRNNCell(nn.Module):
    """Runs all steps in one call: `outputs, state = fused(inputs, initial_state, dtype, sequence_length, scope)`.

    `inputs` are [T, B, I], or a list of T tensors [B, I]; outputs come back in the form of the inputs.
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
        steps, is_list = _as_tensor(inputs)
        if self.use_dynamic_rnn:
            outputs, state = dynamic_rnn(
                self.cell, steps, sequence_length, initial_state, dtype, time_major=True, scope=scope
            )
            return (list(outputs.unbind()) if is_list else outputs), state
        listed, state = static_rnn(self.cell, list(steps.unbind()), initial_state, dtype, sequence_length, scope)
        return (listed if is_list else torch.stack(listed)), state


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
        steps, is_list = _as_tensor(inputs)
        lengths = check_lengths(sequence_length, steps.shape[1])
        outputs, state = self.cell(_reversed(steps, lengths), initial_state, dtype, lengths, scope)
        outputs = _reversed(outputs, lengths)
        return (list(outputs.unbind()) if is_list else outputs), state


def _as_tensor(inputs: Any) -> tuple[Tensor, bool]:
    """Steps as one tensor [T, B, ...], and whether they came as a list."""
    if isinstance(inputs, list | tuple) and inputs and all(isinstance(step, Tensor) for step in inputs):
        return torch.stack(list(inputs)), True
    if not isinstance(inputs, Tensor) or inputs.ndim < 2:
        expected, fix = "a tensor [T, B, I], or a list of tensors [B, I]", "Stack the steps."
        raise TypeError(problem("`inputs` are no steps", got=type_name(inputs), expected=expected, fix=fix))
    return inputs, False


def _reversed(steps: Tensor, lengths: list[int] | None) -> Tensor:
    """Each row backwards, within its length if there are lengths."""
    return steps.flip(0) if lengths is None else backwards(steps, lengths)
