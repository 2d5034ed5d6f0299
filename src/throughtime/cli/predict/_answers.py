"""What a model's scores mean, as rows of a table; one class for each task."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

import throughtime as tt
from throughtime.cli.tables import Layout, Rows
from throughtime.cli.tables._guess import CLASSIFY, FORECAST, TAG, TRANSLATE
from throughtime.cli.tasks._write import translate

Row = list[object]


class Answers:
    """What every task has: the columns of its results, and a count of answers that can be checked."""

    columns: list[str]

    def __init__(self, model: Any, layout: Layout, probabilities: bool) -> None:
        self.model, self.layout, self.probabilities = model, layout, probabilities
        self.known = self.right = 0

    def answer(self, rows: Sequence[Rows], batch: tt.train.Batch) -> Iterator[Row]:
        """The rows of results for some sequences."""
        raise NotImplementedError

    def check(self, row: Rows, step: int, said: str) -> None:
        """Compare with the true answer, where the file has it."""
        name = self.layout.targets[0].name
        if name in row.piece.columns:
            truth = row.piece.texts(name)[step]
            self.known += bool(truth)
            self.right += bool(truth) and truth == said


class Classes(Answers):
    """One class for each sequence."""

    def __init__(self, model: Any, layout: Layout, probabilities: bool) -> None:
        super().__init__(model, layout, probabilities)
        self.names = layout.targets[0].categories
        every = [f"probability {name}" for name in self.names] if probabilities else []
        self.columns = [layout.sequence or "row", layout.targets[0].name, "probability", *every]

    def answer(self, rows: Sequence[Rows], batch: tt.train.Batch) -> Iterator[Row]:
        for row, shares in zip(rows, self.shares(batch), strict=True):
            yield [row.name, *self.said(row, 0, shares)]

    @torch.no_grad()
    def shares(self, batch: tt.train.Batch) -> Tensor:
        """How sure the model is of each class."""
        scores: Tensor = self.model(batch.inputs, batch.lengths)
        return scores.softmax(-1).cpu()

    def said(self, row: Rows, step: int, shares: Tensor) -> Row:
        """The class, how sure the model is of it and, if asked for, of all."""
        best = int(shares.argmax())
        self.check(row, step, self.names[best])
        return [self.names[best], float(shares[best]), *(shares.tolist() if self.probabilities else [])]


class Tags(Classes):
    """One class for each step."""

    def __init__(self, model: Any, layout: Layout, probabilities: bool) -> None:
        super().__init__(model, layout, probabilities)
        self.columns = [self.columns[0], "step", *self.columns[1:]]

    def answer(self, rows: Sequence[Rows], batch: tt.train.Batch) -> Iterator[Row]:
        for row, shares in zip(rows, self.shares(batch), strict=True):
            for step in range(len(row)):
                yield [row.name, step + 1, *self.said(row, step, shares[step])]


class Futures(Answers):
    """The steps to come, in the columns' own units."""

    def __init__(self, model: Any, layout: Layout, probabilities: bool) -> None:
        super().__init__(model, layout, probabilities)
        self.columns = [layout.sequence or "sequence", "step", *(column.name for column in layout.targets)]

    @torch.no_grad()
    def answer(self, rows: Sequence[Rows], batch: tt.train.Batch) -> Iterator[Row]:
        places = torch.arange(len(rows), device=batch.lengths.device)
        forecast = self.model(batch.inputs, batch.lengths)[places, batch.lengths - 1].cpu()
        columns = [column.original(forecast[..., d].numpy()) for d, column in enumerate(self.layout.targets)]
        for place, row in enumerate(rows):
            for ahead in range(forecast.shape[1]):
                yield [row.name, len(row) + ahead + 1, *(float(column[place, ahead]) for column in columns)]


class Texts(Answers):
    """A text for each text, by beam search."""

    BEAM = 5

    def __init__(self, model: Any, layout: Layout, probabilities: bool) -> None:
        super().__init__(model, layout, probabilities)
        self.columns = [layout.inputs[0].name, layout.targets[0].name]

    def answer(self, rows: Sequence[Rows], batch: tt.train.Batch) -> Iterator[Row]:
        written = translate(self.model, self.layout, batch.inputs, batch.lengths, self.BEAM)
        for row, texts in zip(rows, written, strict=True):
            self.check(row, 0, texts[0])
            yield [row.piece.texts(self.layout.inputs[0].name)[0], texts[0]]


ANSWERS: dict[str, type[Answers]] = {CLASSIFY: Classes, TAG: Tags, FORECAST: Futures, TRANSLATE: Texts}
