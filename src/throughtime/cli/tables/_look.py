"""A table looked over as often as it takes to know what each column is for."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from throughtime.cli._options import Columns
from throughtime.cli.tables._guess import TARGET_NAMES, Guess, check_said, guess, sequence_column
from throughtime.cli.tables._layout import TEXT, Layout
from throughtime.cli.tables._open import open_table
from throughtime.cli.tables._restarts import sequence_by_restarts
from throughtime.cli.tables._survey import Survey, survey


class Look(NamedTuple):
    """What a table holds, and what each column is for and why."""

    found: Survey
    layout: Layout
    reasons: dict[str, str]


def look_over(path: Path, said: Columns) -> Look:
    """Look by names first; where time starts again in what seems to be one sequence, by the column that says why."""
    table = open_table(path)
    check_said(table, said)
    names = frozenset((*said.categories, *said.ignore))
    found = survey(table, sequence_column(table, said), names)
    guessed = guess(found, said)
    clock = _clock(found, guessed, said)
    sequence = None if clock is None else sequence_by_restarts(table, clock, _candidates(found, guessed, said, clock))
    if sequence is None:
        return Look(found, *guessed)
    found = survey(table, sequence, names)
    guessed = guess(found, said)
    reason = f"names the sequence: `{clock}` starts again where it changes"
    return Look(found, guessed.layout, guessed.reasons | {sequence: reason})


def _clock(found: Survey, guessed: Guess, said: Columns) -> str | None:
    """The column that tells the time of rows of which nothing tells the sequence."""
    if found.sequence is not None or guessed.layout.inputs[0].kind == TEXT:
        return None
    if guessed.layout.order is not None:
        return guessed.layout.order
    claimed = {*said.inputs, *said.target, *said.ignore, *said.categories}
    return next((name for name, fact in found.facts.items() if fact.goes_back and name not in claimed), None)


def _candidates(found: Survey, guessed: Guess, said: Columns, clock: str) -> list[str]:
    """Columns of categories, then of whole numbers, that are not spoken for; what is to be learned is no name."""
    claimed = {clock, guessed.layout.split, *said.inputs, *said.target, *said.ignore}
    free = [fact for name, fact in found.facts.items() if name not in claimed and not fact.is_empty]
    names = [fact for fact in free if not fact.is_number], [fact for fact in free if fact.is_number and fact.whole]
    return [fact.name for part in names for fact in part if fact.name.lower() not in TARGET_NAMES]
