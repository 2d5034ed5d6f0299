"""Cells for GPU kernels, and their comparison with the float64 reference: on a card, or in Triton's interpreter."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

import throughtime as tt

TOLERANCE = {torch.float32: 1e-5, torch.float16: 5e-3, torch.bfloat16: 4e-2}
"""Of the norm of each result and gradient: sums are float32 inside, whatever goes in and out."""


class LayerNormLSTM(tt.RNNCell):
    """Normalised before the gates and before the output: reductions over features, which blocks share."""

    def __init__(self, units: int) -> None:
        super().__init__()
        self.units = self.output_size = units
        self.state_size = (units, units)
        self.gates = nn.Linear(4 + units, 4 * units)
        self.norm, self.output_norm = nn.LayerNorm(4 * units), nn.LayerNorm(units)

    def forward(self, inputs: Tensor, state: Any) -> Any:
        c, h = state
        i, j, f, o = self.norm(self.gates(torch.cat([inputs, h], 1))).chunk(4, 1)
        c = c * torch.sigmoid(f + 1) + torch.sigmoid(i) * torch.tanh(j)
        h = torch.sigmoid(o) * torch.tanh(self.output_norm(c))
        return h, (c, h)


class Softened(tt.RNNCell):
    """A softmax over the units and a gate of one number: maxima, sums and products of width one."""

    def __init__(self, units: int) -> None:
        super().__init__()
        self.state_size = self.output_size = units
        self.mix, self.gate = nn.Linear(4 + units, units), nn.Linear(units, 1)

    def forward(self, inputs: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        weights = torch.softmax(self.mix(torch.cat([inputs, h], 1)), 1)
        h = torch.sigmoid(self.gate(h)) * h + weights * torch.square(torch.relu(h + 0.5))
        # Both branches meet with one slope: rounding must not decide.
        return torch.where(h > 0, h + h * h, h), h


CELLS: dict[str, Callable[[int], tt.RNNCell]] = {
    "LSTM": tt.BasicLSTMCell,
    "GRU": tt.GRUCell,
    "RNN": tt.BasicRNNCell,
    "peepholes": lambda units: tt.LSTMCell(units, use_peepholes=True),
    "projection": lambda units: tt.LSTMCell(units, num_proj=max(2, units // 2 - 1)),
    "layer norm": LayerNormLSTM,
    "softmax": Softened,
    "stack": lambda units: tt.MultiRNNCell([tt.GRUCell(units - 1), tt.LSTMCell(units)]),
}


class Batch(NamedTuple):
    """Sizes, and whether lengths differ."""

    B: int
    T: int
    H: int
    ragged: bool = True

    @property
    def lengths(self) -> list[int] | None:
        """From 0 to T, with both ends and their neighbours among them."""
        if not self.ragged:
            return None
        random = torch.Generator().manual_seed(self.B)
        drawn = torch.randint(0, self.T + 1, (self.B,), generator=random).tolist()
        return [*[self.T, 0, 1, max(0, self.T - 1)][: self.B], *drawn[4:]]


def check(name: str, batch: Batch, dtype: torch.dtype, device: str, **options: Any) -> None:
    """Values, final states and all gradients against the reference in float64 on the CPU, from the same numbers."""
    torch.manual_seed(1)
    cell, inputs = CELLS[name](batch.H), torch.randn(batch.B, batch.T, 4)
    with tt.backend("reference"), torch.no_grad():
        tt.dynamic_rnn(cell, inputs, dtype=torch.float32)
    cell, inputs = cell.to(dtype), inputs.to(dtype)
    wanted = _measured(cell.double(), inputs.double(), batch, "reference", options)
    found = _measured(cell.to(device, dtype), inputs.to(device), batch, "triton", options)
    for place, (got, want) in enumerate(zip(found, wanted, strict=True)):
        error = float((got.double().cpu() - want).norm() / want.norm().clamp_min(1e-6))
        assert error <= TOLERANCE[dtype], f"{name} {batch}, tensor {place}: {error:.1e}"


def _measured(cell: Any, inputs: Tensor, batch: Batch, backend: str, options: Any) -> list[Tensor]:
    cell, inputs = copy.deepcopy(cell), inputs.clone().requires_grad_()
    with tt.backend(backend):
        found = tt.dynamic_rnn(cell, inputs, batch.lengths, dtype=inputs.dtype, **options)
    leaves = pytree.tree_leaves(found)
    random = torch.Generator().manual_seed(2)
    pulls = [torch.randn(leaf.shape, generator=random, dtype=torch.float64).to(leaf) for leaf in leaves]
    sources = [inputs, *cell.parameters()]
    gradients = torch.autograd.grad(leaves, sources, pulls, allow_unused=True, materialize_grads=True)
    return [tensor.detach() for tensor in (*leaves, *gradients)]
