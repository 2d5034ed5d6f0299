"""A table looked over as often as it takes to know what each column is for."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from throughtime.cli._options import Columns
from throughtime.cli.tables._calendar import is_calendar, is_year
from throughtime.cli.tables._column_stats import Survey, survey
from throughtime.cli.tables._group_rows import check_forward
from throughtime.cli.tables._infer_roles import TARGET_NAMES, Guess, check_said, guess, sequence_column
from throughtime.cli.tables._readers import open_table
from throughtime.cli.tables._repeats import sequence_by_repeats
from throughtime.cli.tables._schema import TEXT, Layout
from throughtime.cli.tables._sequence_boundaries import sequence_by_restarts
from throughtime.cli.tables._suspects import note_on, suspects, usable_without
from throughtime.cli.tables._table import Table
from throughtime.cli.tables._wide import check_not_wide


class InferredSchema(NamedTuple):
    """What a table holds, and what each column is for and why."""

    found: Survey
    layout: Layout
    reasons: dict[str, str]


def look_over(path: Path, said: Columns) -> InferredSchema:
    """Look by names first; where time starts again or stands still in what seems to be one sequence, by its cause."""
    table = open_table(path)
    check_said(table, said)
    names = frozenset((*said.categories, *said.ignore))
    found = survey(table, sequence_column(table, said), names)
    check_not_wide(found, said)
    guessed = guess(found, said)
    clock = _clock(found, guessed, said)
    if clock is None:
        return _without_suspects(found, guessed, said)
    candidates = _candidates(found, guessed, said, clock)
    is_order = clock == guessed.layout.order
    sequence, reason = _sequence_by(table, clock, candidates, may_repeat=not is_order)
    if sequence is None:
        if not is_order:
            check_forward(table, clock)
        return _without_suspects(found, guessed, said)
    found = survey(table, sequence, names)
    guessed = guess(found, said)
    return _without_suspects(found, Guess(guessed.layout, guessed.reasons | {sequence: reason}), said)


def _sequence_by(table: Table, clock: str, candidates: list[str], *, may_repeat: bool) -> tuple[str | None, str]:
    """The column that names the sequences, by what time does where it changes, and the reason."""
    sequence = sequence_by_restarts(table, clock, candidates)
    if sequence is not None or may_repeat:
        return sequence, f"names the sequence: `{clock}` starts again where it changes"
    sequence = sequence_by_repeats(table, clock, candidates)
    return sequence, f"names the sequence: each of its values has every `{clock}` once"


def _without_suspects(found: Survey, guessed: Guess, said: Columns) -> InferredSchema:
    """Leave out columns that say nothing of the series, or say so where there are no others."""
    if guessed.layout.inputs[0].kind == TEXT:
        return InferredSchema(found, *guessed)
    if found.sequence is not None and max(found.lengths) == 1:
        found.notes.append(f"Note: each sequence has one row only: check that `{found.sequence}` names sequences.")
    reasons = suspects(found, guessed.layout, said)
    if not reasons:
        return InferredSchema(found, *guessed)
    if not usable_without(guessed.layout, reasons):
        found.notes += [note_on(name, reason) for name, reason in reasons.items()]
        return InferredSchema(found, *guessed)
    again = guess(found, said._replace(ignore=(*said.ignore, *reasons)))
    return InferredSchema(
        found, again.layout, again.reasons | {name: f"left out: {why}" for name, why in reasons.items()}
    )


def _clock(found: Survey, guessed: Guess, said: Columns) -> str | None:
    """The column that tells the time of rows of which nothing tells the sequence."""
    if found.sequence is not None or guessed.layout.inputs[0].kind == TEXT:
        return None
    if guessed.layout.order is not None:
        return guessed.layout.order
    claimed = {*said.inputs, *said.target, *said.ignore, *said.categories}
    free = [fact for name, fact in found.facts.items() if name not in claimed]
    dates = [fact.name for fact in free if fact.goes_back]
    years = [fact.name for fact in free if is_year(fact.name) and fact.is_number]
    return next(iter(dates + years), None)


def _candidates(found: Survey, guessed: Guess, said: Columns, clock: str) -> list[str]:
    """Columns of categories, then of whole numbers, that are not spoken for; what is to be learned is no name."""
    claimed = {clock, guessed.layout.split, *said.inputs, *said.target, *said.ignore}
    free = [fact for name, fact in found.facts.items() if name not in claimed and not fact.is_empty]
    names = [fact for fact in free if not fact.is_number], [fact for fact in free if fact.is_number and fact.whole]
    return [
        fact.name
        for part in names
        for fact in part
        if fact.name.lower() not in TARGET_NAMES and not is_calendar(fact.name)
    ]
