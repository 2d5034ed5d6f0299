"""Models that read: one answer for a sequence, one for each step, or what comes next."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

import throughtime as tt
from throughtime.cli.tables import Layout
from throughtime.cli.tables._infer_roles import FORECAST
from throughtime.cli.tables._schema import NUMBER
from throughtime.cli.tasks._examples import answers, last_known
from throughtime.cli.tasks._inputs import Inputs, hidden, make_cell


class Shape(NamedTuple):
    """The sizes of a model: with the layout, all that is needed to make it again."""

    cell: str = "lstm"
    units: int = 96
    layers: int = 1
    dropout: float = 0.5
    noise: float = 0.0
    horizon: int = 1

    def said_of(self, task: str) -> dict[str, Any]:
        """What means something to a task, by name."""
        return {name: value for name, value in self._asdict().items() if name != "horizon" or task == FORECAST}


class Classifier(nn.Module):
    """Reads a sequence forwards and backwards; the two final states say what it is."""

    def __init__(self, layout: Layout, shape: Shape) -> None:
        super().__init__()
        self.inputs = Inputs.of(layout, shape.noise)
        self.forwards = make_cell(shape.cell, shape.units, shape.layers, self.inputs.size)
        self.backwards = make_cell(shape.cell, shape.units, shape.layers, self.inputs.size)
        self.dropout = nn.Dropout(shape.dropout)
        self.answer = nn.Linear(2 * shape.units, len(layout.targets[0].categories))

    def forward(self, inputs: Tensor, lengths: Tensor) -> Tensor:
        """Scores [B, C] of sequences [B, T, F]."""
        x = self.inputs(inputs)
        _, states = tt.bidirectional_dynamic_rnn(self.forwards, self.backwards, x, lengths, dtype=x.dtype)
        return self.judge(*map(hidden, states))

    def judge(self, forwards: Tensor, backwards: Tensor) -> Tensor:
        """Scores from what both directions know."""
        scores: Tensor = self.answer(self.dropout(torch.cat([forwards, backwards], -1)))
        return scores


class Tagger(Classifier):
    """The same, with an answer at each step instead of one at the end."""

    def forward(self, inputs: Tensor, lengths: Tensor) -> Tensor:
        """Scores [B, T, C]."""
        x = self.inputs(inputs)
        outputs, _ = tt.bidirectional_dynamic_rnn(self.forwards, self.backwards, x, lengths, dtype=x.dtype)
        return self.judge(*outputs)


class Forecaster(nn.Module):
    """Reads from the past only; at each step it says how the next `horizon` values differ from the present ones."""

    def __init__(self, layout: Layout, shape: Shape) -> None:
        super().__init__()
        names = [column.name for column in layout.inputs if column.kind == NUMBER]
        self.places = [names.index(column.name) for column in layout.targets]
        self.horizon = shape.horizon
        self.inputs = Inputs.of(layout, shape.noise)
        self.forwards = make_cell(shape.cell, shape.units, shape.layers, self.inputs.size)
        self.dropout = nn.Dropout(shape.dropout)
        self.answer = nn.Linear(shape.units, shape.horizon * len(self.places))
        # Before it has learned anything, tomorrow is like today.
        nn.init.zeros_(self.answer.weight)
        nn.init.zeros_(self.answer.bias)

    def forward(self, inputs: Tensor, lengths: Tensor) -> Tensor:
        """Forecasts [B, T, horizon, D], standardised, from what was known at each step."""
        x = self.inputs(inputs)
        outputs, _ = tt.dynamic_rnn(self.forwards, x, lengths, dtype=x.dtype)
        return self.judge(outputs, inputs)

    def judge(self, outputs: Tensor, inputs: Tensor) -> Tensor:
        """Forecasts from what is known, and from the present values."""
        change: Tensor = self.answer(self.dropout(outputs)).unflatten(-1, (self.horizon, len(self.places)))
        return inputs[..., self.places].unsqueeze(-2) + change


def measure_classes(model: Any, batch: tt.train.Batch) -> dict[str, tt.train.Mean]:
    """Loss and accuracy of a classifier or a tagger; unknown classes are counted as wrong."""
    assert batch.targets is not None
    scores = model(batch.inputs, batch.lengths)
    lengths = batch.target_lengths
    return {
        "loss": tt.train.cross_entropy(scores, batch.targets, lengths),
        "accuracy": tt.train.accuracy(scores, batch.targets, lengths),
    }


def futures(targets: Tensor, lengths: Tensor, horizon: int) -> Tensor:
    """What truly came after each step [B, T, horizon, D]; NaN where the sequence was over or nothing is known."""
    past_the_end = ~tt.train.mask(lengths, targets.shape[1])
    known = targets.masked_fill(past_the_end.unsqueeze(-1), torch.nan)
    beyond = torch.full_like(known[:, :1], torch.nan).expand(-1, horizon, -1)
    return torch.cat([known[:, 1:], beyond], 1).unfold(1, horizon, 1).transpose(2, 3)


def measure_forecast(model: Any, batch: tt.train.Batch) -> dict[str, tt.train.Mean]:
    """Loss, absolute error, and that of saying that everything stays as it is; all in standard deviations.

    Both errors are means over the same values: where the present value is missing, the last known one stays.
    """
    assert batch.targets is not None
    forecast = model(batch.inputs, batch.lengths)
    future = futures(answers(batch.targets), batch.lengths, forecast.shape[2])
    known = torch.isfinite(future)
    forecast, truth = forecast[known], future[known]
    present = last_known(batch.targets).unsqueeze(2).expand_as(future)[known]
    count = len(truth)
    loss = nn.functional.smooth_l1_loss(forecast, truth, reduction="sum", beta=0.5)
    return {
        "loss": tt.train.Mean(loss, count),
        "error": tt.train.Mean((forecast - truth).abs().detach().sum(), count),
        "persistence": tt.train.Mean((present - truth).abs().sum(), count),
    }
