"""Missing cells: how many there are in the columns that are used, and what is done with them."""

from __future__ import annotations

from throughtime._text import plural
from throughtime.cli._user_errors import listed
from throughtime.cli.tables._column_stats import Survey
from throughtime.cli.tables._schema import CATEGORY, NUMBER, Column, Layout


def missing_cells(found: Survey, layout: Layout) -> dict[str, int]:
    """Missing cells of each column that is used and has some: of numbers, those not known; of text, empty ones."""
    columns = {column.name: column for column in (*layout.inputs, *layout.targets)}
    counts = {name: _missing(found, column) for name, column in columns.items()}
    return {name: count for name, count in counts.items() if count}


def _missing(found: Survey, column: Column) -> int:
    fact = found.facts[column.name]
    return fact.missing if column.kind == NUMBER else fact.blank


def missing_line(found: Survey, layout: Layout) -> str:
    """One line about all missing cells; nothing where there are none."""
    counts = missing_cells(found, layout)
    if not counts:
        return ""
    kinds = {column.kind for column in (*layout.inputs, *layout.targets) if column.name in counts}
    done = []
    if NUMBER in kinds:
        done.append("a number is read as the mean of its column")
        if any(column.name in counts and column.kind == NUMBER for column in layout.targets):
            done.append("and does not count as something to forecast")
    if CATEGORY in kinds:
        done.append("a category is read as one never seen")
    cells = found.rows * len({column.name for column in (*layout.inputs, *layout.targets)})
    names = listed([f"{name} {count:,}" for name, count in counts.items()])
    return f"Missing: {sum(counts.values()):,} of {plural(cells, 'cell')} ({names}); {', '.join(done)}."
