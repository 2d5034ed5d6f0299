"""A training run from file to report."""

from __future__ import annotations

import os
import random
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from rich.console import Console
from rich.markup import escape
from rich.text import Text

import throughtime as tt
from throughtime.cli import _run_folder
from throughtime.cli._compressed import stem_of
from throughtime.cli._options import Columns
from throughtime.cli._user_errors import UserError, refuse
from throughtime.cli.tables import Layout, Survey, open_table, survey
from throughtime.cli.tables._fingerprint import Fingerprint, check_unchanged, fingerprint
from throughtime.cli.tables._infer_roles import CLASSIFY, FORECAST, GENERATE, TAG, TRANSLATE
from throughtime.cli.tables._infer_schema import look_over
from throughtime.cli.tables._missing import missing_cells, missing_line
from throughtime.cli.tasks._baselines import baseline_of
from throughtime.cli.tasks._defaults import Recipe, default_recipe, default_shape, optimiser, with_patience
from throughtime.cli.tasks._examples import Example, Examples, check_classes, read_examples
from throughtime.cli.tasks._inputs import check_cell
from throughtime.cli.tasks._models import Shape
from throughtime.cli.tasks._outcome import Outcome, outcome_of, parts_as_json
from throughtime.cli.tasks._parts import TEST, VALIDATION
from throughtime.cli.tasks._sizes import check_fits_memory, check_fits_weights
from throughtime.cli.tasks._tasks import TASKS, make_model
from throughtime.cli.train import _console
from throughtime.cli.train._batches import batches_of, batches_to_quote, streams_to_measure, windows_of
from throughtime.cli.train._report import Finished, look_back
from throughtime.train._lost_workers import lost_workers_told

LONGEST_HORIZON = 24
# Steps between two checkpoints: those of an epoch, within these bounds.
CHECKPOINT_EVERY = (5, 500)
EMBEDDED = Path(str(files("throughtime.data").joinpath("japanese_vowels.npz")))


class Plan(NamedTuple):
    """Everything that decides what a run computes: the content of `run.json`."""

    file: Path
    said: Columns
    seed: int
    layout: Layout
    shape: Shape
    recipe: Recipe
    # None in runs of versions that did not write it down.
    data: Fingerprint | None = None
    # The parts of the data, as `run.json` has them; None in runs of versions without a validation part.
    parts: dict[str, Any] | None = None
    # Missing cells by column.
    missing: dict[str, int] = {}  # noqa: RUF012 - a default of a named tuple, never changed


def start(
    file: Path | None,
    said: Columns,
    out: Path | None,
    seed: int,
    shape: dict[str, Any],
    recipe: dict[str, Any],
    device: torch.device,
) -> None:
    """Look at the file, choose what was not said, and train."""
    with tt.train.workers(device=device) as worker, ExitStack() as held:
        console = Console(highlight=False, quiet=not worker.is_first)
        if out is not None and worker.is_first:
            _check_out(out, console)
        path = file or EMBEDDED
        # Before anything is read: what changes from here on is not what was learned from.
        data = fingerprint(path)
        check_cell(shape.get("cell"))
        with reading(console, path):
            found, layout, reasons = look_over(path, said)
        console.print(_console.columns(found, reasons))
        console.print(_console.task_line(layout))
        for line in filter(None, [missing_line(found, layout), *found.notes]):
            console.print(Text(line), soft_wrap=True)
        _check_target(found, layout)
        if "horizon" in shape and layout.task != FORECAST:
            expected, fix = "something to forecast", "Leave it out, or say `--task forecast`."
            refuse("`--horizon` is for forecasts", got=f"a task to {layout.task}", expected=expected, fix=fix)
        with reading(console, path):
            examples = read_examples(found.table, layout, together=found.together, seed=seed)
        learned = windows_of(examples)
        steps = sum(len(example[0]) for example in learned)
        sizes = default_shape(layout.task, len(learned), steps, _horizon(examples))._replace(**shape)
        chosen = default_recipe(layout.task, len(learned), steps)._replace(**recipe)
        if examples.has(VALIDATION):
            chosen = with_patience(chosen)
        parts, missing = parts_as_json(examples), missing_cells(found, layout)
        plan = Plan(path.absolute(), said, seed, examples.layout, sizes, chosen, data, parts, missing)
        check(plan, examples, learned)
        folder = _new_folder(out, plan, worker, held, console)
        with saying_how_to_go_on(console, folder):
            run(console, folder, plan, examples, worker)


