"""What a model must remember about its data: which column is what, and how each becomes numbers."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from throughtime.cli._user_errors import listed, refuse
from throughtime.cli.tables._table import RowChunk, Table, Values

NUMBER, CATEGORY, TEXT = "number", "category", "text"
CHARACTERS, WORDS = "characters", "words"
# Standard deviations from the mean; the square of more is no number in float32.
FARTHEST = 1e19


@dataclass(frozen=True)
class Column:
    """One column of a table.

    A number is standardised by `mean` and `deviation`. A category is its place among `categories`; place 0 is for what
    was never seen. A text is a sequence of such categories: its characters, or its words.
    """

    name: str
    kind: str
    mean: float = 0.0
    deviation: float = 1.0
    categories: tuple[str, ...] = ()
    tokens: str = CHARACTERS

    def places(self, texts: Values | list[str]) -> Values:
        """Where each text stands among the categories, from 1; 0 for an unknown one."""
        index = {text: place for place, text in enumerate(self.categories, 1)}
        return np.array([index.get(text, 0) for text in texts], np.int64)

    def split(self, text: str) -> list[str]:
        """The tokens of a text."""
        return list(text) if self.tokens == CHARACTERS else text.split()

    def join(self, tokens: list[str]) -> str:
        """The text of some tokens."""
        return ("" if self.tokens == CHARACTERS else " ").join(tokens)

    def standardised(self, piece: RowChunk, table: Table) -> Values:
        """Numbers around 0; a missing one is read as the mean, and one far out of proportion as the farthest."""
        with np.errstate(over="ignore"):
            numbers = (piece.numbers(self.name, table) - self.mean) / self.deviation
        np.clip(numbers, -FARTHEST, FARTHEST, out=numbers)
        numbers[np.isnan(numbers)] = 0.0
        return numbers.astype(np.float32)

    def original(self, numbers: Values) -> Values:
        """Standardised numbers, back in the column's own unit."""
        return np.asarray(numbers, np.float64) * self.deviation + self.mean


@dataclass(frozen=True)
class Layout:
    """The roles of a table's columns in a task."""

    task: str
    inputs: tuple[Column, ...]
    targets: tuple[Column, ...]
    sequence: str | None = None
    order: str | None = None
    split: str | None = None

    def as_json(self) -> dict[str, Any]:
        """Plain values, for a JSON file."""
        return dataclasses.asdict(self)

    @staticmethod
    def from_json(values: dict[str, Any]) -> Layout:
        """What `as_json` wrote."""
        columns = {
            role: tuple(Column(**{**column, "categories": tuple(column["categories"])}) for column in values[role])
            for role in ("inputs", "targets")
        }
        return Layout(**{**values, **columns})

    def unfitted(self) -> Layout:
        """The same roles, before anything is known of what the columns hold."""
        inputs, targets = (
            tuple(Column(column.name, column.kind, tokens=column.tokens) for column in columns)
            for columns in (self.inputs, self.targets)
        )
        return dataclasses.replace(self, inputs=inputs, targets=targets)

    def check(self, table_columns: list[str], path: Path, *, with_targets: bool) -> None:
        """The columns that are needed are there."""
        needed = [column.name for column in self.inputs] + ([self.sequence] if self.sequence else [])
        if with_targets:
            needed += [*(column.name for column in self.targets), *filter(None, (self.order, self.split))]
        for name in needed:
            if name not in table_columns:
                refuse(
                    f"{path} lacks the column `{name}`",
                    got=listed(table_columns),
                    expected=f"the columns the model was trained on: {listed(needed)}",
                    fix="Name the columns as in the training data.",
                )
