"""What a call of a drop-in module is given and gives back: torch's shapes, and torch's own words where they do not fit."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from throughtime._errors import problem, shape_of
from throughtime._tensors import autocast_on
from throughtime.nn._layers import State
from throughtime.unroll._arguments import check_lengths


def data_of(input: Any) -> Any:
    """The tensor that inputs are in, packed or not."""
    return input.data if isinstance(input, PackedSequence) else input


def ranks_differ(module: nn.RNNBase, input: Any, hx: Any) -> bool:
    """Whether inputs and states do not have the axes that they must have: torch's `forward` says so in its own words."""
    if isinstance(input, PackedSequence):
        return False
    rank = input.dim()
    return rank not in (2, 3) or (hx is not None and any(leaf.dim() != rank for leaf in _leaves(module, hx)))


def opened(module: nn.RNNBase, input: Any, hx: Any) -> tuple[Any, list[State] | None]:
    """Inputs with a batch axis or packed, and the states of all layers and directions; both checked by torch's rules."""
    if isinstance(input, PackedSequence):
        batch_sizes: Tensor | None = input.batch_sizes
    else:
        batch_sizes = None
        if input.dim() == 2:
            input = input.unsqueeze(0 if module.batch_first else 1)
            hx = None if hx is None else _packed(module, [leaf.unsqueeze(1) for leaf in _leaves(module, hx)])
    if hx is None:
        module.check_input(data_of(input), batch_sizes)
        return input, None
    module.check_forward_args(data_of(input), hx, batch_sizes)
    leaves = _leaves(module, hx)
    _check_alike(data_of(input), leaves)
    return input, list(zip(*(leaf.unbind() for leaf in leaves), strict=True))


def _check_alike(data: Tensor, leaves: tuple[Tensor, ...]) -> None:
    """What torch finds out only inside of its kernels, in words of those."""
    for leaf in leaves:
        if leaf.device != data.device or (leaf.dtype is not data.dtype and not autocast_on(data.device)):
            got, expected = f"{leaf.dtype} on {leaf.device}", f"{data.dtype} on {data.device}, as `input` is"
            raise RuntimeError(problem("`hx` does not fit", got=got, expected=expected, fix="Convert it: `hx.to(input)`."))


def closed(module: nn.RNNBase, outputs: Any, states: list[State], *, batched: bool) -> tuple[Any, Any]:
    """Outputs and final states as torch returns them: states of all layers and directions, one above another."""
    leaves = [leaf[0].unsqueeze(0) if len(leaf) == 1 else torch.stack(leaf) for leaf in zip(*states, strict=True)]
    if not batched:
        outputs = outputs.squeeze(0 if module.batch_first else 1)
        leaves = [leaf.squeeze(1) for leaf in leaves]
    return outputs, _packed(module, leaves)


def lengths_of(module: nn.RNNBase, input: Any, sequence_length: Any) -> Any:
    """Lengths, read from whatever device once for all layers."""
    if sequence_length is None:
        return None
    what = "`sequence_length` is for padded batches"
    if isinstance(input, PackedSequence):
        fix = "Leave `sequence_length` out, or pass the padded tensor."
        raise ValueError(problem(what, got="a PackedSequence, which knows its lengths", expected="a tensor", fix=fix))
    if input.dim() == 2:
        fix = "Cut the sequence to its length instead, as in `input[:length]`."
        got = f"one sequence of shape {shape_of(input)}"
        raise ValueError(problem(what, got=got, expected="a tensor with a batch axis", fix=fix))
    if torch.compiler.is_compiling():
        return sequence_length if isinstance(sequence_length, Tensor) else torch.tensor(sequence_length)
    return check_lengths(sequence_length, input.shape[0 if module.batch_first else 1])


def _leaves(module: nn.RNNBase, hx: Any) -> tuple[Tensor, ...]:
    return (hx[0], hx[1]) if module.mode == "LSTM" else (hx,)


def _packed(module: nn.RNNBase, leaves: list[Tensor]) -> Any:
    return tuple(leaves) if module.mode == "LSTM" else leaves[0]
