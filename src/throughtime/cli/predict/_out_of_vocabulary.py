"""What a model is asked about that it has never met: answered all the same, and counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from throughtime.cli.tables import Column, Layout, Rows
from throughtime.cli.tables._schema import NUMBER, TEXT, WORDS

# Of longer ones the beginning is enough to find them.
SHOWN = 40


class Unseen:
    """Categories, words or characters that no training data held, by column."""

    def __init__(self, layout: Layout) -> None:
        self._columns = [(column, frozenset(column.categories)) for column in layout.inputs if column.kind != NUMBER]
        self._counts: dict[str, int] = {}
        self._first: dict[str, str] = {}

    def look(self, rows: Iterable[Rows]) -> None:
        """Account for some more sequences."""
        for one in rows:
            for column, known in self._columns:
                self._take(column, _values(column, one), known)

    def _take(self, column: Column, values: Counter[str], known: frozenset[str]) -> None:
        # A cell that says nothing is one that says nothing of this kind, not a new one.
        strange = {value: count for value, count in values.items() if value and value not in known}
        if strange:
            self._counts[column.name] = self._counts.get(column.name, 0) + sum(strange.values())
            self._first.setdefault(column.name, next(iter(strange)))

    def lines(self) -> Iterator[str]:
        """A sentence for each column with such values."""
        for column, _ in self._columns:
            if column.name in self._counts:
                count, first = self._counts[column.name], self._first[column.name][:SHOWN]
                noun = ("word" if column.tokens == WORDS else "character") if column.kind == TEXT else "value"
                several = f"{noun} of `{column.name}` was" if count == 1 else f"{noun}s of `{column.name}` were"
                example = f": {first!r}" if count == 1 else f", such as {first!r}"
                yield f"{count:,} {several} never seen in training{example}."


def _values(column: Column, rows: Rows) -> Counter[str]:
    texts = rows.piece.texts(column.name)
    return Counter(column.split(texts[0]) if column.kind == TEXT else texts.tolist())
