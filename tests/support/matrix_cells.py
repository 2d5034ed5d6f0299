"""Cells with a matrix as their state: operations on it (`WORDS`), and layers of torch that it goes through."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

import throughtime as tt

WORDS: dict[str, Callable[[Tensor], Tensor]] = {
    "norm": lambda m: m / (1 + m.norm(dim=2, keepdim=True)),
    "normalize": lambda m: functional.normalize(m, dim=1),
    "norm of all": lambda m: m / (1 + torch.linalg.vector_norm(m, 1, dim=(1, 2), keepdim=True)),
    "largest": lambda m: m / (1 + torch.linalg.vector_norm(m, math.inf, dim=1, keepdim=True)),
    "cosine": lambda m: m * functional.cosine_similarity(m, m.flip(1), dim=2).unsqueeze(2),
    "logsumexp": lambda m: m - m.logsumexp(2, keepdim=True) - m.logsumexp((1, 2)).view(-1, 1, 1),
    "any": lambda m: torch.where((m > 0.9).any(2, keepdim=True), m / 2, m),
    "all": lambda m: torch.where((m > -0.5).all(1, keepdim=True), m / 2, m),
    "roll": lambda m: m.roll(2, 2) + m.roll((1, -1), (1, 2)) + m.roll(0, 1),
    "pad": lambda m: functional.pad(m, (1, 1))[:, :, :6] + functional.pad(m, (2, -2, -1, 1), value=0.3),
    "glu": lambda m: functional.glu(m, 2).repeat(1, 1, 2) + functional.glu(m, 1).repeat(1, 2, 1),
    "slots": lambda m: torch.tanh(functional.linear(m, torch.eye(6, dtype=m.dtype).roll(1, 0))),
    "rows second": lambda m: torch.softmax(m.transpose(0, 1), 0).transpose(0, 1),
    "rows last": lambda m: torch.sin(m.permute(1, 2, 0) * 2).permute(2, 0, 1),
    "attention": lambda m: functional.scaled_dot_product_attention(
        m, m, m.flip(1), attn_mask=m @ m.transpose(1, 2) > -1
    ),
    "attention of heads": lambda m: (
        functional.scaled_dot_product_attention(
            *[m.unflatten(2, (2, 3)).transpose(1, 2)] * 2, m.unflatten(2, (3, 2)).permute(0, 3, 1, 2), is_causal=True
        )
        .flatten(1)
        .view(-1, 4, 6)
    ),
    "attention with a mask": lambda m: functional.scaled_dot_product_attention(
        *[m.unsqueeze(1)] * 3, attn_mask=torch.eye(4, dtype=m.dtype), scale=0.3
    ).squeeze(1),
    "attention with shared keys": lambda m: functional.scaled_dot_product_attention(
        m.view(-1, 2, 4, 3), *[m.view(-1, 1, 8, 3)] * 2, enable_gqa=True
    ).view(-1, 4, 6),
    "cumulated": lambda m: m.softmax(2).cumsum(-1) + torch.cumsum(m, 1) / 4,
    "triangles": lambda m: m + (m @ m.transpose(1, 2)).tril(-1) @ m.triu(1),
    "every third": lambda m: torch.slice_scatter(m, m[:, :, ::3] ** 2, 2, 0, 6, 3),
    "heads": lambda m: m * torch.einsum("bhd,bhsd->bhs", m[:, :2, :3], m.view(-1, 2, 4, 3)).sum(1)[..., None],
    "several sums": lambda m: m - m.unflatten(2, (2, 3)).mean((1, 3), keepdim=True).expand(-1, 4, 2, 3).flatten(2),
    "deviations": lambda m: m / (1 + m.std(2, keepdim=True) + m.var((1, 2), keepdim=True, correction=0)),
}


class Layers(tt.RNNCell):
    """A matrix that goes through a layer of torch's at every step."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.state_size, self.output_size, self.layer = torch.Size([5, 8]), 8, layer

    def forward(self, inputs: Tensor, m: Tensor) -> tuple[Tensor, Tensor]:
        found = self.layer(m, m, m) if isinstance(self.layer, nn.MultiheadAttention) else self.layer(m)
        m = torch.tanh((found[0] if isinstance(found, tuple) else found) + inputs[:, :1, None])
        return m.mean(1), m


class Turned(nn.Module):
    """A layer that has slots first and rows second."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, m: Tensor) -> Tensor:
        return self.layer(m.transpose(0, 1)).transpose(0, 1)


LAYERS: dict[str, Callable[[], nn.Module]] = {
    "linear": lambda: nn.Linear(8, 8),
    "attention": lambda: nn.MultiheadAttention(8, 2, batch_first=True),
    "encoder": lambda: nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True),
    "encoder of slots": lambda: Turned(nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0)),
    "group norm": lambda: nn.GroupNorm(5, 5),
    "layer norm": lambda: nn.LayerNorm(8),
}
