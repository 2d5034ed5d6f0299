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
    """A GRU that reads a memory of some places at every step, another memory for each row."""

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


class ConvLSTM(tt.RNNCell):
    """An LSTM over pictures, channels first: one convolution of 3 by 3 makes all gates. Its rows are flat."""

    def __init__(self, input_size: int, units: int, side: int = 8) -> None:
        super().__init__()
        self.channels, self.side = max(1, units // 8), side
        self.picture = torch.Size([self.channels, side, side])
        self.state_size, self.output_size = (self.picture, self.picture), units
        self.inputs = nn.Linear(input_size, side * side)
        self.gates = nn.Conv2d(1 + self.channels, 4 * self.channels, 3, padding=1)
        self.out = nn.Linear(self.channels, units)

    def forward(self, inputs: Tensor, state: Any) -> tuple[Tensor, Any]:
        c, h = state
        picture = self.inputs(inputs).view(-1, 1, self.side, self.side)
        i, j, f, o = self.gates(torch.cat([picture, h], 1)).chunk(4, 1)
        c = torch.sigmoid(f + 1) * c + torch.sigmoid(i) * torch.tanh(j)
        h = torch.sigmoid(o) * torch.tanh(c)
        return self.out(h.mean((2, 3))), (c, h)


class SparseMemory(tt.RNNCell):
    """A memory of which only the four best places are read and written."""

    def __init__(self, input_size: int, units: int, places: int = 32) -> None:
        super().__init__()
        self.state_size, self.output_size = torch.Size([places, units]), units
        self.linear = nn.Linear(input_size, 2 * units)

    def forward(self, inputs: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        query, new = self.linear(inputs).chunk(2, 1)
        best, places = torch.einsum("bpd,bd->bp", memory, query).topk(4, dim=1)
        places = places.unsqueeze(2).expand(-1, -1, memory.shape[2])
        shares, found = torch.softmax(best, 1).unsqueeze(2), memory.gather(1, places)
        memory = memory.scatter(1, places, torch.tanh(found + shares * new.unsqueeze(1)))
        return (shares * found).sum(1) + new, memory


class SortedUsage(tt.RNNCell):
    """A memory that is written where it was used least, in sorted order, as that of a DNC is."""

    def __init__(self, input_size: int, units: int, places: int = 16) -> None:
        super().__init__()
        self.state_size, self.output_size = (torch.Size([places, units]), places), units
        self.linear = nn.Linear(input_size, units + 1)

    def forward(self, inputs: Tensor, state: Any) -> tuple[Tensor, Any]:
        memory, usage = state
        parts = self.linear(inputs)
        new, gate = parts[:, :-1], torch.sigmoid(parts[:, -1:])
        ordered, places = torch.sort(usage, 1)
        free = (1 - ordered) * torch.cumprod(torch.cat([torch.ones_like(gate), ordered[:, :-1]], 1), 1)
        shares = gate * torch.zeros_like(usage).scatter(1, places, free)
        memory = memory + shares.unsqueeze(2) * torch.tanh(new).unsqueeze(1)
        return memory.mean(1), (memory, torch.sigmoid(usage + shares - 0.1))


class Rotation(tt.RNNCell):
    """Complex numbers, turned by learned angles: for these there is nothing but the reference."""

    def __init__(self, input_size: int, units: int) -> None:
        super().__init__()
        pairs = (units + 1) // 2
        self.state_size, self.output_size = 2 * pairs, units
        self.angle, self.linear = nn.Parameter(torch.randn(pairs)), nn.Linear(input_size, 2 * pairs)

    def forward(self, inputs: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        pairs = torch.view_as_complex(h.unflatten(1, (-1, 2)))
        turned = torch.view_as_real(pairs * torch.exp(1j * self.angle)).flatten(1)
        h = torch.tanh(turned + self.linear(inputs))
        return h[:, : self.output_size], h


class Branching(tt.RNNCell):
    """A word for each row, looked up, and a branch that depends on values: Python decides, so the reference runs it."""

    def __init__(self, input_size: int, units: int, words: int = 50) -> None:
        super().__init__()
        self.state_size = self.output_size = units
        self.embedding, self.linear = nn.Embedding(words, units), nn.Linear(input_size + units, units)

    def forward(self, inputs: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        words = (inputs[:, 0].detach() * 10).long() % self.embedding.num_embeddings
        new = torch.tanh(self.linear(torch.cat([inputs, h], 1)) + self.embedding(words))
        h = 0.5 * (h + new) if new.detach().mean() > 0 else new
        return h, h


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

LOOPED_CELLS: dict[str, Maker] = {
    "ConvLSTM": ConvLSTM,
    "memory by topk and scatter": SparseMemory,
    "memory by sorted usage": SortedUsage,
    "complex rotation": Rotation,
    "words and a branch": Branching,
}
"""Cells that no kernel takes: their loops are run step by step."""
