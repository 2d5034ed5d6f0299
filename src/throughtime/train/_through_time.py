"""What happens inside a cell from step to step: its state on the way, and the gradient that comes back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from throughtime import _nest
from throughtime._errors import check_callable, check_flag
from throughtime._tensors import backwards
from throughtime.cells import RNNCell
from throughtime.cells._base import build_for, is_lazy_cell
from throughtime.unroll import dynamic_rnn


class ThroughTime(NamedTuple):
    """One unroll looked at from inside: `states` [B, T, H], and `gradients` [B, T] if there was a loss."""

    states: Tensor
    gradients: Tensor | None


class _Probed(RNNCell):
    """A cell whose new state is moved by a probe of zeros: the probe's gradient is that of the state itself."""

    def __init__(self, cell: Any) -> None:
        super().__init__()
        self.cell = cell
        self.state_size, self.output_size = cell.state_size, cell.output_size

    def forward(self, inputs: Any, state: Any) -> tuple[Any, Any]:
        inputs, probe = inputs
        output, state = self.cell(inputs, state)
        return output, _nest.map_leaves(torch.add, state, probe)


def through_time(
    cell: Any,
    inputs: Tensor,
    sequence_length: Any = None,
    loss: Callable[[Any, Any], Tensor] | None = None,
    *,
    initial_state: Any = None,
    reverse: bool = False,
) -> ThroughTime:
    """The state of `cell` after every step of `inputs` [B, T, ...], and the norm of the gradient that reaches it.

    `loss(outputs, state)` is a sum over the rows of the batch; the gradient that flows back through time is that of
    the loss by the state after each step, through all later steps. Where its norm falls towards zero, steps before it
    are not learned from; where it grows without bound, training is not stable. What is shown of a state with several
    parts is the last, which for an LSTM is h; the norm is that of all. `reverse=True` reads from the end.

    >>> import torch, throughtime as tt
    >>> cell, inputs = tt.GRUCell(4, input_size=3), torch.randn(2, 5, 3)
    >>> inside = tt.train.through_time(cell, inputs, [5, 2], lambda outputs, state: state.sum())
    >>> inside.states.shape, inside.gradients.shape, inside.gradients[1, 2:].tolist()
    (torch.Size([2, 5, 4]), torch.Size([2, 5]), [0.0, 0.0, 0.0])
    """
    if loss is not None:
        check_callable("loss", loss, expected="a function of outputs and state", fix="Leave it out for states alone.")
    check_flag("reverse", reverse)
    batch, time = inputs.shape[:2]
    lengths = torch.full((batch,), time) if sequence_length is None else torch.as_tensor(sequence_length)
    inputs = _turned(inputs.detach(), lengths, reverse=reverse)
    state = initial_state if initial_state is not None else cell.zero_state(batch, inputs.dtype)
    state = _nest.map_leaves(lambda leaf: leaf.detach().to(inputs.device), state)
    if is_lazy_cell(cell):
        build_for(cell, inputs[:, 0], state)
    probes = _nest.map_leaves(lambda leaf: leaf.new_zeros(batch, time, *leaf.shape[1:]), state)
    with torch.enable_grad():
        leaves = [leaf.requires_grad_(loss is not None) for leaf in _nest.flatten(probes)]
        outputs, final, states = dynamic_rnn(_Probed(cell), (inputs, probes), lengths, state, all_states=True)
        norms = None if loss is None else _norms(loss(outputs, final), leaves)
    shown = _nest.flatten(states)[-1].detach()
    norms = None if norms is None else _turned(norms, lengths, reverse=reverse)
    return ThroughTime(_turned(shown, lengths, reverse=reverse), norms)


def _norms(loss: Tensor, probes: list[Tensor]) -> Tensor:
    """The norm of the gradient at every step, over all parts of the state: [B, T]."""
    # A part of the state that the loss does not depend on has a gradient of zeros.
    gradients = torch.autograd.grad(loss, probes, materialize_grads=True)
    return torch.stack([gradient.flatten(2).square().sum(2) for gradient in gradients]).sum(0).sqrt()


def _turned(values: Tensor, lengths: Tensor, *, reverse: bool) -> Tensor:
    """`values` [B, T, ...] as they are, or each row from its own end."""
    return backwards(values.transpose(0, 1), lengths).transpose(0, 1) if reverse else values
