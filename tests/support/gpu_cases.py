"""Cells for GPU kernels, and their comparison with the float64 reference: on a card, or in Triton's interpreter."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence
from torch.utils import _pytree as pytree

import throughtime as tt

TOLERANCE = {torch.float32: 1e-5, torch.float16: 5e-3, torch.bfloat16: 4e-2}
"""Of the norm of each result and gradient: sums are float32 inside, whatever goes in and out."""

TF32_TOLERANCE = 5e-3
"""Products of numbers with ten bits behind the point, as those of float16 have."""


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


class InPlace(tt.RNNCell):
    """Works in place on its state, on its inputs and on a view of its gates."""

    def __init__(self, units: int) -> None:
        super().__init__()
        self.state_size = self.output_size = units
        self.mix, self.gate = nn.Linear(4, units), nn.Linear(units, units)

    def forward(self, inputs: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        inputs[:, 0].clamp_(-1, 1)
        gates = torch.sigmoid(self.gate(h.clone()))
        h[:, 1:] *= 0.5
        h += gates * torch.tanh(self.mix(inputs))
        seen = h.view(len(h), -1)[:, :-1]
        seen.sub_(0.1)
        return h, h


CELLS: dict[str, Callable[[int], tt.RNNCell]] = {
    "LSTM": tt.BasicLSTMCell,
    "GRU": tt.GRUCell,
    "RNN": tt.BasicRNNCell,
    "torch's LSTM": lambda units: tt.nn.LSTM(4, units).cell(),
    "torch's GRU": lambda units: tt.nn.GRU(4, units).cell(),
    "peepholes": lambda units: tt.LSTMCell(units, use_peepholes=True),
    "projection": lambda units: tt.LSTMCell(units, num_proj=max(2, units // 2 - 1)),
    "layer norm": LayerNormLSTM,
    "softmax": Softened,
    "in place": InPlace,
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


def check(
    name: str, batch: Batch, dtype: torch.dtype, device: str, *, tolerance: float | None = None, **options: Any
) -> None:
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
        allowed = TOLERANCE[dtype] if tolerance is None else tolerance
        assert error <= allowed, f"{name} {batch}, tensor {place}: {error:.1e}"


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


def check_states(form: str, lengths: list[int], device: str) -> None:
    """States in the order of the batch, where rows run in that of their lengths; second gradients, too."""
    torch.manual_seed(3)
    cell = tt.LSTMCell(7, input_size=4).double()
    inputs, state = torch.randn(5, 5, 4, dtype=torch.double), torch.randn(2, 5, 7, dtype=torch.double)

    def measured(backend: str, device: str, dtype: torch.dtype) -> list[Tensor]:
        own = copy.deepcopy(cell).to(device, dtype)
        x, start = (leaf.to(device, dtype).requires_grad_() for leaf in (inputs, state))
        found = []
        # The second time the call is known.
        for _ in range(2):
            given: Any = pack_padded_sequence(x, torch.tensor(lengths), True, False) if form == "packed" else x
            with tt.backend(backend):
                outputs, last = tt.dynamic_rnn(
                    own, given, None if form == "packed" else lengths, tt.LSTMStateTuple(*start), dtype=dtype
                )
            outputs = outputs.data if form == "packed" else outputs
            leaves = [x, start, *own.parameters()]
            first = torch.autograd.grad([outputs.sum(), (last.h**2 + last.c).sum()], leaves, create_graph=True)
            plain = torch.autograd.grad([outputs.sum(), (last.h**2 + last.c).sum()], leaves, retain_graph=True)
            second = torch.autograd.grad(sum((gradient**2).sum() for gradient in first), leaves)
            found += [outputs, *last, *first, *plain, *second]
        return [leaf.detach() for leaf in found]

    wanted = measured("reference", "cpu", torch.float64)
    for place, pair in enumerate(zip(measured("triton", device, torch.float32), wanted, strict=True)):
        got, want = pair
        error = float((got.double().cpu() - want).norm() / want.norm().clamp_min(1e-6))
        assert error <= TOLERANCE[torch.float32], f"{form}, tensor {place}: {error:.1e}"
