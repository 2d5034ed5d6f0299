"""A small thing to learn: how many ones there were, and whether the last step was one."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

import throughtime as tt
from throughtime.train import Batch, Mean, accuracy, cross_entropy


class Counter(nn.Module):
    """Tags every step with the number of ones so far, up to three."""

    def __init__(self, dropout: float = 0.0, **options: Any) -> None:
        super().__init__()
        self.cell = tt.GRUCell(12, input_size=1)
        self.drop = nn.Dropout(dropout)
        self.out = nn.Linear(12, 4)

    def forward(self, inputs: Tensor, lengths: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        outputs, state = tt.dynamic_rnn(self.cell, inputs, lengths, state, torch.float32)
        return self.out(self.drop(outputs)), state


def measure(model: nn.Module, batch: Batch) -> dict[str, Mean]:
    return measure_from(model, batch, None)[0]


def measure_from(model: nn.Module, batch: Batch, state: Any) -> tuple[dict[str, Mean], Any]:
    scores, state = model(batch.inputs, batch.lengths, state)
    metrics = {
        "loss": cross_entropy(scores, batch.targets, batch.lengths),
        "accuracy": accuracy(scores, batch.targets, batch.lengths),
    }
    return metrics, state


def examples(count: int = 60, seed: int = 0) -> list[tuple[Tensor, Tensor]]:
    random = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, 13, (count,), generator=random).tolist()
    bits = [(torch.rand(length, 1, generator=random) < 0.3).float() for length in lengths]
    return [(sequence, sequence[:, 0].long().cumsum(0).clamp(max=3)) for sequence in bits]


def parts(*, lr: float = 0.02, dropout: float = 0.0, batch_size: int = 12) -> dict[str, Any]:
    """What `fit` wants, the same every time."""
    torch.manual_seed(0)
    model = Counter(dropout)
    return {
        "model": model,
        "measure": measure,
        "train": tt.train.loader(examples(), batch_size),
        "valid": tt.train.loader(examples(30, seed=1), 30, shuffle=False),
        "optimizer": torch.optim.Adam(model.parameters(), lr),
    }


def weights(model: nn.Module) -> Tensor:
    return torch.cat([weight.detach().flatten() for weight in model.parameters()])
