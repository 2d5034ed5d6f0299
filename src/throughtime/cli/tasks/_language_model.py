"""A model that writes: one character after another, each by all before it."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

import throughtime as tt
from throughtime import _pytree
from throughtime.cli.tables import Layout
from throughtime.cli.tasks._inputs import make_cell
from throughtime.cli.tasks._models import Shape

# Place 0 is what was never seen, places from 1 are characters, and the place after them ends a text.
WIDTH = 64


class Generator(nn.Module):
    """Scores of the next character, at every character."""

    def __init__(self, layout: Layout, shape: Shape) -> None:
        super().__init__()
        self.end = len(layout.inputs[0].categories) + 1
        self.embedding = nn.Embedding(self.end + 1, WIDTH)
        self.forwards = make_cell(shape.cell, shape.units, shape.layers, WIDTH)
        self.dropout = nn.Dropout(shape.dropout)
        self.answer = nn.Linear(shape.units, self.end + 1)

    def forward(self, ids: Tensor, lengths: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """Scores [B, T, V] of the characters after `ids` [B, T], and the state to go on from."""
        x = self.dropout(self.embedding(ids))
        outputs, state = tt.dynamic_rnn(self.forwards, x, lengths, initial_state=state, dtype=x.dtype)
        scores: Tensor = self.answer(self.dropout(outputs))
        return scores, state


def measure_text(model: Any, batch: tt.train.Batch, state: Any = None) -> tuple[dict[str, tt.train.Mean], Any]:
    """Loss in nats and in bits a character, and accuracy; the state is carried to the next window."""
    assert batch.targets is not None
    scores, state = model(batch.inputs, batch.lengths, state)
    loss = tt.train.cross_entropy(scores, batch.targets, batch.target_lengths)
    values = {
        "loss": loss,
        "bits": tt.train.Mean(loss.total.detach() / math.log(2), loss.count),
        "accuracy": tt.train.accuracy(scores, batch.targets, batch.target_lengths),
    }
    return values, _pytree.map_leaves(torch.Tensor.detach, state)
