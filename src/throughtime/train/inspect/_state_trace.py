"""What happens inside a cell from step to step: its state on the way, and the gradient that comes back."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from throughtime import _pytree
from throughtime._errors import check_callable, check_flag, problem, shape_of, type_name
from throughtime._tensors import backwards, is_lazy
from throughtime.cells._base import build_for, check_cell, is_lazy_cell
from throughtime.runtime import backend
from throughtime.train.inspect._gradient_probes import Followed, Probed, returns_its_state
from throughtime.unroll import dynamic_rnn
from throughtime.unroll._arguments import check_lengths, check_state
from throughtime.unroll._batch_format import Padded, open_inputs
from throughtime.unroll._engine import blank_step


class ThroughTime(NamedTuple):
    """One unroll looked at from inside: `states` [B, T, H], and the norms `gradients` [B, T] if there was a loss."""

    states: Tensor
    gradients: Tensor | None


def through_time(
    cell: Any,
    inputs: Any,
    sequence_length: Any = None,
    loss: Callable[[Any, Any], Tensor] | None = None,
    *,
    initial_state: Any = None,
    reverse: bool = False,
) -> ThroughTime:
    """The state of `cell` after every step of `inputs` [B, T, ...], and the norm of the gradient that reaches it.

    `inputs` and `sequence_length` are those of `tt.dynamic_rnn`, padded. `loss(outputs, state)` is one number, a sum
    over the rows of the batch. The gradient is that of the loss by the state after each step, in full: through
    the output of that step, if it is this state or was computed from it, and through all later steps. Where its norm
    falls towards zero, steps before it are not learned from; where it grows without bound, training is not stable.
    What is shown of a state with several parts is the last, which for an LSTM is h; the norm is that of all.
    Parts that have no gradient, such as counters, are left out of both. `reverse=True` reads from the end.

    A loss of the last state shows how much arrives from the end. A loss of all outputs asks something of every step,
    and a norm that stays the same is then no sign of a long memory.

    >>> import torch, throughtime as tt
    >>> cell, inputs = tt.GRUCell(4, input_size=3), torch.randn(2, 5, 3)
    >>> inside = tt.train.through_time(cell, inputs, [5, 2], lambda outputs, state: state.sum())
    >>> inside.states.shape, inside.gradients.shape, inside.gradients[1, 2:].tolist()
    (torch.Size([2, 5, 4]), torch.Size([2, 5]), [0.0, 0.0, 0.0])
    """
    if loss is not None:
        check_callable("loss", loss, expected="a function of outputs and state", fix="Leave it out for states alone.")
    check_flag("reverse", reverse)
    check_cell("cell", cell)
    form, inputs = open_inputs(inputs, time_major=False)
    if not isinstance(form, Padded):
        got, expected = type_name(_pytree.flatten(inputs)[0]), "tensors [B, T, ...]"
        fix = "Pad them with `pad_packed_sequence(inputs, batch_first=True)` or `inputs.to_padded_tensor(0.0)`."
        raise TypeError(problem("through_time takes padded inputs", got=got, expected=expected, fix=fix))
    batch, time = form.batch_size, form.max_time
    given = check_lengths(sequence_length, batch)
    # As in every unroll, above T counts as T, below 0 as 0.
    clipped = [time] * batch if given is None else [min(max(length, 0), time) for length in given]
    lengths = torch.tensor(clipped, dtype=torch.int64)
    device = _pytree.flatten(inputs)[0].device
    state = check_state(cell, initial_state, batch, _dtype_of(cell, inputs), device)
    state = _pytree.map_leaves(lambda leaf: leaf.detach().to(device) if isinstance(leaf, Tensor) else leaf, state)
    probed = _probed_places(state)
    if is_lazy_cell(cell):
        build_for(cell, blank_step(form, inputs), state)
    inputs = _pytree.map_leaves(lambda leaf: _turned(leaf.detach(), lengths, reverse=reverse), inputs)
    probes = [_probe(_pytree.flatten(state)[place], batch, time, loss is not None) for place in probed]
    first = _pytree.map_leaves(lambda leaf: leaf[:, 0], inputs) if lengths.any() else None
    simple = loss is None or first is None or returns_its_state(cell, first, state)
    watched = Probed(cell, probed) if simple else Followed(cell, probed)
    with torch.enable_grad():
        # A step may return the state that it got: then that has a gradient too.
        start = state if simple else _pytree.map_leaves(_with_gradient, state)
        with nullcontext() if simple else backend("reference"):
            dtype = probes[-1].dtype
            outputs, final, states = dynamic_rnn(watched, (inputs, probes), lengths, start, dtype, all_states=True)
        norms = None if loss is None else _norms(_checked_loss(loss(outputs, final), lengths), probes)
    shown = _pytree.flatten(states)[probed[-1]].detach()
    norms = None if norms is None else _turned(norms, lengths, reverse=reverse)
    return ThroughTime(_turned(shown, lengths, reverse=reverse), norms)


def _with_gradient(leaf: Any) -> Any:
    return leaf.requires_grad_() if isinstance(leaf, Tensor) and leaf.is_floating_point() else leaf


def _dtype_of(cell: Any, inputs: Any) -> torch.dtype:
    """The dtype to make a state in: that of the inputs; of ids, and of inputs of several dtypes, that of the cell."""
    dtypes: set[torch.dtype] = {leaf.dtype for leaf in _pytree.flatten(inputs) if leaf.is_floating_point()}
    if len(dtypes) == 1:
        return dtypes.pop()
    weights = cell.parameters() if isinstance(cell, nn.Module) else ()
    made = [weight.dtype for weight in weights if not is_lazy(weight) and weight.is_floating_point()]
    return made[0] if made else torch.get_default_dtype()


def _probed_places(state: Any) -> tuple[int, ...]:
    """The leaves of a state that have rows and a gradient."""
    leaves = _pytree.flatten(state)
    places = [place for place, leaf in enumerate(leaves) if isinstance(leaf, Tensor) and leaf.is_floating_point()]
    places = [place for place in places if leaves[place].ndim]
    if not places:
        what, expected = "the state of the cell has no gradient", "at least one part of floating point, with rows"
        fix = "Look at a cell that remembers something."
        raise ValueError(problem(what, got=", ".join(map(type_name, leaves)) or "no state", expected=expected, fix=fix))
    return tuple(places)


def _probe(leaf: Tensor, batch: int, time: int, with_gradient: bool) -> Tensor:
    """Zeros for every step of a leaf; as inputs of a loop they have at least one feature."""
    return leaf.new_zeros(batch, time, *(leaf.shape[1:] or (1,))).requires_grad_(with_gradient)


def _checked_loss(loss: Any, lengths: Tensor) -> Tensor:
    """The loss, if it is one number that came from the outputs or the state."""
    what, fix = "`loss` must return one number", "Sum it over the batch, as in `lambda outputs, state: outputs.sum()`."
    if not isinstance(loss, Tensor):
        raise TypeError(problem(what, got=type_name(loss), expected="a tensor of one element", fix=fix))
    if loss.numel() != 1:
        raise ValueError(problem(what, got=f"shape {shape_of(loss)}", expected="a tensor of one element", fix=fix))
    # Where no step is taken there is nothing that it could depend on.
    if not loss.requires_grad and lengths.any():
        what, expected = "`loss` has no gradient", "a number computed from `outputs` or `state`"
        fix = "Compute it from its arguments, without `detach`, `torch.no_grad` or `torch.inference_mode`."
        raise ValueError(problem(what, got="a constant", expected=expected, fix=fix))
    return loss


def _norms(loss: Tensor, probes: list[Tensor]) -> Tensor:
    """The norm of the gradient at every step, over all parts of the state: [B, T]."""
    if not loss.requires_grad:
        return probes[-1].new_zeros(probes[-1].shape[:2])
    # A part of the state that the loss does not depend on has a gradient of zeros.
    gradients = torch.autograd.grad(loss.sum(), probes, materialize_grads=True)
    # The square of a small number is none in float32: what is nearly gone would be gone.
    squares = [gradient.flatten(2).double().square().sum(2) for gradient in gradients]
    return torch.stack(squares).sum(0).sqrt().to(probes[-1].dtype)


def _turned(values: Tensor, lengths: Tensor, *, reverse: bool) -> Tensor:
    """`values` [B, T, ...] as they are, or each row from its own end."""
    return backwards(values.transpose(0, 1), lengths).transpose(0, 1) if reverse else values
