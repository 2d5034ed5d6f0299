"""What the command says before and after training."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from rich import box
from rich.table import Table as Grid
from rich.text import Text
from torch import nn

from throughtime._text import plural
from throughtime.cli._user_errors import listed
from throughtime.cli.tables import Facts, Layout, Survey
from throughtime.cli.tables._infer_roles import CLASSIFY, FORECAST, GENERATE, TAG, TRANSLATE
from throughtime.cli.tables._readers import FolderTable
from throughtime.cli.tasks._defaults import Recipe
from throughtime.cli.tasks._examples import Examples, left_out
from throughtime.cli.tasks._models import Shape
from throughtime.cli.tasks._parts import PARTS, TEST, TRAINING, VALIDATION
from throughtime.cli.tasks._tasks import weights_in

MOST_ROWS = 16
WORDS = {
    CLASSIFY: "one class for each sequence",
    TAG: "a tag at each step",
    FORECAST: "what comes next",
    GENERATE: "to write such text",
    TRANSLATE: "to write one text for another",
}


def columns(found: Survey, reasons: dict[str, str]) -> Grid:
    """The columns of a file, and what each is taken for."""
    grid = Grid(box=box.SIMPLE_HEAD, pad_edge=False, title=title(found), title_justify="left", title_style="bold")
    for name in ("column", "holds", "is taken for"):
        grid.add_column(name, overflow="fold")
    names = found.table.columns
    # Columns that only differ in their number are one line.
    for first, last in _runs_of_alike(names, reasons):
        name = names[first] if first == last else f"{names[first]} … {names[last]}"
        shown = holds([found.facts[name] for name in names[first : last + 1]])
        grid.add_row(Text(name), Text(shown), Text(reasons.get(names[first], "not used")))
    return grid


def task_line(layout: Layout) -> Text:
    """What will be learned."""
    words = f", {WORDS[layout.task]}. "
    return Text.assemble("Task: ", (layout.task, "bold"), words, ("Not so? throughtime train --help", "dim"))


def title(found: Survey) -> str:
    """How much there is."""
    name = found.table.path.absolute().name
    if found.table.columns == ["text"] and found.rows == 1:
        return f"{name}: {plural(found.facts['text'].characters, 'character')}"
    rows = f"{name}: {plural(found.rows, 'row')}"
    if found.sequence is None:
        return rows
    if isinstance(found.table, FolderTable) and found.table.holds_texts:
        return f"{name}: {plural(found.rows, 'text')}{left_out(found.table)}"
    shortest, longest = min(found.lengths), max(found.lengths)
    span = plural(longest, "step") if shortest == longest else f"{shortest:,} to {longest:,} steps"
    return f"{rows}, {plural(len(found.lengths), 'sequence')} of {span}{left_out(found.table)}"


def holds(facts: Sequence[Facts]) -> str:
    """What some columns of a kind hold, in few words."""
    fact = facts[0]
    if all(fact.is_number for fact in facts):
        whole = "whole numbers" if all(fact.whole for fact in facts) else "numbers"
        return f"{whole}, {min(fact.low for fact in facts):.4g} to {max(fact.high for fact in facts):.4g}"
    if fact.longest > 40:
        return f"texts of up to {fact.longest:,} characters"
    if fact.distinct is not None and fact.distinct <= 6:
        return ", ".join(sorted(fact.counts or {}))[:48]
    count = "many" if fact.distinct is None else f"{fact.distinct:,}"
    return f"{count} different texts of up to {fact.longest:,} characters"


def _runs_of_alike(names: list[str], reasons: dict[str, str]) -> list[tuple[int, int]]:
    """First and last place of columns in a row whose names begin alike and which mean the same kind of thing."""
    groups: list[tuple[int, int]] = []
    for place, name in enumerate(names):
        stem, meaning = name.rstrip("0123456789"), reasons.get(name, "").split(",")[0]
        if groups and stem != name:
            before = names[groups[-1][1]]
            alike = before.rstrip("0123456789") == stem and reasons.get(before, "").split(",")[0] == meaning
            if alike:
                groups[-1] = (groups[-1][0], place)
                continue
        groups.append((place, place))
    return (
        groups if len(groups) <= MOST_ROWS else [*groups[: MOST_ROWS - 1], (groups[MOST_ROWS - 1][0], len(names) - 1)]
    )


def took(seconds: float) -> str:
    """`0.4 s`, `1,200 s`."""
    return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:,.0f} s"


def choices(model: nn.Module, examples: Examples, shape: Shape, recipe: Recipe) -> str:
    """The data, the model and the training, a line each."""
    both = "" if examples.layout.task in (FORECAST, GENERATE) else " in each direction"
    layers = "" if shape.layers == 1 else f" in {shape.layers} layers"
    name = shape.cell.upper() if shape.cell.islower() else shape.cell
    rate = f"learning rate up to {recipe.learning_rate:g}"
    epochs = f"{'up to ' if recipe.may_stop_early else ''}{plural(recipe.epochs, 'epoch')}"
    device = next(model.parameters()).device
    where = f" on {torch.cuda.get_device_name(device)}" if device.type == "cuda" else ""
    return (
        f"{parts(examples)}.{_unlearned(examples)}{_one_class(examples)}\n"
        f"{name} of {plural(shape.units, 'unit')}{both}{layers}, {weights_in(model):,} weights; "
        f"{epochs} of batches of {recipe.batch_size}, {rate}{where}.\n{stopping(examples, recipe)}\n"
    )


def parts(examples: Examples) -> str:
    """How much there is in each part of the data."""
    if examples.by_time or examples.text:
        unit = "character" if examples.text else "step"
        start = f"{plural(examples.count(TRAINING), 'text' if examples.text else 'sequence')}: "
        sizes = {part: plural(examples.steps(part), unit) for part in PARTS if examples.has(part)}
    else:
        noun = "text" if examples.layout.task == TRANSLATE else "sequence"
        start = ""
        sizes = {part: f"{examples.count(part):,}" for part in PARTS if examples.has(part)}
        sizes[TRAINING] = plural(examples.count(TRAINING), noun)
    said = [f"{sizes[TRAINING]} to learn from"]
    said += [f"{sizes[VALIDATION]} for validation"] if VALIDATION in sizes else ["none for validation"]
    said += [f"{sizes[TEST]} to test"] if TEST in sizes else ["none to test"]
    return start + ", ".join(said)


def stopping(examples: Examples, recipe: Recipe) -> str:
    """Which weights are kept, and when training stops."""
    if recipe.patience:
        ends = "all epochs are run"
        if recipe.may_stop_early:
            ends = f"training stops after {plural(recipe.patience, 'epoch')} without a lower one"
        return f"The weights of the lowest validation loss are kept; {ends}."
    why = examples.chosen[VALIDATION].removeprefix("none: ")
    return f"No validation part ({why}): all epochs are run, and the last weights are kept."


def _unlearned(examples: Examples) -> str:
    """Classes of which there is nothing to learn from: every answer that they would need is wrong."""
    classes = examples.unlearned
    if not classes:
        return ""
    verb, pronoun = ("is", "it") if len(classes) == 1 else ("are", "they")
    return f"\n{listed(classes)} {verb} not in the training part: {pronoun} cannot be learned."


def _one_class(examples: Examples) -> str:
    """Parts with one class only: whatever is measured on them means little."""
    found = {part: examples.only_class(part) for part in (VALIDATION, TEST)}
    return "".join(
        f"\nThe {part} part has one class only, `{only}`: what is measured on it means little."
        for part, only in found.items()
        if only is not None
    )
