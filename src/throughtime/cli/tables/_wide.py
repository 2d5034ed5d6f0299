"""Tables with one row a series: many columns that are one quantity at one time after another."""

from __future__ import annotations

import itertools
import re

from throughtime._text import plural
from throughtime.cli._options import Columns as Said
from throughtime.cli._user_errors import refuse
from throughtime.cli.tables._column_stats import Survey
from throughtime.cli.tables._infer_roles import ORDER_NAMES
from throughtime.cli.tables._table import is_number
from throughtime.cli.tables._timestamps import date_of

# Fewer columns whose names are alike may as well be the channels of one step.
LEAST_LIKE = 20
_NUMBERED = re.compile(r"(.*?)(\d+)")
_LETTERED = re.compile(r"(.+[\s_.:-])([A-Za-z]{1,3})")


def check_not_wide(found: Survey, said: Said) -> None:
    """Refuse a table with one row a series, whose rows would be learned from as the steps of one sequence."""
    if said.task is not None or said.sequence is not None or said.inputs or found.table.sequence is not None:
        return
    if found.sequence is not None and max(found.lengths) > 1:
        return
    names = [name for name in found.table.columns if found.facts[name].is_number and name not in said.ignore]
    like = longest_run(names)
    if len(like) < LEAST_LIKE or (found.sequence is None and _tells_time(found)):
        return
    refuse(
        f"{found.table.path} seems to have one row a series",
        got=f"{plural(found.rows, 'row')} with {len(like):,} columns `{like[0]}` to `{like[-1]}` of one kind",
        expected="one row a step, with a column that names the sequence",
        fix="Give it as an NPZ file (`x` [series, steps], `lengths`, `label`), or turn its columns into rows (melt in "
        "pandas). If its rows are steps and these columns channels, say `--task forecast`, `--task tag` or "
        "`--sequence COLUMN`.",
    )


def longest_run(names: list[str]) -> list[str]:
    """The longest run of names that count up behind one stem, or end in a letter or three, or are numbers, or dates.

    >>> from throughtime.cli.tables._wide import longest_run
    >>> longest_run(["label", "t9", "t10", "t11", "x"])
    ['t9', 't10', 't11']
    >>> longest_run(["sensor ay", "sensor az", "sensor ba", "speed"])
    ['sensor ay', 'sensor az', 'sensor ba']
    """
    best: list[str] = []
    run: list[str] = []
    for before, name in itertools.pairwise(["", *names]):
        run = [*run, name] if run and _follows(before, name) else [name]
        best = max(best, run, key=len)
    return best


def _follows(before: str, name: str) -> bool:
    first, second = _NUMBERED.fullmatch(before), _NUMBERED.fullmatch(name)
    if first and second and first[1] == second[1] and int(second[2]) == int(first[2]) + 1:
        return True
    first, second = _LETTERED.fullmatch(before), _LETTERED.fullmatch(name)
    if first and second and first[1] == second[1]:
        return True
    if is_number(before) and is_number(name):
        return float(name or "nan") > float(before or "nan")
    return date_of(before) is not None and date_of(name) is not None


def _tells_time(found: Survey) -> bool:
    named = any(name.lower() in ORDER_NAMES for name in found.table.columns)
    return named or any(fact.tells_time for fact in found.facts.values())
