"""Published cells with a memory of slots, heads or matrices, written as their authors write them."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

import throughtime as tt


class HeadsInOneProjection(tt.RNNCell):
    """Queries, keys and values of two heads out of one product, taken apart along a leading axis."""

    def __init__(self, units: int, *, by: str) -> None:
        super().__init__()
        self.state_size, self.output_size, self.by = torch.Size([3, units]), units, by
        self.qkv, self.inputs = nn.Linear(units, 3 * units, bias=False), nn.Linear(3, units)

    def forward(self, x: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        memory = torch.cat([memory[:, 1:], self.inputs(x).unsqueeze(1)], 1)
        n, slots, units = memory.shape
        parts = self.qkv(memory).view(n, -1, 3, 2, units // 2).permute(2, 0, 3, 1, 4)
        if self.by == "unpack":
            q, k, v = parts
        elif self.by == "select":
            q, k, v = parts[0], parts[1], parts[2]
        elif self.by == "unbind":
            q, k, v = parts.unbind(0)
        else:
            q, k, v = (part.squeeze(0) for part in parts.chunk(3, 0))
        seen = torch.softmax(q @ k.transpose(-2, -1) / math.sqrt(units // 2), -1) @ v
        memory = torch.tanh(memory + seen.transpose(1, 2).reshape(n, slots, units))
        return memory.mean(1), memory


class HeadsFoldedIntoBatch(tt.RNNCell):
    """Attention over slots whose heads are folded into the batch, so that `bmm` multiplies them all."""

    def __init__(self, units: int) -> None:
        super().__init__()
        self.state_size, self.output_size = torch.Size([3, units]), units
        self.q, self.k, self.v = (nn.Linear(units, units) for _ in range(3))
        self.inputs = nn.Linear(3, units)

    def split(self, x: Tensor) -> Tensor:
        n, slots, units = x.shape
        return x.view(n, slots, 2, units // 2).transpose(1, 2).reshape(n * 2, slots, units // 2)

    def forward(self, x: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        n, slots, units = memory.shape
        memory = memory + self.inputs(x)[:, None]
        q, k, v = (self.split(layer(memory)) for layer in (self.q, self.k, self.v))
        seen = torch.bmm(torch.softmax(torch.bmm(q, k.transpose(1, 2)), -1), v)
        memory = torch.tanh(memory + seen.view(n, 2, slots, units // 2).permute(0, 2, 1, 3).reshape(n, slots, units))
        return memory.sum(1), memory


class SlotAttention(tt.RNNCell):
    """Slots that compete for the features of a frame, each moved on by one GRU (Locatello et al. 2020)."""

    def __init__(self, units: int, slots: int = 3) -> None:
        super().__init__()
        self.state_size, self.output_size = torch.Size([slots, units]), units
        self.features, self.project = nn.Linear(1, units), nn.ModuleList(nn.Linear(units, units) for _ in range(3))
        self.gru, self.mlp = (
            nn.GRUCell(units, units),
            nn.Sequential(nn.Linear(units, 6), nn.ReLU(), nn.Linear(6, units)),
        )
        self.norms = nn.ModuleList(nn.LayerNorm(units) for _ in range(3))

    def forward(self, x: Tensor, slots: Tensor) -> tuple[Tensor, Tensor]:
        n, _, units = slots.shape
        features = self.norms[0](self.features(x.unsqueeze(2)))
        k, v = self.project[0](features), self.project[1](features)
        for _ in range(2):
            q = self.project[2](self.norms[1](slots))
            scores = torch.einsum("bid,bjd->bij", q, k) * units**-0.5
            weights = scores.softmax(1) + 1e-2
            weights = weights / weights.sum(-1, keepdim=True)
            updates = torch.einsum("bjd,bij->bid", v, weights)
            slots = self.gru(updates.reshape(-1, units), slots.reshape(-1, units)).reshape(n, -1, units)
            slots = slots + self.mlp(self.norms[2](slots))
        return slots.mean(1), slots


class RIMs(tt.RNNCell):
    """Recurrent independent mechanisms: the best of several small cells, each with weights of its own, move on."""

    def __init__(self, units: int, blocks: int = 3, active: int = 2) -> None:
        super().__init__()
        self.state_size, self.output_size, self.active = torch.Size([blocks, units]), blocks * units, active
        self.key, self.value = nn.Linear(3, units), nn.Linear(3, units)
        self.query = nn.Parameter(torch.empty(blocks, units, units))
        self.own = nn.Parameter(torch.empty(blocks, 2 * units, units))

    def forward(self, x: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        padded = torch.stack([x, torch.zeros_like(x)], 1)
        keys, values = self.key(padded), self.value(padded)
        queries = torch.einsum("bkd,kde->bke", h, self.query)
        weights = torch.softmax(queries @ keys.transpose(1, 2), -1)
        chosen = weights[:, :, 0].topk(self.active, 1).indices
        mask = torch.zeros_like(weights[:, :, 0]).scatter(1, chosen, 1.0).unsqueeze(2)
        joined = torch.cat([weights @ values, h], 2)
        new = torch.tanh(torch.bmm(joined.transpose(0, 1), self.own).transpose(0, 1))
        h = mask * new + (1 - mask) * h
        return h.flatten(1), h


class TuringMemory(tt.RNNCell):
    """A memory addressed by content and by shifts, as of the neural Turing machine (Graves et al. 2014)."""

    def __init__(self, units: int, slots: int = 5, *, gather: bool = True) -> None:
        super().__init__()
        self.state_size, self.output_size = (torch.Size([slots, units]), slots, units), units
        self.controller = nn.GRUCell(3 + units, units)
        self.head, self.gather = nn.Linear(units, 3 * units + 6), gather

    def shifted(self, weights: Tensor, shift: Tensor) -> Tensor:
        if self.gather:
            slots = weights.shape[1]
            places = (torch.arange(slots).unsqueeze(1) + torch.arange(-1, 2)) % slots
            return (weights[:, places] * shift.unsqueeze(1)).sum(2)
        rolled = torch.stack([weights.roll(1, 1), weights, weights.roll(-1, 1)], 2)
        return torch.einsum("bnk,bk->bn", rolled, shift)

    def forward(self, x: Tensor, state: Any) -> Any:
        memory, weights, h = state
        units = h.shape[1]
        read = torch.einsum("bn,bnd->bd", weights, memory)
        h = self.controller(torch.cat([x, read], 1), h)
        key, erase, add, rest = self.head(h).split([units, units, units, 6], 1)
        beta, gate, gamma = (
            functional.softplus(rest[:, :1]),
            torch.sigmoid(rest[:, 1:2]),
            1 + functional.softplus(rest[:, 2:3]),
        )
        shift = torch.softmax(rest[:, 3:], 1)
        content = torch.softmax(beta * functional.cosine_similarity(memory + 1e-8, key.unsqueeze(1) + 1e-8, dim=-1), 1)
        moved = self.shifted(gate * content + (1 - gate) * torch.softmax(weights, 1), shift)
        sharp = (moved.clamp_min(1e-6)) ** gamma
        weights = sharp / (sharp.sum(1, keepdim=True) + 1e-8)
        erased = memory * (1 - torch.einsum("bn,bd->bnd", weights, torch.sigmoid(erase)))
        memory = erased + torch.einsum("bn,bd->bnd", weights, torch.tanh(add))
        return read, (memory, weights, h)


class DifferentiableComputer(tt.RNNCell):
    """Allocation by sorted usage and a matrix of temporal links (DNC, Graves et al. 2016)."""

    def __init__(self, units: int, slots: int = 4) -> None:
        super().__init__()
        self.state_size = (torch.Size([slots, units]), slots, slots, torch.Size([slots, slots]), slots, units)
        self.output_size = 2 * units
        self.controller, self.interface = nn.LSTMCell(3 + units, units), nn.Linear(units, 3 * units + 6)

    def forward(self, x: Tensor, state: Any) -> Any:
        memory, usage, precedence, links, read_weights, read = state
        h, _ = self.controller(torch.cat([x, read], 1), (read, read))
        units = h.shape[1]
        parts = self.interface(h)
        write_key, erase, write = (parts[:, i * units : (i + 1) * units] for i in range(3))
        gates = torch.sigmoid(parts[:, 3 * units : 3 * units + 3])
        modes = torch.softmax(parts[:, -3:], 1)
        usage = torch.sigmoid(usage) * (1 - gates[:, :1] * torch.softmax(read_weights, 1))
        ordered, free_list = torch.sort(usage, 1)
        products = torch.cumprod(torch.cat([torch.ones_like(ordered[:, :1]), ordered[:, :-1]], 1), 1)
        allocation = torch.zeros_like(usage).scatter(1, free_list, (1 - ordered) * products)
        content = torch.softmax(functional.cosine_similarity(memory + 1e-6, write_key[:, None] + 1e-6, -1), 1)
        weights = gates[:, 2:] * (gates[:, 1:2] * allocation + (1 - gates[:, 1:2]) * content)
        memory = (
            memory * (1 - weights[:, :, None] * torch.sigmoid(erase)[:, None]) + weights[:, :, None] * write[:, None]
        )
        links = (1 - weights[:, :, None] - weights[:, None, :]) * links + weights[:, :, None] * precedence[:, None, :]
        links = links * (1 - torch.eye(links.shape[1], dtype=links.dtype))
        precedence = (1 - weights.sum(1, keepdim=True)) * precedence + weights
        forward, backward = (
            torch.einsum("bij,bj->bi", links, read_weights),
            torch.einsum("bji,bj->bi", links, read_weights),
        )
        read_weights = torch.softmax(modes[:, :1] * backward + modes[:, 1:2] * content + modes[:, 2:] * forward, 1)
        read = torch.einsum("bi,bid->bd", read_weights, memory)
        return torch.cat([h, read], 1), (memory, usage, precedence, links, read_weights, torch.tanh(read))


class RelationalMemory(tt.RNNCell):
    """Slots that attend to each other and to the input, then gates (Santoro et al. 2018)."""

    def __init__(self, units: int, slots: int = 3) -> None:
        super().__init__()
        self.state_size, self.output_size = torch.Size([slots, units]), slots * units
        self.inputs, self.qkv, self.norm = nn.Linear(3, units), nn.Linear(units, 3 * units), nn.LayerNorm(3 * units)
        self.mlp, self.after = nn.Linear(units, units), nn.LayerNorm(units)
        self.of_inputs, self.of_memory = nn.Linear(units, 2 * units), nn.Linear(units, 2 * units)

    def attended(self, memory: Tensor, heads: int = 2) -> Tensor:
        size = memory.shape[2] // heads
        qkv = self.norm(self.qkv(memory)).view(memory.shape[0], memory.shape[1], heads, 3 * size).permute(0, 2, 1, 3)
        q, k, v = torch.split(qkv, [size, size, size], -1)
        weights = functional.softmax(torch.matmul(q * size**-0.5, k.permute(0, 1, 3, 2)), -1)
        output = torch.matmul(weights, v).permute(0, 2, 1, 3).contiguous()
        return output.view(output.shape[0], output.shape[1], -1)

    def forward(self, x: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        x = self.inputs(x.view(x.shape[0], -1)).unsqueeze(1)
        new = torch.cat([memory, x], 1)
        new = self.after(new + self.attended(new))
        new = self.after(new + functional.relu(self.mlp(new)))[:, : memory.shape[1]]
        gates = self.of_inputs(x) + self.of_memory(torch.tanh(memory))
        entering, forget = torch.split(gates, gates.shape[2] // 2, 2)
        memory = torch.sigmoid(entering) * torch.tanh(new) + torch.sigmoid(forget + 1) * memory
        return memory.view(memory.shape[0], -1), memory


class MatrixLSTM(tt.RNNCell):
    """xLSTM's mLSTM: exponential gates, stabilised, and a matrix for each head."""

    def __init__(self, units: int, heads: int = 2) -> None:
        super().__init__()
        size, self.heads = units // heads, heads
        self.state_size = (torch.Size([heads, size, size]), torch.Size([heads, size]), heads)
        self.output_size = units
        self.qkv, self.gates, self.out = nn.Linear(3, 3 * units), nn.Linear(3, 2 * heads), nn.Linear(3, units)

    def forward(self, x: Tensor, state: Any) -> Any:
        c, n, m = state
        b = x.shape[0]
        q, k, v = (part.view(b, self.heads, -1) for part in self.qkv(x).chunk(3, 1))
        k = k / math.sqrt(k.shape[-1])
        entering, forget = self.gates(x).chunk(2, 1)
        forget = functional.logsigmoid(forget)
        top = torch.maximum(forget + m, entering)
        i, f = torch.exp(entering - top)[..., None], torch.exp(forget + m - top)[..., None]
        c = f[..., None] * c + i[..., None] * (v.unsqueeze(-1) @ k.unsqueeze(-2))
        n = f * n + i * k
        read = torch.einsum("bhvk,bhk->bhv", c, q)
        scale = torch.maximum(torch.einsum("bhk,bhk->bh", n, q).abs(), torch.exp(-top))[..., None]
        return torch.sigmoid(self.out(x)) * (read / scale).reshape(b, -1), (c, n, top)