def _check_out(out: Path, console: Console) -> None:
    """The folder is free; of one that another training writes to, say so."""
    with ExitStack() as held:
        if (out / _run_folder.LOCK).exists():
            held.enter_context(_run_folder.locked(out, _warning_on(console)))
        _run_folder.check_free(out)


def reading(console: Console, path: Path) -> AbstractContextManager[Any]:
    """A spinner while a file is read, on a terminal."""
    return console.status(f"Reading {escape(path.absolute().name)}")


def _check_target(found: Survey, layout: Layout) -> None:
    """What one look has shown already, before everything is read."""
    if layout.task in (CLASSIFY, TAG):
        fact = found.facts[layout.targets[0].name]
        if fact.counts is not None and not fact.missing:
            check_classes(found.table, fact.name, fact.counts)


def check(plan: Plan, examples: Examples, learned: list[Example]) -> None:
    """What cannot be trained is a mistake, and leaves nothing behind."""
    longest = max(len(example[0]) for example in learned)
    if plan.layout.task == FORECAST and plan.shape.horizon >= longest:
        if longest < 2:
            refuse(
                "the sequences are too short to forecast",
                got="one step each",
                expected="two or more",
                fix="Name the column that says which rows belong together: `--sequence`.",
            )
        refuse(
            "`--horizon` is longer than the sequences",
            got=plan.shape.horizon,
            expected=f"less than {longest}, the steps of the longest to learn from",
            fix="Leave it out for a good default.",
        )
    check_fits_memory(plan.layout, plan.shape)
    make_model(plan.layout, plan.shape)
    try:
        batches_of(examples, learned, plan.recipe, plan.seed)
    except ValueError as error:
        raise UserError(str(error)) from None


def _new_folder(out: Path | None, plan: Plan, worker: tt.train.Worker, held: ExitStack, console: Console) -> Path:
    """A folder with `run.json` in it, the same for all workers: the first one chooses, makes and locks it."""
    chosen = [Path()]
    if worker.is_first:
        chosen = [_run_folder.new_folder(out, stem_of(plan.file), held, _warning_on(console))]
        _run_folder.write_run(chosen[0], as_json(plan))
    if worker.size > 1:
        torch.distributed.broadcast_object_list(chosen, src=0)
    return chosen[0]


def _warning_on(console: Console) -> Callable[[str], None]:
    """How the command says what does not stop it."""
    return lambda message: console.print(Text(f"Warning: {message}", style="yellow"), soft_wrap=True)


def go_on(folder: Path, device: torch.device) -> None:
    """Resume the run in a folder: the same file, the same choices, from its last checkpoint."""
    with tt.train.workers(device=device) as worker, ExitStack() as held:
        console = Console(highlight=False, quiet=not worker.is_first)
        _run_folder.check_run(folder)
        if worker.is_first:
            held.enter_context(_run_folder.locked(folder, _warning_on(console)))
        values = _run_folder.read_run(folder)
        plan = from_json(values)
        if plan.parts is None:
            refuse(
                f"{folder} was begun by an earlier version",
                got="a run without a validation part",
                expected="one that has one, since it chooses the epoch now",
                fix=f"Start a new run with `throughtime train {plan.file}`; `predict` and `inspect` take this one.",
            )
        if "metrics" in values:
            console.print(Text(f"{folder} is finished already: nothing is left to learn."), soft_wrap=True)
        if not plan.file.exists():
            expected, fix = "the file that it learns from", "Bring it back."
            refuse(f"{folder} cannot go on", got=f"no {plan.file}", expected=expected, fix=fix)
        check_unchanged(plan.file, plan.data)
        examples = reread(plan)
        if examples.layout != plan.layout:
            refuse(
                f"{plan.file.name} has changed since the run began",
                got="other columns or values",
                expected="the file as it was",
                fix="Bring it back as it was, or start a new run without `--resume`.",
            )
        checkpoint = tt.train.latest_checkpoint(folder)
        if checkpoint is not None:
            check_fits_weights(plan.layout, plan.shape, checkpoint / _run_folder.WEIGHTS)
        check_fits_memory(plan.layout, plan.shape)
        with saying_how_to_go_on(console, folder):
            run(console, folder, plan, examples, worker)


