"""Cells as a user writes them, in plain PyTorch: none of them is known to the package."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

import throughtime as tt


class TorchGRU(tt.RNNCell):
    """The GRU of `torch.nn`: its reset gate acts after the product, TensorFlow's (`tt.GRUCell`) before."""

    def __init__(self, input_size: int, units: int) -> None:
        super().__init__()
        self.state_size = self.output_size = units
        self.from_inputs = nn.Linear(input_size, 3 * units)
        self.from_state = nn.Linear(units, 3 * units)

    def forward(self, inputs: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        x_r, x_z, x_n = self.from_inputs(inputs).chunk(3, 1)
        h_r, h_z, h_n = self.from_state(h).chunk(3, 1)
        z = torch.sigmoid(x_z + h_z)
        n = torch.tanh(x_n + torch.sigmoid(x_r + h_r) * h_n)
        h = (1 - z) * n + z * h
        return h, h


class LayerNormLSTM(tt.RNNCell):
    """An LSTM whose gates are normalised."""

    def __init__(self, input_size: int, units: int) -> None:
        super().__init__()
        self.state_size, self.output_size = (units, units), units
        self.linear = nn.Linear(input_size + units, 4 * units)
        self.norm = nn.LayerNorm(4 * units)

    def forward(self, inputs: Tensor, state: Any) -> tuple[Tensor, Any]:
        c, h = state
        i, j, f, o = self.norm(self.linear(torch.cat([inputs, h], 1))).chunk(4, 1)
        c = c * torch.sigmoid(f + 1) + torch.sigmoid(i) * torch.tanh(j)
        h = torch.sigmoid(o) * torch.tanh(c)
        return h, (c, h)


class PeepholeLSTM(tt.RNNCell):
    """An LSTM whose gates see the memory."""

    def __init__(self, input_size: int, units: int) -> None:
        super().__init__()
        self.state_size, self.output_size = (units, units), units
        self.linear = nn.Linear(input_size + units, 4 * units)
        self.peepholes = nn.Parameter(0.1 * torch.randn(3, units))

    def forward(self, inputs: Tensor, state: Any) -> tuple[Tensor, Any]:
        c, h = state
        w_i, w_f, w_o = self.peepholes
        i, j, f, o = self.linear(torch.cat([inputs, h], 1)).chunk(4, 1)
        c = c * torch.sigmoid(f + w_f * c + 1) + torch.sigmoid(i + w_i * c) * torch.tanh(j)
        h = torch.sigmoid(o + w_o * c) * torch.tanh(c)
        return h, (c, h)


class MinimalGatedUnit(tt.RNNCell):
    """One gate, two products that depend on each other."""

    def __init__(self, input_size: int, units: int) -> None:
        super().__init__()
        self.state_size = self.output_size = units
        self.forget = nn.Linear(input_size + units, units)
        self.candidate = nn.Linear(input_size + units, units)

    def forward(self, inputs: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        f = torch.sigmoid(self.forget(torch.cat([inputs, h], 1)))
        h = (1 - f) * h + f * torch.tanh(self.candidate(torch.cat([inputs, f * h], 1)))
        return h, h


class FastWeights(tt.RNNCell):
    """Remembers pairs of keys and values in a matrix of its own for each row."""

    def __init__(self, input_size: int, units: int) -> None:
        super().__init__()
        self.output_size = units
        self.state_size = {"h": units, "memory": torch.Size([units, units])}
        self.linear = nn.Linear(input_size + units, 3 * units)

    def forward(self, inputs: Tensor, state: Any) -> tuple[Tensor, Any]:
        query, key, value = torch.tanh(self.linear(torch.cat([inputs, state["h"]], 1))).chunk(3, 1)
        memory = 0.9 * state["memory"] + torch.bmm(value.unsqueeze(2), torch.softmax(key, 1).unsqueeze(1))
        h = torch.tanh(torch.bmm(memory, query.unsqueeze(2)).squeeze(2))
        return h, {"h": h, "memory": memory}


class MatrixLSTM(tt.RNNCell):
    """A memory of keys and values in a matrix, with gates that remember and forget; one head."""

    def __init__(self, input_size: int, units: int) -> None:
        super().__init__()
        self.output_size = units
        self.state_size = {"memory": torch.Size([units, units]), "norm": units}
        self.linear = nn.Linear(input_size, 4 * units + 2)

    def forward(self, inputs: Tensor, state: Any) -> tuple[Tensor, Any]:
        units = self.output_size
        query, key, value, out, gates = self.linear(inputs).split([units, units, units, units, 2], 1)
        key, (entering, forget) = key / units**0.5, torch.sigmoid(gates).split(1, 1)
        outer = value.unsqueeze(2) * key.unsqueeze(1)
        memory = forget.unsqueeze(2) * state["memory"] + entering.unsqueeze(2) * outer
        norm = forget * state["norm"] + entering * key
        seen = (memory @ query.unsqueeze(2)).squeeze(2) / (norm * query).sum(1, keepdim=True).abs().clamp(min=1)
        return torch.sigmoid(out) * seen, {"memory": memory, "norm": norm}


class Reader(tt.RNNCell):
    """A GRU that looks at a memory at every step: so many places, another memory for each row."""

    def __init__(self, input_size: int, units: int, places: int) -> None:
        super().__init__()
        self.output_size = units
        self.state_size = (units, torch.Size([places, units]))
        self.cell = TorchGRU(input_size + units, units)
        self.query = nn.Linear(units, units)

    def zero_state(self, batch_size: int, dtype: torch.dtype, device: Any = None) -> Any:
        h, memory = super().zero_state(batch_size, dtype, device)
        spread = torch.linspace(-1, 1, memory[0].numel(), dtype=dtype, device=memory.device).view(memory.shape[1:])
        return h, torch.sin(97 * spread + torch.arange(batch_size, device=memory.device).view(-1, 1, 1))

    def forward(self, inputs: Tensor, state: Any) -> tuple[Tensor, Any]:
        h, memory = state
        shares = torch.softmax((memory @ self.query(h).unsqueeze(2)).squeeze(2), 1)
        seen = (shares.unsqueeze(1) @ memory).squeeze(1)
        h, _ = self.cell(torch.cat([inputs, seen], 1), h)
        return h, (h, memory)


class HeadNormLSTM(tt.RNNCell):
    """An LSTM whose output is normalised in four groups of units."""

    def __init__(self, input_size: int, units: int) -> None:
        super().__init__()
        self.state_size, self.output_size = (units, units), units
        self.linear = nn.Linear(input_size + units, 4 * units)
        self.norm = nn.GroupNorm(4, units)

    def forward(self, inputs: Tensor, state: Any) -> tuple[Tensor, Any]:
        c, h = state
        i, j, f, o = self.linear(torch.cat([inputs, h], 1)).chunk(4, 1)
        c = c * torch.sigmoid(f + 1) + torch.sigmoid(i) * torch.tanh(j)
        h = torch.sigmoid(o) * self.norm(torch.tanh(c))
        return h, (c, h)


def lstm(input_size: int, units: int) -> tt.RNNCell:
    """Our own LSTM, to measure the others by."""
    return tt.LSTMCell(units, input_size=input_size)


def two_lstms(input_size: int, units: int) -> tt.RNNCell:
    """Two of them, one above the other."""
    return tt.MultiRNNCell([lstm(input_size, units), lstm(units, units)])


def residual_stack(input_size: int, units: int) -> tt.RNNCell:
    """Two LSTMs with dropout, the upper one added to its inputs."""
    lower = tt.DropoutWrapper(lstm(input_size, units), output_keep_prob=0.9)
    upper = tt.ResidualWrapper(tt.DropoutWrapper(lstm(units, units), output_keep_prob=0.9))
    return tt.MultiRNNCell([lower, upper])


Maker = Callable[[int, int], tt.RNNCell]
"""A cell from the size of its inputs and its units."""

OWN_CELLS: dict[str, tuple[Maker, Maker]] = {
    "layer-norm LSTM": (LayerNormLSTM, lstm),
    "peephole LSTM": (PeepholeLSTM, lstm),
    "minimal gated unit": (MinimalGatedUnit, lstm),
    "residual stack of 2 LSTMs, dropout": (residual_stack, two_lstms),
}
"""Each cell, and the plain one of equal size."""

MATRIX_CELLS: dict[str, Maker] = {
    "GRU, attention to 20 places": partial(Reader, places=20),
    "GRU, attention to 200 places": partial(Reader, places=200),
    "fast weights": FastWeights,
    "matrix LSTM": MatrixLSTM,
    "LSTM, norm of 4 groups": HeadNormLSTM,
}
"""Cells that compute with matrices, or groups of features, of a row."""
