"""What a model's scores mean, as rows of a table; one class for each task."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor

import throughtime as tt
from throughtime.cli._user_errors import refuse
from throughtime.cli.predict._future_dates import dates_after, stride_of
from throughtime.cli.tables import Layout, Rows, Table
from throughtime.cli.tables._infer_roles import CLASSIFY, FORECAST, TAG, TRANSLATE
from throughtime.cli.tables._table import Values
from throughtime.cli.tables._timestamps import dates_of
from throughtime.cli.tasks._sampling import translate

Row = list[object]


class Answers:
    """What every task has: the columns of its results, and a count of answers that can be checked."""

    columns: list[str]
    unit = "sequence"

    def __init__(self, model: Any, layout: Layout, table: Table, first: Rows, *, probabilities: bool) -> None:
        """`first` is the first sequence to answer for: columns have their names before all are read."""
        self.model, self.layout, self.table, self.probabilities = model, layout, table, probabilities
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

    def __init__(self, model: Any, layout: Layout, table: Table, first: Rows, *, probabilities: bool) -> None:
        super().__init__(model, layout, table, first, probabilities=probabilities)
        self.names = layout.targets[0].categories
        every = [f"probability {name}" for name in self.names] if probabilities else []
        self.columns = [layout.sequence or table.sequence or "row", layout.targets[0].name, "probability", *every]

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
    """One class for each step, which keeps its place in the order of the data."""

    def __init__(self, model: Any, layout: Layout, table: Table, first: Rows, *, probabilities: bool) -> None:
        super().__init__(model, layout, table, first, probabilities=probabilities)
        self.columns = [self.columns[0], layout.order or position_beside(self.columns), *self.columns[1:]]

    def answer(self, rows: Sequence[Rows], batch: tt.train.Batch) -> Iterator[Row]:
        for row, shares in zip(rows, self.shares(batch), strict=True):
            order = range(1, len(row) + 1) if self.layout.order is None else row.piece.columns[self.layout.order]
            for step, place in enumerate(order):
                yield [row.name, place, *self.said(row, step, shares[step])]


class Futures(Answers):
    """The steps to come, in the columns' own units; an order in whole numbers goes on, and so do regular dates."""

    def __init__(self, model: Any, layout: Layout, table: Table, first: Rows, *, probabilities: bool) -> None:
        super().__init__(model, layout, table, first, probabilities=probabilities)
        order = None if layout.order is None else first.piece.columns[layout.order]
        dates = None if order is None else dates_of(order)
        self.stride = None if order is None or dates_after(order, 1) is None else stride_of(dates or [])
        counts = order is not None and whole_numbers(order) is not None
        self.order = layout.order if counts or self.stride else None
        name, *others = [layout.sequence or "sequence", *(column.name for column in layout.targets)]
        self.columns = [name, self.order or position_beside([name, *others]), *others]

    @torch.no_grad()
    def answer(self, rows: Sequence[Rows], batch: tt.train.Batch) -> Iterator[Row]:
        places = torch.arange(len(rows), device=batch.lengths.device)
        forecast = self.model(batch.inputs, batch.lengths)[places, batch.lengths - 1].cpu()
        columns = [column.original(forecast[..., d].numpy()) for d, column in enumerate(self.layout.targets)]
        for place, row in enumerate(rows):
            for ahead, step in enumerate(self.steps_after(row, forecast.shape[1])):
                yield [row.name, step, *(float(column[place, ahead]) for column in columns)]

    def steps_after(self, row: Rows, count: int) -> Sequence[object]:
        """What the order column would say of the steps to come."""
        if self.order is None:
            return range(len(row) + 1, len(row) + 1 + count)
        if self.stride is not None:
            dates = dates_after(row.piece.columns[self.order], count, self.stride)
            return self.refuse_order(row, "dates") if dates is None else dates
        known = whole_numbers(row.piece.columns[self.order])
        if known is None:
            self.refuse_order(row, "whole numbers")
        # A row may be missing, so the usual distance and not the last.
        stride = max(1, int(np.median(np.diff(known)))) if len(known) > 1 else 1
        return range(known[-1] + stride, known[-1] + stride * (count + 1), stride)

    def refuse_order(self, row: Rows, kind: str) -> NoReturn:
        """A column that goes on in one sequence does so in all."""
        assert self.order is not None
        refuse(
            f"{self.table.place(row.piece.lines[-1])}, column `{self.order}` cannot be continued",
            got=f"sequence {row.name!r} with something else than {kind}",
            expected=f"{kind}, as in the first sequence",
            fix="Correct the column, or leave it out of the file.",
        )


class Texts(Answers):
    """A text for each text, by beam search."""

    BEAM = 5
    unit = "text"

    def __init__(self, model: Any, layout: Layout, table: Table, first: Rows, *, probabilities: bool) -> None:
        super().__init__(model, layout, table, first, probabilities=probabilities)
        self.columns = [layout.inputs[0].name, layout.targets[0].name]

    def answer(self, rows: Sequence[Rows], batch: tt.train.Batch) -> Iterator[Row]:
        written = translate(self.model, self.layout, batch.inputs, batch.lengths, self.BEAM)
        for row, texts in zip(rows, written, strict=True):
            self.check(row, 0, texts[0])
            yield [row.piece.texts(self.layout.inputs[0].name)[0], texts[0]]


def position_beside(names: list[str]) -> str:
    """What the column is called that counts the steps of a sequence, from 1, where no column of the data does."""
    return "position" if "position" not in names else "position in sequence"


def whole_numbers(values: Values) -> list[int] | None:
    """A column as whole numbers, if it holds nothing else."""
    try:
        # Not by way of float: nanoseconds since 1970 have too many digits for one.
        numbers = [Decimal(str(value).strip()) for value in values]
    except InvalidOperation:
        return None
    whole = all(number.is_finite() and number == number.to_integral_value() for number in numbers)
    return [int(number) for number in numbers] if whole else None


ANSWERS: dict[str, type[Answers]] = {CLASSIFY: Classes, TAG: Tags, FORECAST: Futures, TRANSLATE: Texts}