@contextmanager
def saying_how_to_go_on(console: Console, folder: Path) -> Iterator[None]:
    """Whenever a run is interrupted or the disk is full, even before its first checkpoint, its folder is enough."""
    try:
        with lost_workers_told(f"Go on with `{_same_workers()} -m throughtime train --resume {folder}`."):
            yield
    except KeyboardInterrupt:
        console.print(Text(f"Go on with: throughtime train --resume {folder}"), soft_wrap=True)
        raise
    except BrokenPipeError:
        raise
    except OSError as error:
        refuse(
            f"{error.filename or folder} cannot be written",
            got=error.strerror or str(error),
            expected="room on the disk, and leave to write",
            fix=f"See to it, then go on with `throughtime train --resume {folder}`.",
        )


def _same_workers() -> str:
    """The torchrun that starts as many workers as there are."""
    machines = os.environ.get("GROUP_WORLD_SIZE", "1")
    several = "" if machines == "1" else f" --nnodes {machines} [and what else it had]"
    return f"torchrun --nproc-per-node {os.environ.get('LOCAL_WORLD_SIZE', '1')}{several}"


def reread(plan: Plan) -> Examples:
    """The examples of a run that began before, by the roles that its columns had then, whatever one would guess now."""
    table, layout = open_table(plan.file), plan.layout.unfitted()
    layout.check(table.columns, plan.file, with_targets=True)
    found = survey(table, layout.sequence, frozenset((*plan.said.categories, *plan.said.ignore)))
    return read_examples(table, layout, together=found.together, seed=plan.seed)


def run(console: Console, folder: Path, plan: Plan, examples: Examples, worker: tt.train.Worker) -> None:
    """Train, save, report."""
    # Nothing draws from the first two; but checkpoints hold them, and are the same for the same seed.
    random.seed(plan.seed)
    np.random.seed(plan.seed % 2**32)  # noqa: NPY002
    torch.manual_seed(plan.seed)
    model = make_model(plan.layout, plan.shape).to(worker.device)
    batches = batches_of(examples, windows_of(examples), plan.recipe, plan.seed)
    adam, schedule = optimiser(model, plan.recipe, batches.steps)
    console.print(_console.choices(model, examples, plan.shape, plan.recipe))
    task = TASKS[plan.layout.task]
    chooses = batches.validation is not None
    try:
        history = tt.train.fit(
            model,
            task.measure,
            batches.train,
            batches.validation,
            optimizer=adam,
            schedule=schedule,
            epochs=plan.recipe.epochs,
            clip_norm=plan.recipe.clip_norm,
            truncate=plan.recipe.truncate,
            folder=folder,
            checkpoint_every=min(max(batches.steps, CHECKPOINT_EVERY[0]), CHECKPOINT_EVERY[1]),
            resume=True,
            # Without a validation part the last weights are kept: the training loss says nothing of which are best.
            patience=plan.recipe.patience if chooses else None,
            keep_best=chooses,
            callbacks=[tt.train.Progress(console, mark_best=chooses)],
        )
        # All workers take part. With the weights that are kept, and after everything has been chosen.
        quoted = batches_to_quote(examples, batches)
        values = tt.train.evaluate(model, task.measure, quoted, truncate=plan.recipe.truncate)
    except tt.InvalidArgumentError as error:
        raise UserError(str(error)) from None
    if not worker.is_first:
        return
    tt.train.save_weights(model, folder / _run_folder.WEIGHTS)
    text = examples.text.get(examples.measured_on)
    asked = None if text is None else streams_to_measure(text).targets
    outcome = outcome_of(examples, values, baseline_of(examples, plan.shape.horizon, asked))
    _run_folder.write_run(folder, {**as_json(plan), **_results(history, outcome, values, chooses=chooses)})
    seconds = sum(epoch.seconds for epoch in history.epochs)
    said = outcome.said(_console.took(seconds))
    kept = kept_epoch(history, chooses=chooses)
    look_back(folder / _run_folder.REPORT, plan, model, examples, Finished(history, kept, outcome, said))
    say_outcome(console, folder, said, plan.layout.task, is_good=outcome.means_something)


