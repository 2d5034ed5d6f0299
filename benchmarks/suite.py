"""A suite from the command line: cases one after another with a bar, a table, the goals, and a dated file."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch
from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from goals import of_row, shown, verdicts, word
from layouts import BUSY, LAYOUTS, Layout, Row
from record import RESULTS, busy, machine, save

Case = TypeVar("Case")
VISIBLE = 8
"""How many of the latest results are on the screen while a suite runs."""


class Options(NamedTuple):
    """What the command line says."""

    quick: bool
    seconds: float
    rounds: int
    threads: int
    only: str
    results: Path | None


def read_options(description: str, *, seconds: float = 3.0, rounds: int = 5) -> Options:
    """The options that every suite has; sets the number of threads and the seed."""
    parser = argparse.ArgumentParser(description=description.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="few and tiny cases: does it work? Saves nothing")
    parser.add_argument("--seconds", type=float, default=seconds, help="to spend on a case (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=rounds, help="the least number of rounds (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="for all (default: %(default)s)")
    parser.add_argument("--only", default="", metavar="TEXT", help="cases with TEXT in their name. Saves nothing")
    parser.add_argument("--results", type=Path, help="the folder to save in (default: benchmarks/results)")
    arguments = parser.parse_args()
    if arguments.rounds < 1 or arguments.threads < 1 or arguments.seconds < 0:
        parser.error("--rounds and --threads must be 1 or more, --seconds 0 or more")
    if arguments.quick:
        arguments.seconds, arguments.rounds = 0.0, min(2, rounds)
    if arguments.results is None and not arguments.quick and not arguments.only:
        arguments.results = RESULTS
    torch.manual_seed(0)
    torch.set_num_threads(arguments.threads)
    return Options(**vars(arguments))


def run_suite(
    name: str,
    cases: Iterable[Case],
    measure: Callable[[Case], Row | list[Row]],
    options: Options,
    peers: dict[str, str | None] | None = None,
) -> None:
    """Measure every case, show a table and the goals, and save the results."""
    layout, console = LAYOUTS[name], Console()
    if not console.is_terminal:
        # A file has no width; a table should not be squeezed into the usual guess.
        console = Console(width=140)
    chosen = [case for case in cases if options.only in label(case)]
    before = busy()
    if before is not None and before > BUSY:
        console.print(f"[yellow]Others use {before:.0%} of this machine: the times below will not be fair.[/]")
    rows: list[Row] = []
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    bar = Progress(*columns, console=console)
    task = bar.add_task("", total=len(chosen))
    with Live(bar, console=console, transient=True) as live:
        for case in chosen:
            bar.update(task, description=label(case))
            result = measure(case)
            rows = with_least([*rows, *(result if isinstance(result, list) else [result])])
            live.update(Group(table_of(layout, rows[-VISIBLE:]), bar))
            bar.advance(task)
    finish(name, rows, options, console, {"peers": peers, "busy_before": before})


def with_least(rows: Sequence[Row]) -> list[Row]:
    """Rows that say how much they multiply, with the least time that takes; `around_ms` is what is no product."""
    best = max((row["full_speed"] for row in rows if "full_speed" in row), default=0)

    def least(row: Row) -> Row:
        milliseconds = row.get("around_ms", 0.0) + 1000 * row["operations"] / best
        return {"least_ms": float(f"{milliseconds:.4g}")}

    return [row | least(row) if "operations" in row else row for row in rows]


def label(case: object) -> str:
    """A case in words: it is a string, says itself what it is, or is a plain tuple of such."""
    return " ".join(map(str, case)) if type(case) is tuple else str(case)


def finish(name: str, rows: Sequence[Row], options: Options, console: Console, more: dict[str, Any]) -> None:
    """The table, the goals, the file."""
    about, reached = machine(), verdicts(name, rows)
    table = table_of(LAYOUTS[name], rows, [] if options.results is None else reached)
    table.caption = f"{about['processor']}, {about['threads']} thread(s), torch {about['versions']['torch']}"
    console.print(table)
    if options.results is None:
        console.print("Some cases only: not saved, and not held to the goals.")
    else:
        for verdict in reached:
            console.print(sentence(verdict), highlight=False, soft_wrap=True)
        console.print(f"saved {save(name, rows, reached, options.results, **more)}", soft_wrap=True)


def table_of(layout: Layout, rows: Sequence[Row], reached: Sequence[Row] = ()) -> Table:
    table = Table(title=layout.title)
    for column in layout.columns:
        table.add_column(column.heading, justify="right" if column.numeric else "left", no_wrap=not column.numeric)
    if reached:
        table.add_column("goal")
    for row in rows:
        goal = [COLOURS.get(of_row(row, reached), "")] if reached else []
        table.add_row(*(column.text(row) for column in layout.columns), *goal)
    return table


COLOURS = {"met": "[green]met[/]", "missed": "[red]missed[/]", "not measured": "[yellow]not measured[/]"}


def sentence(goal: dict[str, Any]) -> str:
    """A goal and what became of it."""
    got, bound = shown(goal, goal["got"]), shown(goal, goal["bound"])
    return f"{COLOURS[word(goal['met'])]}: {goal['what']}: {goal['statistic']} {got}, goal {goal['sign']} {bound}"
