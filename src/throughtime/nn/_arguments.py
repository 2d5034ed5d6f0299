"""What a call of a drop-in module is given and gives back: torch's shapes, and its own words where they do not fit."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from throughtime._errors import problem, shape_of
from throughtime._tensors import autocast_on
from throughtime.nn._layers import State
from throughtime.unroll._arguments import check_lengths, lengths_at_hand


def data_of(given: Any) -> Any:
    """The tensor that inputs are in, packed or not."""
    return given.data if isinstance(given, PackedSequence) else given


def ranks_differ(module: nn.RNNBase, given: Any, hx: Any) -> bool:
    """Whether inputs and states do not have the axes that they must have, which torch's `forward` says in its words."""
    if isinstance(given, PackedSequence):
        return False
    rank = given.dim()
    return rank not in (2, 3) or (hx is not None and any(leaf.dim() != rank for leaf in _leaves(module, hx)))


def opened(module: nn.RNNBase, given: Any, hx: Any) -> tuple[Any, list[State] | None]:
    """Inputs with a batch axis or packed, and the states of all layers and directions, checked by torch's rules."""
    if isinstance(given, PackedSequence):
        batch_sizes: Tensor | None = given.batch_sizes
    else:
        batch_sizes = None
        if given.dim() == 2:
            given = given.unsqueeze(0 if module.batch_first else 1)
            hx = None if hx is None else _as_hx(module, [leaf.unsqueeze(1) for leaf in _leaves(module, hx)])
    if hx is None:
        module.check_input(data_of(given), batch_sizes)
        return given, None
    module.check_forward_args(data_of(given), hx, batch_sizes)
    leaves = _leaves(module, hx)
    _check_alike(data_of(given), leaves)
    return given, list(zip(*(leaf.unbind() for leaf in leaves), strict=True))


def _check_alike(data: Tensor, leaves: tuple[Tensor, ...]) -> None:
    """What torch finds out only inside of its kernels, in words of those."""
    for leaf in leaves:
        if leaf.device != data.device or (leaf.dtype is not data.dtype and not autocast_on(data.device)):
            got, expected = f"{leaf.dtype} on {leaf.device}", f"{data.dtype} on {data.device}, as `input` is"
            raise RuntimeError(
                problem("`hx` does not fit", got=got, expected=expected, fix="Convert it: `hx.to(input)`.")
            )


def closed(module: nn.RNNBase, outputs: Any, states: list[State], *, batched: bool) -> tuple[Any, Any]:
    """Outputs and final states as torch returns them: states of all layers and directions, one above another."""
    leaves = [leaf[0].unsqueeze(0) if len(leaf) == 1 else torch.stack(leaf) for leaf in zip(*states, strict=True)]
    if not batched:
        outputs = outputs.squeeze(0 if module.batch_first else 1)
        leaves = [leaf.squeeze(1) for leaf in leaves]
    return outputs, _as_hx(module, leaves)


def lengths_of(module: nn.RNNBase, given: Any, sequence_length: Any) -> Any:
    """Lengths, read from whatever device once for all layers."""
    if sequence_length is None:
        return None
    what = "`sequence_length` is for padded batches"
    if isinstance(given, PackedSequence):
        fix = "Leave `sequence_length` out, or pass the padded tensor."
        raise ValueError(problem(what, got="a PackedSequence, which knows its lengths", expected="a tensor", fix=fix))
    if given.dim() == 2:
        fix = "Cut the sequence to its length instead, as in `input[:length]`."
        got = f"one sequence of shape {shape_of(given)}"
        raise ValueError(problem(what, got=got, expected="a tensor with a batch axis", fix=fix))
    if torch.compiler.is_compiling():
        known = sequence_length if isinstance(sequence_length, Tensor) else torch.tensor(sequence_length)
        return lengths_at_hand(known)
    return check_lengths(sequence_length, given.shape[0 if module.batch_first else 1])


def _leaves(module: nn.RNNBase, hx: Any) -> tuple[Tensor, ...]:
    if module.mode != "LSTM":
        return (hx,)
    if type(hx) in (tuple, list) and len(hx) > 2:
        # As torch says it, from inside of its kernels.
        raise RuntimeError("lstm expects two hidden states")
    return (hx[0], hx[1])


def _as_hx(module: nn.RNNBase, leaves: list[Tensor]) -> Any:
    return tuple(leaves) if module.mode == "LSTM" else leaves[0]