def kept_epoch(history: tt.train.History, *, chooses: bool) -> tt.train.Epoch:
    """The epoch whose weights are kept: the best one by the validation part, else the last."""
    return (history.best if chooses else None) or history.epochs[-1]


def _results(history: tt.train.History, outcome: Outcome, values: dict[str, float], *, chooses: bool) -> dict[str, Any]:
    """What `run.json` says once a run is finished."""
    kept = kept_epoch(history, chooses=chooses)
    return {
        "metrics": {
            "epoch": kept.number,
            # While it learned: the mean over the epoch, with dropout and noise.
            "training": kept.train,
            "validation": kept.valid,
            "test": values if outcome.part == TEST else {},
        },
        "outcome": outcome.as_json(),
    }


def say_outcome(console: Console, folder: Path, outcome: str, task: str, *, is_good: bool) -> None:
    """How it went, and where to look and what to do next."""
    # The name of a class may have stars, too, but a figure begins as a number does.
    before, figure, after = re.split(r"\*\*((?:[-\d]|nan|inf)[^*]*)\*\*", outcome, maxsplit=1)
    told = Text.assemble("\n", before, (figure, "bold green" if is_good else "bold yellow"), after)
    console.print(told, soft_wrap=True)
    console.print(Text.assemble("Report: ", (str(folder / _run_folder.REPORT), "bold")), soft_wrap=True)
    writes = {GENERATE: "decode {} TEXT", TRANSLATE: "decode {} TEXT, or predict {} NEW-FILE"}
    use = writes.get(task, "predict {} NEW-FILE").replace("{}", str(folder))
    console.print(Text(f"Next:   throughtime {use}"), soft_wrap=True)


def _horizon(examples: Examples) -> int:
    """Steps to forecast: a day of hours, or less for short sequences."""
    if examples.layout.task != FORECAST:
        return 1
    shortest = min(len(example[0]) for example in examples.train)
    return max(1, min(LONGEST_HORIZON, shortest // 4))


def as_json(plan: Plan) -> dict[str, Any]:
    """The plan in plain values."""
    return {
        "throughtime": tt.__version__,
        "file": str(plan.file),
        "data": None if plan.data is None else plan.data._asdict(),
        "said": plan.said._asdict(),
        "seed": plan.seed,
        "layout": plan.layout.as_json(),
        "shape": plan.shape._asdict(),
        "recipe": plan.recipe._asdict(),
        "parts": plan.parts,
        "missing": plan.missing,
    }


def from_json(values: dict[str, Any]) -> Plan:
    """What `as_json` wrote."""
    said: dict[str, Any] = values["said"]
    said = {name: tuple(value) if isinstance(value, list) else value for name, value in said.items()}
    return Plan(
        Path(values["file"]),
        Columns(**said),
        values["seed"],
        Layout.from_json(values["layout"]),
        Shape(**values["shape"]),
        Recipe(**values["recipe"]),
        Fingerprint(**values["data"]) if values.get("data") else None,
        values.get("parts"),
        values.get("missing", {}),
    )