class GatedDeltaNet(tt.RNNCell):
    """The recurrent form of the gated delta rule (Yang et al. 2024)."""

    def __init__(self, units: int, heads: int = 2) -> None:
        super().__init__()
        self.heads, size = heads, units // heads
        self.state_size, self.output_size = torch.Size([heads, size, size]), units
        self.q, self.k, self.v = (nn.Linear(3, units, bias=False) for _ in range(3))
        self.a, self.b = nn.Linear(3, heads), nn.Linear(3, heads)

    def forward(self, x: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
        q, k, v = (layer(x).unflatten(-1, (self.heads, -1)) for layer in (self.q, self.k, self.v))
        q, k = functional.normalize(q, dim=-1), functional.normalize(k, dim=-1)
        s = s * torch.exp(-functional.softplus(self.a(x)))[..., None, None]
        old = (s * k[..., None]).sum(-2)
        s = s + torch.einsum("bhk,bhv,bh->bhkv", k, v - old, torch.sigmoid(self.b(x)))
        return torch.einsum("bhk,bhkv->bhv", q, s).flatten(1), s


class FastWeights(tt.RNNCell):
    """An outer product with decay, applied in an inner loop (Ba et al. 2016)."""

    def __init__(self, units: int) -> None:
        super().__init__()
        self.state_size, self.output_size = (units, torch.Size([units, units])), units
        self.x, self.h, self.norm = nn.Linear(3, units), nn.Linear(units, units), nn.LayerNorm(units)

    def forward(self, x: Tensor, state: Any) -> Any:
        h, a = state
        a = 0.9 * a + 0.5 * torch.bmm(h.unsqueeze(2), h.unsqueeze(1))
        base = self.x(x) + self.h(h)
        h = torch.tanh(base)
        for _ in range(2):
            h = torch.relu(self.norm(base + torch.bmm(a, h.unsqueeze(2)).squeeze(2)))
        return h, (h, a)


class ModernHopfield(tt.RNNCell):
    """Retrieval from stored patterns that all rows share, by softmax (Ramsauer et al. 2020)."""

    def __init__(self, units: int) -> None:
        super().__init__()
        self.state_size = self.output_size = units
        self.patterns, self.x = nn.Parameter(torch.empty(5, units)), nn.Linear(3, units)

    def forward(self, x: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        query = self.x(x) + h
        for _ in range(2):
            query = torch.softmax(2.0 * query @ self.patterns.T, -1) @ self.patterns
        return query, torch.tanh(query)


class Capsules(tt.RNNCell):
    """Dynamic routing between capsules (Sabour et al. 2017), in the cell."""

    def __init__(self, units: int, capsules: int = 3) -> None:
        super().__init__()
        self.state_size, self.output_size = torch.Size([capsules, units]), capsules * units
        self.w = nn.Parameter(torch.empty(capsules, capsules, units, units))
        self.x = nn.Linear(3, capsules * units)

    @staticmethod
    def squash(s: Tensor) -> Tensor:
        squared = (s**2).sum(-1, keepdim=True)
        return squared / (1 + squared) * s / torch.sqrt(squared + 1e-6)

    def forward(self, x: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        u = self.squash(h + self.x(x).view(h.shape))
        votes = torch.einsum("bid,ijde->bije", u, self.w)
        logits = torch.zeros(votes.shape[:3], dtype=votes.dtype)
        for _ in range(2):
            v = self.squash((torch.softmax(logits, 2).unsqueeze(-1) * votes).sum(1))
            logits = logits + (votes * v.unsqueeze(1)).sum(-1)
        return v.flatten(1), v


class SparseMemory(tt.RNNCell):
    """Only the best places of a memory are read and written, by `topk`, `gather` and `scatter`."""

    def __init__(self, units: int, slots: int = 6) -> None:
        super().__init__()
        self.state_size, self.output_size = torch.Size([slots, units]), units
        self.query, self.write = nn.Linear(3, units), nn.Linear(3, units)

    def forward(self, x: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        scores = torch.einsum("bsd,bd->bs", memory, self.query(x))
        top, places = scores.topk(2, dim=1)
        wide = places.unsqueeze(-1).expand(-1, -1, memory.shape[2])
        weights = torch.softmax(top, 1).unsqueeze(-1)
        found = torch.gather(memory, 1, wide)
        memory = memory.scatter(1, wide, torch.tanh(found + weights * self.write(x).unsqueeze(1)))
        return (weights * found).sum(1), memory


class PatternMoves(tt.RNNCell):
    """What `einops.rearrange` and `repeat` write: reshape, permute, reshape."""

    def __init__(self, units: int) -> None:
        super().__init__()
        self.state_size, self.output_size = torch.Size([3, units]), units
        self.w, self.x = nn.Linear(units // 2, units // 2), nn.Linear(3, 2 * units)

    def forward(self, x: Tensor, slots: Tensor) -> tuple[Tensor, Tensor]:
        n, count, units = slots.shape
        # "b s (h d) -> (b h) s d", a layer, "(b h) s d -> b s (h d)"
        folded = slots.reshape(n, count, 2, units // 2).permute(0, 2, 1, 3).reshape(n * 2, count, units // 2)
        made = torch.tanh(self.w(folded)).reshape(n, 2, count, units // 2).permute(0, 2, 1, 3).reshape(slots.shape)
        # "b (k d) -> k b d" taken apart, and "b d -> (b s) d" back to slots.
        key, value = self.x(x).reshape(n, 2, units).permute(1, 0, 2)
        spread = key.unsqueeze(1).expand(n, count, units).reshape(n * count, units) * value.repeat_interleave(count, 0)
        slots = torch.tanh(0.5 * made + spread.reshape(n, count, units))
        return slots.mean(1), slots


class SlotsFirst(tt.RNNCell):
    """Slots folded in front of rows, "b s d -> (s b) d", and a layer on all of them."""

    def __init__(self, units: int) -> None:
        super().__init__()
        self.state_size, self.output_size = torch.Size([3, units]), 3
        self.w, self.x, self.u = nn.Linear(units, units), nn.Linear(3, units), nn.Parameter(torch.empty(units, 1))

    def forward(self, x: Tensor, slots: Tensor) -> tuple[Tensor, Tensor]:
        n, count, units = slots.shape
        folded = slots.transpose(0, 1).reshape(-1, units)
        folded = torch.tanh(self.w(folded) + self.x(x).repeat(count, 1)) * torch.softmax(folded, 1)
        scores = (folded @ self.u).view(count, n).t()
        return scores, folded.view(count, n, units).transpose(0, 1) + 0.1 * slots


class ManyRows(tt.RNNCell):
    """A table of parameters, a memory and a number in the code, each equal to the number of rows."""

    def __init__(self, units: int, rows: int) -> None:
        super().__init__()
        self.state_size, self.output_size, self.rows = torch.Size([2, units]), units, rows
        self.keys, self.x = nn.Parameter(torch.empty(rows, units)), nn.Linear(3, units)
        self.values = nn.Parameter(torch.empty(rows, 2, units))

    def forward(self, x: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        weights = torch.softmax((h + self.x(x).unsqueeze(1)) @ self.keys.t(), -1)
        made = torch.einsum("bsr,rsd->bsd", weights, self.values @ torch.eye(h.shape[2], dtype=h.dtype))
        wide = self.x(x).unsqueeze(1).expand(-1, self.rows, -1)
        h = torch.tanh(made + 0.5 * h + (wide @ self.keys.t()[:, :4]).mean(1)[:, : h.shape[2]].unsqueeze(1))
        return h.sum(1), h
