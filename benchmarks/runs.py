"""The ways to run a cell or a module over a batch, and a step of training or inference with any of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from torch.utils import _pytree as pytree

import throughtime as tt

Run = Callable[[Tensor], Tensor]
"""From inputs to outputs, [B, T, ...] both."""


def ours(cell: tt.RNNCell, lengths: Sequence[int] | None = None, **options: Any) -> Run:
    """`dynamic_rnn`, by the backend that it chooses."""
    ends = None if lengths is None else torch.tensor(lengths)
    return lambda inputs: tt.dynamic_rnn(cell, inputs, sequence_length=ends, dtype=inputs.dtype, **options)[0]


def theirs(module: nn.Module, lengths: Sequence[int] | None = None) -> Run:
    """torch's module; with lengths through a `PackedSequence`, packing and unpacking included."""
    ends = None if lengths is None else torch.tensor(lengths)

    def run(inputs: Tensor) -> Tensor:
        if ends is None:
            outputs: Tensor = module(inputs)[0]
            return outputs
        packed = pack_padded_sequence(inputs, ends, batch_first=True, enforce_sorted=False)
        return pad_packed_sequence(module(packed)[0], batch_first=True, total_length=inputs.shape[1])[0]

    return run


def eager_loop(cell: tt.RNNCell) -> Run:
    """What one writes without this package: a Python loop over time, and autograd."""

    def run(inputs: Tensor) -> Tensor:
        state, outputs = cell.zero_state(len(inputs), inputs.dtype), []
        for x in inputs.unbind(1):
            output, state = cell(x, state)
            outputs.append(output)
        return torch.stack(outputs, 1)

    return run


class Trained(NamedTuple):
    """What a training step leaves: outputs, and gradients of the inputs and of every weight."""

    outputs: Tensor
    inputs: Tensor
    weights: tuple[Tensor, ...]


def training(run: Run, inputs: Tensor, weights: Sequence[Tensor], cotangent: Tensor) -> Callable[[], Trained]:
    """Forward and backward: gradients of the inputs and of every weight, for a random gradient of the outputs."""

    def step() -> Trained:
        outputs = run(inputs)
        of_inputs, *of_weights = torch.autograd.grad(outputs, [inputs, *weights], cotangent)
        return Trained(outputs.detach(), of_inputs, tuple(of_weights))

    return step


def inference(run: Run, inputs: Tensor) -> Callable[[], Tensor]:
    """Forward alone, without anything kept for gradients."""
    return torch.inference_mode()(partial(run, inputs))


TOLERANCE = 1e-4
"""Both sides round in float32, over up to a thousand steps: relative to the largest value of a tensor."""


@torch.no_grad()
def check(what: str, got: Any, want: Any) -> float:
    """The largest relative difference of two nests of tensors; raises where it is more than rounding."""
    pairs = zip(pytree.tree_leaves(got), pytree.tree_leaves(want), strict=True)
    worst = max(float((a - b).abs().max() / b.abs().max().clamp_min(1e-30)) for a, b in pairs)
    # Written so that NaN fails too.
    if not worst <= TOLERANCE:
        raise AssertionError(f"{what}: values or gradients differ by {worst:.1e}, more than {TOLERANCE:.0e}: no timing")
    return float(f"{worst:.1e}")


def backend_of(cell: tt.RNNCell, inputs: Tensor, lengths: Sequence[int] | None = None) -> str:
    """The name of the backend that `auto` takes for this call."""
    explain = getattr(tt, "explain", None)
    return "reference" if explain is None else str(explain(cell, inputs, sequence_length=lengths).backend)
