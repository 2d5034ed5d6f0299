"""A model that reads one text and writes another, looking back at what it read."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

import throughtime as tt
from throughtime.cli.tables import Layout
from throughtime.cli.tasks._inputs import make_cell
from throughtime.cli.tasks._models import Shape

WIDTH = 64
SMOOTHING = 0.1


class Translator(nn.Module):
    """Reads in both directions, then writes with attention; each text ends with a token of its own."""

    def __init__(self, layout: Layout, shape: Shape) -> None:
        super().__init__()
        source, target = len(layout.inputs[0].categories), len(layout.targets[0].categories)
        # Among the tokens to write, place 0 begins a text and the place after the last ends it.
        self.begin, self.end = 0, target + 1
        self.source = nn.Embedding(source + 1, WIDTH)
        self.target = nn.Embedding(target + 2, WIDTH)
        self.forwards = make_cell(shape.cell, shape.units, 1, WIDTH)
        self.backwards = make_cell(shape.cell, shape.units, 1, WIDTH)
        self.dropout = nn.Dropout(shape.dropout)
        attention = tt.decode.LuongAttention(shape.units, memory_size=2 * shape.units)
        writer = make_cell(shape.cell, shape.units, shape.layers, WIDTH + shape.units)
        self.writer = tt.decode.AttentionWrapper(writer, attention, shape.units, input_size=WIDTH)
        self.answer = nn.Linear(shape.units, target + 2)

    def forward(self, ids: Tensor, lengths: Tensor, written: Tensor, written_lengths: Tensor) -> Tensor:
        """Scores [B, U, V] of the next token after each of `written` [B, U], which begins with `begin`."""
        state = self.read(ids, lengths)
        x = self.dropout(self.target(written))
        outputs, _ = tt.dynamic_rnn(self.writer, x, written_lengths, initial_state=state, dtype=x.dtype)
        scores: Tensor = self.answer(self.dropout(outputs))
        return scores

    def read(self, ids: Tensor, lengths: Tensor) -> Any:
        """The state from which writing starts: a memory of `ids` [B, S]."""
        x = self.dropout(self.source(ids))
        outputs, _ = tt.bidirectional_dynamic_rnn(self.forwards, self.backwards, x, lengths, dtype=x.dtype)
        return self.remember(torch.cat(outputs, -1), lengths)

    def remember(self, memory: Tensor, lengths: Tensor) -> Any:
        """The state from which to write with what was read in mind [B, S, 2 * H]."""
        self.writer.attention_mechanisms[0].setup_memory(memory, lengths)
        return self.writer.zero_state(len(memory), memory.dtype)


def measure_translation(model: Any, batch: tt.train.Batch) -> dict[str, tt.train.Mean]:
    """Loss and accuracy over tokens, the end included.

    What is learned from is smoothed, so that the model does not grow too sure. What is told is the plain loss, of
    training and of what is held out alike: only so can they be compared.
    """
    assert batch.targets is not None
    assert batch.target_lengths is not None
    written, wanted, lengths = shifted(batch.targets, batch.target_lengths, model.begin, model.end)
    scores = model(batch.inputs, batch.lengths, written, lengths)
    loss = tt.train.cross_entropy(scores.detach(), wanted, lengths)
    if model.training:
        smoothed = tt.train.cross_entropy(scores, wanted, lengths, label_smoothing=SMOOTHING).total
        # The value of the one, the gradient of the other.
        loss = loss._replace(total=loss.total + (smoothed - smoothed.detach()))
    return {"loss": loss, "accuracy": tt.train.accuracy(scores, wanted, lengths)}


def shifted(targets: Tensor, lengths: Tensor, begin: int, end: int) -> tuple[Tensor, Tensor, Tensor]:
    """What has been written before each token, the tokens with their end, and how many there are now."""
    column = targets.new_zeros(len(targets), 1)
    written = torch.cat([column + begin, targets], 1)
    wanted = torch.cat([targets, column], 1).scatter(1, lengths.unsqueeze(1), end)
    return written, wanted, lengths + 1
