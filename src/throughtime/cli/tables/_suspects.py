"""Columns that would be learned from without meaning anything: counters of rows, names of sequences, copies."""

from __future__ import annotations

from collections.abc import Iterable

from throughtime.cli._options import Columns as Said
from throughtime.cli.tables._column_stats import Facts, Survey
from throughtime.cli.tables._infer_roles import CLASSIFY, FORECAST, TAG
from throughtime.cli.tables._schema import Layout
from throughtime.cli.tables._table import Table

# In fewer rows, or sequences, such a pattern is met by chance.
LEAST = 10
COUNTER = "counts the rows of the file"
_ID_ENDS = ("id", "no", "nr", "number", "index", "idx", "key", "name", "code")


def suspects(found: Survey, layout: Layout, said: Said) -> dict[str, str]:
    """Input columns that say nothing of the series, by name, with the reason; never those that the user asked for."""
    claimed = {*said.inputs, *said.target, *said.categories}
    free = [found.facts[column.name] for column in layout.inputs if column.name not in claimed]
    reasons = {fact.name: COUNTER for fact in free if _counts_rows(fact)}
    targets = {column.name for column in layout.targets}
    others = [fact for fact in free if fact.name not in targets]
    reasons |= {fact.name: "another name of each sequence" for fact in others if _names_sequences(fact, found)}
    if layout.task in (CLASSIFY, TAG):
        target = found.facts[layout.targets[0].name]
        alike = [fact.name for fact in others if _could_be_copy(fact, target)]
        reasons |= dict.fromkeys(_copies(found.table, target.name, alike), f"another name of `{target.name}`")
    return reasons


def usable_without(layout: Layout, names: Iterable[str]) -> bool:
    """Whether anything is left to learn from, and to learn, without some columns."""
    left = {column.name for column in layout.inputs}.difference(names)
    if layout.task == FORECAST:
        left &= {column.name for column in layout.targets}
    return bool(left)


def note_on(name: str, reason: str) -> str:
    """What to say of a suspect that is all there is to learn from."""
    verb = "" if reason == COUNTER else "is "
    return f"Note: `{name}` {verb}{reason}, and there is nothing else to learn from: check it."


def _counts_rows(fact: Facts) -> bool:
    return fact.is_number and fact.rows >= LEAST and fact.counts_up and not fact.starts_again


def _names_sequences(fact: Facts, found: Survey) -> bool:
    """Whether a column has one value for each sequence, and another for every one of them."""
    count = len(found.lengths)
    if not fact.steady or fact.distinct != count or count < LEAST or max(found.lengths) == 1:
        return False
    if not fact.is_number:
        return True
    consecutive = fact.high - fact.low + 1 == count
    return fact.whole and (consecutive or fact.name.lower().endswith(_ID_ENDS))


def _could_be_copy(fact: Facts, target: Facts) -> bool:
    """Whether values come as often in both columns: what one look over the table can tell."""
    if not fact.counts or not target.counts or (fact.is_number and not fact.whole):
        return False
    return len(fact.counts) > 1 and sorted(fact.counts.values()) == sorted(target.counts.values())


def _copies(table: Table, target: str, names: list[str]) -> list[str]:
    """Columns whose every value goes with one value of the target, and the reverse."""
    there: dict[str, dict[str, str]] = {name: {} for name in names}
    back: dict[str, dict[str, str]] = {name: {} for name in names}
    for piece in table.pieces() if names else ():
        wanted = piece.texts(target)
        for name in list(there):
            for value, label in set(zip(piece.texts(name).tolist(), wanted.tolist(), strict=True)):
                if there[name].setdefault(value, label) != label or back[name].setdefault(label, value) != value:
                    del there[name]
                    break
    return list(there)
