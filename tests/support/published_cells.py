"""Cells as papers and their public code have them, a line for each, with the backend that must run it.

Each is written the way its authors write it, heads and slots folded into the batch where they do that, and is small.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

import throughtime as tt
from published_memories import (
    Capsules,
    DifferentiableComputer,
    FastWeights,
    GatedDeltaNet,
    HeadsFoldedIntoBatch,
    HeadsInOneProjection,
    ManyRows,
    MatrixLSTM,
    ModernHopfield,
    PatternMoves,
    RelationalMemory,
    RIMs,
    SlotAttention,
    SlotsFirst,
    SparseMemory,
    TuringMemory,
)
from user_cells import line

IMAGE = torch.Size([2, 3, 2])


class KAN(tt.RNNCell):
    """Learned functions on edges, as sums of radial bases (Kolmogorov-Arnold network)."""

    def __init__(self, units: int, bases: int = 5) -> None:
        super().__init__()
        self.state_size = self.output_size = units
        self.register_buffer("grid", torch.linspace(-1, 1, bases, dtype=torch.float64))
        self.base, self.spline = nn.Linear(3 + units, units), nn.Parameter(torch.empty(units, 3 + units, bases))

    def forward(self, x: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        joined = torch.cat([x, h], 1)
        bases = torch.exp(-(((joined.unsqueeze(-1) - self.grid.to(joined.dtype)) * 2) ** 2))
        spline = torch.einsum("bik,oik->bo", bases, self.spline)
        h = torch.tanh(self.base(functional.silu(joined)) + spline)
        return h, h


class GRUD(tt.RNNCell):
    """Missing values, masks and decays (Che et al. 2018): inputs are values, masks and gaps side by side."""

    def __init__(self, units: int) -> None:
        super().__init__()
        self.state_size, self.output_size = (1, units), units
        self.decay_x, self.decay_h = nn.Parameter(torch.empty(1)), nn.Linear(1, units)
        self.mean, self.gates, self.new = (
            nn.Parameter(torch.empty(1)),
            nn.Linear(2 + units, 2 * units),
            nn.Linear(2 + units, units),
        )

    def forward(self, x: Tensor, state: Any) -> Any:
        last, h = state
        value, mask, gap = x[:, :1], (x[:, 1:2] > 0).to(x.dtype), x[:, 2:].abs()
        decay = torch.exp(-torch.clamp(self.decay_x * gap, min=0))
        h = torch.exp(-functional.relu(self.decay_h(gap))) * h
        last = torch.where(mask > 0, value, last)
        value = mask * value + (1 - mask) * (decay * last + (1 - decay) * self.mean)
        z, r = torch.sigmoid(self.gates(torch.cat([value, h, mask], 1))).chunk(2, 1)
        h = (1 - z) * h + z * torch.tanh(self.new(torch.cat([value, r * h, mask], 1)))
        return h, (last, h)


class ODERNN(tt.RNNCell):
    """Euler steps of a learned field between two observations (Rubanova et al. 2019)."""

    def __init__(self, units: int) -> None:
        super().__init__()
        self.state_size = self.output_size = units
        self.field, self.gru = nn.Sequential(nn.Linear(units, 6), nn.Tanh(), nn.Linear(6, units)), nn.GRUCell(2, units)

    def forward(self, x: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        dt = x[:, 2:].abs() / 4
        for _ in range(4):
            h = h + dt * self.field(h)
        h = self.gru(x[:, :2], h)
        return h, h


class LMU(tt.RNNCell):
    """Legendre memory unit (Voelker et al. 2019): one memory for a written signal."""

    def __init__(self, units: int, order: int = 5) -> None:
        super().__init__()
        self.state_size, self.output_size = (units, order), units
        self.register_buffer("a", torch.randn(order, order, dtype=torch.float64) / 3)
        self.register_buffer("b", torch.randn(order, 1, dtype=torch.float64))
        self.e_x, self.e_h, self.e_m = (nn.Parameter(torch.empty(1, size)) for size in (3, units, order))
        self.w = nn.Linear(3 + units + order, units)

    def forward(self, x: Tensor, state: Any) -> Any:
        h, m = state
        u = functional.linear(x, self.e_x) + functional.linear(h, self.e_h) + functional.linear(m, self.e_m)
        m = functional.linear(m, self.a.to(m.dtype)) + functional.linear(u, self.b.to(m.dtype))
        h = torch.tanh(self.w(torch.cat([x, h, m], 1)))
        return h, (h, m)


class CoRNN(tt.RNNCell):
    """Coupled oscillators (Rusch & Mishra 2021)."""

    def __init__(self, units: int) -> None:
        super().__init__()
        self.state_size, self.output_size = (units, units), units
        self.w = nn.Linear(3 + 2 * units, units)

    def forward(self, x: Tensor, state: Any) -> Any:
        y, z = state
        z = z + 0.1 * (torch.tanh(self.w(torch.cat([x, z, y], 1))) - 1.3 * y - 0.7 * z)
        y = y + 0.1 * z
        return y, (y, z)


class UnICORNN(tt.RNNCell):
    """Undamped independent oscillators (Rusch & Mishra 2021)."""

    def __init__(self, units: int) -> None:
        super().__init__()
        self.state_size, self.output_size = (units, units), units
        self.w, self.c, self.x = nn.Parameter(torch.empty(units)), nn.Parameter(torch.empty(units)), nn.Linear(3, units)

    def forward(self, x: Tensor, state: Any) -> Any:
        y, z = state
        z = z - 0.1 * torch.sigmoid(self.c) * (torch.tanh(self.w * y + self.x(x)) + 0.9 * y)
        y = y + 0.1 * torch.sigmoid(self.c) * z
        return y, (y, z)


class BufferedConvolution(tt.RNNCell):
    """A causal convolution over a buffer of the last inputs, as a temporal convolutional network runs step by step."""

    def __init__(self, units: int, *, width: int = 3) -> None:
        super().__init__()
        self.state_size, self.output_size = torch.Size([3, width]), units
        self.conv, self.depthwise = nn.Conv1d(3, units, width), nn.Conv1d(3, 3, width, groups=3, padding=width - 1)

    def forward(self, x: Tensor, buffer: Tensor) -> tuple[Tensor, Tensor]:
        buffer = torch.cat([buffer[:, :, 1:], x.unsqueeze(2)], 2)
        y = functional.silu(self.depthwise(buffer)[..., : buffer.shape[2]])
        return torch.relu(self.conv(y)).squeeze(2), buffer


class PhasedLSTM(tt.RNNCell):
    """Gates that open periodically (Neil et al. 2016); the time is the last input."""

    def __init__(self, units: int) -> None:
        super().__init__()
        self.state_size, self.output_size = (units, units), units
        self.cell, self.tau, self.shift = (
            nn.LSTMCell(2, units),
            nn.Parameter(torch.empty(units)),
            nn.Parameter(torch.empty(units)),
        )

    def forward(self, x: Tensor, state: Any) -> Any:
        h, c = state
        new_h, new_c = self.cell(x[:, :2], (h, c))
        tau = torch.exp(self.tau)
        phase = torch.remainder(x[:, 2:] - self.shift, tau) / tau
        gate = torch.where(phase < 0.1, 20 * phase, torch.where(phase < 0.2, 2 - 10 * phase, 0.01 * phase))
        c, h = gate * new_c + (1 - gate) * c, gate * new_h + (1 - gate) * h
        return h, (h, c)


class HyperLSTM(tt.RNNCell):
    """A small LSTM that scales the gates of a large one (Ha et al. 2016)."""

    def __init__(self, units: int, hyper: int = 3, embedding: int = 2) -> None:
        super().__init__()
        self.state_size, self.output_size = (units, units, hyper, hyper), units
        self.hyper = nn.LSTMCell(3 + units, hyper)
        self.z = nn.ModuleList(nn.Linear(hyper, 4 * embedding) for _ in range(3))
        self.d = nn.ModuleList(
            nn.ModuleList(nn.Linear(embedding, units, bias=False) for _ in range(4)) for _ in range(3)
        )
        self.w_h, self.w_x = (
            nn.ParameterList(nn.Parameter(torch.empty(units, i)) for _ in range(4)) for i in (units, 3)
        )
        self.norms, self.norm_c = nn.ModuleList(nn.LayerNorm(units) for _ in range(4)), nn.LayerNorm(units)

    def forward(self, x: Tensor, state: Any) -> Any:
        h, c, small_h, small_c = state
        small_h, small_c = self.hyper(torch.cat([h, x], 1), (small_h, small_c))
        z_h, z_x, z_b = (layer(small_h).chunk(4, -1) for layer in self.z)
        gates = []
        for i in range(4):
            d_h, d_x = self.d[0][i](z_h[i]), self.d[1][i](z_x[i])
            y = d_h * torch.einsum("ij,bj->bi", self.w_h[i], h) + d_x * torch.einsum("ij,bj->bi", self.w_x[i], x)
            gates.append(self.norms[i](y + self.d[2][i](z_b[i])))
        i, f, g, o = gates
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(self.norm_c(c))
        return h, (h, c, small_h, small_c)


class MultiplicativeLSTM(tt.RNNCell):
    """An LSTM whose recurrent matrix depends on the input (Krause et al. 2016)."""

    def __init__(self, units: int) -> None:
        super().__init__()
        self.state_size, self.output_size = (units, units), units
        self.x, self.h, self.cell = (
            nn.Linear(3, units, bias=False),
            nn.Linear(units, units, bias=False),
            nn.LSTMCell(3, units),
        )

    def forward(self, x: Tensor, state: Any) -> Any:
        h, c = state
        h, c = self.cell(x, (self.x(x) * self.h(h), c))
        return h, (h, c)


class Mogrifier(tt.RNNCell):
    """Input and state gate each other before the LSTM (Melis et al. 2020)."""

    def __init__(self, units: int) -> None:
        super().__init__()
        self.state_size, self.output_size = (units, units), units
        self.cell, self.q, self.r = nn.LSTMCell(3, units), nn.Linear(units, 3), nn.Linear(3, units)

    def forward(self, x: Tensor, state: Any) -> Any:
        h, c = state
        for i in range(1, 6):
            if i % 2 == 0:
                h = 2 * torch.sigmoid(self.r(x)) * h
            else:
                x = 2 * torch.sigmoid(self.q(h)) * x
        h, c = self.cell(x, (h, c))
        return h, (h, c)


class FourierUnit(tt.RNNCell):
    """Fourier recurrent unit (Zhang et al. 2018): summaries along frequencies, and the step counted in the state."""

    def __init__(self, units: int, frequencies: int = 3) -> None:
        super().__init__()
        self.state_size, self.output_size = (torch.Size([frequencies, units]), 1), units
        self.register_buffer("f", torch.arange(1, frequencies + 1, dtype=torch.float64).view(-1, 1))
        self.phase = nn.Parameter(torch.empty(frequencies, 1))
        self.w, self.out = nn.Linear(3 + frequencies * units, units), nn.Linear(frequencies * units, units)

    def forward(self, x: Tensor, state: Any) -> Any:
        u, t = state
        h = torch.relu(self.w(torch.cat([x, u.flatten(1)], 1)))
        u = u + torch.cos(2 * math.pi * self.f.to(x.dtype) * t[:, :, None] / 7 + self.phase) * h[:, None] / 7
        return self.out(u.flatten(1)), (u, t + 1)


class ConvLSTM(tt.RNNCell):
    """Channels first, one convolution for all gates, as on the web (Shi et al. 2015)."""

    def __init__(self, _units: int, *, norm: bool = False) -> None:
        super().__init__()
        self.state_size, self.output_size = (IMAGE, IMAGE), IMAGE
        self.conv = nn.Conv2d(4, 8, 3, padding=1)
        self.norm = nn.GroupNorm(4, 8) if norm else nn.Identity()

    def forward(self, x: Tensor, state: Any) -> Any:
        h, c = state
        i, f, o, g = torch.split(self.norm(self.conv(torch.cat([x, h], 1))), 2, 1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
        return h, (h, c)


class GroupNorm(tt.RNNCell):
    """Groups of features; where each is a group, torch's own check refuses a single row."""

    def __init__(self, units: int, groups: int) -> None:
        super().__init__()
        self.state_size = self.output_size = units
        self.w, self.norm = nn.Linear(3 + units, units), nn.GroupNorm(groups, units)

    def forward(self, x: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        h = torch.tanh(self.norm(self.w(torch.cat([x, h], 1))) + h)
        return h, h


class Einsum(tt.RNNCell):
    """Three and four operands at once."""

    def __init__(self, units: int, equation: str, *shapes: tuple[int, ...]) -> None:
        super().__init__()
        self.state_size = self.output_size = units
        self.equation, self.x = equation, nn.Linear(3, units)
        self.weights = nn.ParameterList(nn.Parameter(torch.empty(shape)) for shape in shapes)

    def forward(self, x: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        made = torch.einsum(self.equation, torch.tanh(self.x(x)), h, *self.weights)
        h = torch.tanh(made.reshape(len(x), -1).sum(1, keepdim=True) if made.shape != h.shape else made) + 0.5 * h
        return h, h


PUBLISHED = [
    *(
        line(f"heads in one projection, {by}", lambda units, by=by: HeadsInOneProjection(units, by=by))
        for by in ("unpack", "select", "unbind", "chunk")
    ),
    line("heads folded into the batch", HeadsFoldedIntoBatch),
    line("slot attention", SlotAttention),
    line("RIMs", RIMs, "aten", "topk"),
    line("NTM, gathered shifts", TuringMemory, "aten", "index"),
    line("NTM, rolled shifts", lambda units: TuringMemory(units, gather=False)),
    line("DNC", DifferentiableComputer, "aten", "sort"),
    line("relational memory core", RelationalMemory),
    line("mLSTM", MatrixLSTM),
    line("gated DeltaNet", GatedDeltaNet),
    line("fast weights", FastWeights),
    line("modern Hopfield", ModernHopfield),
    line("capsules", Capsules),
    line("KAN", KAN),
    line("GRU-D", GRUD),
    line("ODE-RNN", ODERNN),
    line("LMU", LMU),
    line("coRNN", CoRNN),
    line("UnICORNN", UnICORNN),
    line("TCN with a buffer", BufferedConvolution),
    line("phased LSTM", PhasedLSTM),
    line("HyperLSTM", HyperLSTM),
    line("multiplicative LSTM", MultiplicativeLSTM),
    line("Mogrifier LSTM", Mogrifier),
    line("FRU", FourierUnit),
    line("ConvLSTM, channels first", ConvLSTM, "aten", "convolution", IMAGE),
    line("ConvLSTM, group norm", lambda units: ConvLSTM(units, norm=True), "aten", "convolution", IMAGE),
    line("sparse memory", SparseMemory, "aten", "topk"),
    line("group norm", lambda units: GroupNorm(units, 2)),
    line("einsum of three, trilinear", lambda units: Einsum(units, "bi,bj,ijk->bk", (4, 4, 4))),
    line("einsum of three, form", lambda units: Einsum(units, "bi,bj,ij->b", (4, 4))),
    line("einsum of four", lambda units: Einsum(units, "bi,bj,ir,rjk->bk", (4, 2), (2, 4, 4))),
    line("einsum of four, dots", lambda units: Einsum(units, "...i,...j,jk,ki->...k", (4, 4), (4, 4))),
    line("rearranged", PatternMoves),
    line("slots in front of rows", SlotsFirst),
    line("67 rows", lambda units: ManyRows(units, 67)),
    line("71 rows", lambda units: ManyRows(units, 71)),
]
