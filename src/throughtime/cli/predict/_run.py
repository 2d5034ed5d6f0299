"""Sequences in, answers out, some at a time."""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

import throughtime as tt
from throughtime._setting import Setting
from throughtime._text import plural
from throughtime.cli import _run_folder
from throughtime.cli._devices import use_device
from throughtime.cli._result_files import results
from throughtime.cli._user_errors import refuse
from throughtime.cli.predict._out_of_vocabulary import Unseen
from throughtime.cli.predict._task_outputs import ANSWERS, Answers
from throughtime.cli.tables import Layout, Rows, Table, open_table
from throughtime.cli.tables._fingerprint import Fingerprint, fingerprint
from throughtime.cli.tables._infer_roles import CLASSIFY, GENERATE, TAG
from throughtime.cli.tasks._examples import inputs_of, sequences
from throughtime.cli.tasks._load_model import load

# The most steps at a time, padding included: this bounds the memory, whatever the file's size.
most_steps = Setting(100_000)


def run_predict(run: Path, file: Path, out: Path, *, probabilities: bool, batch_size: int, device: str | None) -> None:
    """Answer for every sequence of the file."""
    console = Console(highlight=False, stderr=True)
    place = use_device(device)
    saved = load(run, place)
    if saved.layout.task == GENERATE:
        fix = f"Say `throughtime decode {run}`."
        refuse(f"{run} writes text", got="a model that generates", expected="one that answers", fix=fix)
    if not saved.finished:
        console.print(
            Text(f"{run} is still in training: these are the answers of its last checkpoint."), soft_wrap=True
        )
    if probabilities and saved.layout.task not in (CLASSIFY, TAG):
        what, got = "`--probabilities` is for models that choose among classes", f"a model to {saved.layout.task}"
        refuse(what, got=got, expected=f"one to {CLASSIFY} or {TAG}", fix="Leave it out.")
    table = open_table(file)
    saved.layout.check(table.columns, file, with_targets=False)
    # The order of steps is only checked and handed on: a file may do without.
    order = saved.layout.order if saved.layout.order in table.columns else None
    layout = dataclasses.replace(saved.layout, order=order)
    began, done, steps = time.perf_counter(), 0, 0
    rows = sequences(table, layout)
    first = next(rows, None)
    if first is None:
        refuse(f"{file} is empty", got="no rows", expected="at least one sequence", fix="Check the file.")
    answers = ANSWERS[layout.task](saved.model, layout, table, first, probabilities=probabilities)
    unseen = Unseen(layout)
    with results(out, answers.columns) as lines:
        for batch in some_at_a_time(itertools.chain([first], rows), batch_size):
            lines.write(list(answers.answer(batch, _inputs(batch, layout, table).to(place))))
            unseen.look(batch)
            done, steps = done + len(batch), steps + sum(map(len, batch))
    work = work_done(answers.unit, done, steps, time.perf_counter() - began)
    say(console, answers, out, work, learned_from=bool(answers.known) and was_learned_from(run, file))
    if table.empty:
        console.print(Text(f"{plural(table.empty, 'sequence')} of length 0 left out."), soft_wrap=True)
    for line in unseen.lines():
        console.print(Text(line), soft_wrap=True)


def work_done(unit: str, done: int, steps: int, seconds: float) -> str:
    """How much was answered, and how quickly."""
    if unit == "text":
        return f"{plural(done, unit)}, {seconds:.1f} s ({done / seconds:,.0f} texts/s)."
    rate = f"{steps / seconds:,.0f} steps/s"
    return f"{plural(done, unit)}, {plural(steps, 'step')}, {seconds:.1f} s ({rate})."


def some_at_a_time(rows: Iterator[Rows], batch_size: int) -> Iterator[list[Rows]]:
    """Batches of a bounded number of sequences and of steps; a sequence that is longer comes alone."""
    batch: list[Rows] = []
    longest = 0
    for one in rows:
        longest = max(longest, len(one))
        if batch and (len(batch) == batch_size or longest * (len(batch) + 1) > most_steps.value):
            yield batch
            batch, longest = [], len(one)
        batch.append(one)
    if batch:
        yield batch


def _inputs(batch: Sequence[Rows], layout: Layout, table: Table) -> tt.train.Batch:
    return tt.train.pad([inputs_of(rows.piece, layout, table) for rows in batch])


def was_learned_from(run: Path, file: Path) -> bool:
    """Whether a file is the one that the run was trained on, so that most of its answers were learned."""
    values = _run_folder.read_run(run)
    before = Fingerprint(**values["data"]) if values.get("data") else None
    # A hash reads all of it: of another size it is another one.
    if before is None or (file.is_file() and file.stat().st_size != before.bytes):
        return False
    return fingerprint(file) == before


def say(console: Console, answers: Answers, out: Path, work: str, *, learned_from: bool) -> None:
    """What was done, and how much of it is right where that is known."""
    console.print(work)
    if answers.known:
        share = answers.right / answers.known
        what = f" of {answers.known:,} known answers are right."
        console.print(Text.assemble((f"{share:.1%}", "bold green"), what))
        if learned_from:
            seen = "The file is the one that the run was trained on: only its test part, if any, is new to the model."
            console.print(Text(seen), soft_wrap=True)
    if str(out) != "-":
        console.print(Text.assemble("Results: ", (str(out), "bold")), soft_wrap=True)
