"""The report of a run: what is worth a look, by task."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

import throughtime as tt
from throughtime import _pytree
from throughtime._text import plural
from throughtime.cli._compressed import stem_of
from throughtime.cli.tables._infer_roles import CLASSIFY, FORECAST, GENERATE, TAG, TRANSLATE
from throughtime.cli.tables._schema import CATEGORY, TEXT, Layout
from throughtime.cli.tasks._examples import Example, Examples, answers
from throughtime.cli.tasks._inputs import hidden
from throughtime.cli.tasks._outcome import Outcome
from throughtime.cli.tasks._parts import PARTS, TRAINING, VALIDATION
from throughtime.cli.tasks._tasks import TASKS, weights_in
from throughtime.cli.tasks._translator import shifted
from throughtime.cli.train._batches import windows_of
from throughtime.cli.train._console import took

if TYPE_CHECKING:
    from throughtime.cli.train._run import Plan

CHOSEN = 6
# Characters of text to look at from inside: as many as fit on a screen.
TEXT_STEPS = 60


class Reading(NamedTuple):
    """The cell that reads and what it reads: arguments of `tt.explain`."""

    cell: Any
    inputs: Tensor
    lengths: Tensor | None = None
    state: Any = None


class Finished(NamedTuple):
    """A run after its end: its history, the epoch whose weights are kept, and what it has come to."""

    history: tt.train.History
    kept: tt.train.Epoch
    outcome: Outcome
    said: str


def look_back(path: Path, plan: Plan, model: nn.Module, examples: Examples, finished: Finished) -> None:
    """Write the report of a run; the plan in it is for the device that the model is on."""
    device = next(model.parameters()).device
    model.cpu().eval()
    task = TASKS[plan.layout.task]
    report = tt.train.Report(_title(plan), finished.said, part=examples.measured_on)
    report.add_history(
        finished.history, rates=task.rates, baselines={task.metric: task.baseline} if task.baseline else None
    )
    explained = _explained(_from_inside(report, model, examples), device)
    _add_lengths(report, examples, plan.recipe.batch_size)
    report.add_plan(explained)
    report.add_facts(_facts(plan, model, examples, finished, explained.backend))
    report.add_settings(_settings(plan, examples, finished, device))
    report.write(path)


def _explained(reading: Reading, device: torch.device) -> Any:
    """How the cell runs where it was trained."""
    moved = _pytree.map_leaves(lambda part: None if part is None else part.to(device), reading)
    return tt.explain(moved.cell, moved.inputs, moved.lengths, moved.state, torch.float32)


def _from_inside(report: tt.train.Report, model: nn.Module, examples: Examples) -> Reading:
    """The part that only this task has; returns what the model reads it with."""
    task = examples.layout.task
    if task == GENERATE:
        return _text_from_inside(report, model, examples)
    chosen = _chosen(examples)
    if task in (CLASSIFY, TAG):
        report.add_confusion(*_confusion(model, examples), unit="sequences" if task == CLASSIFY else "steps")
        return _classes_from_inside(report, model, examples, chosen)
    if task == FORECAST:
        return _forecasts(report, model, examples, chosen)
    return _translations(report, model, examples, chosen)


def _add_lengths(report: tt.train.Report, examples: Examples, batch_size: int) -> None:
    """Lengths, and the padding of the batches."""
    lengths = [len(example[0]) for example in examples.train]
    if examples.layout.task != GENERATE:
        windows = [len(example[0]) for example in windows_of(examples)]
        buckets = tt.train.Buckets(windows, batch_size, rank=0, workers=1)
        padding, at_random = buckets.padding, buckets.padding_at_random
        report.add_lengths(lengths, padding=padding, padding_at_random=at_random, part=TRAINING)
    else:
        report.add_lengths(lengths, part=TRAINING)


def _title(plan: Plan) -> str:
    names = " and ".join(column.name for column in plan.layout.targets[:3]) or plan.layout.inputs[0].name
    what = plan.layout.task if names == plan.layout.task else f"{plan.layout.task} {names}"
    return f"{stem_of(plan.file).replace('_', ' ')}: {what}"


def _facts(plan: Plan, model: nn.Module, examples: Examples, finished: Finished, backend: str) -> dict[str, str]:
    task, outcome = TASKS[plan.layout.task], finished.outcome
    seconds = sum(epoch.seconds for epoch in finished.history.epochs)
    form = "{:.1%}" if task.metric in task.rates else "{:.3g}"
    return {
        f"{outcome.part} {task.metric}": form.format(outcome.value),
        f"{outcome.part} {task.metric}, {outcome.baseline.name}": form.format(outcome.baseline.value),
        "steps" if plan.layout.task != GENERATE else "characters": f"{sum(map(examples.steps, PARTS)):,}",
        "sequences": f"{_sequences(examples):,}",
        "weights": f"{weights_in(model):,}",
        f"epochs (kept: {finished.kept.number})": f"{len(finished.history.epochs)}",
        "time": took(seconds),
        "backend": backend,
    }


def _sequences(examples: Examples) -> int:
    """All sequences, each counted once."""
    return len(examples.train) if examples.by_time else sum(map(len, examples.parts.values()))


def _settings(plan: Plan, examples: Examples, finished: Finished, device: torch.device) -> dict[str, object]:
    """Everything that decides what the run computes, chosen or said: what is not in use is left out."""
    shape, recipe = plan.shape.said_of(plan.layout.task), plan.recipe._asdict()
    words = {name.replace("_", " "): value for name, value in {**shape, **recipe}.items() if value is not None}
    data = {} if plan.data is None else {"hash of the data (BLAKE2b)": plan.data.blake2b}
    ran = {"device": str(device), "versions": f"throughtime {tt.__version__}, torch {torch.__version__}"}
    return {
        "file": plan.file.name,
        **data,
        "task": plan.layout.task,
        **_columns(plan.layout, examples),
        **_parts(examples),
        "missing cells": ", ".join(f"{name} {count:,}" for name, count in plan.missing.items()) or "none",
        "weights kept": _kept(finished, chooses=examples.has(VALIDATION)),
        "seed": plan.seed,
        **words,
        **ran,
    }


def _kept(finished: Finished, *, chooses: bool) -> str:
    """Which epoch's weights are kept, and why."""
    number, total = finished.kept.number, len(finished.history.epochs)
    if not chooses:
        return f"those of epoch {number}, the last"
    end = "; stopped early" if finished.history.stopped_early else ""
    return f"those of epoch {number} of {total}, of the lowest validation loss{end}"


def _columns(layout: Layout, examples: Examples) -> dict[str, object]:
    """The role of every column, by the name that its flag has."""
    texts = [column.tokens for column in (*layout.inputs, *layout.targets) if column.kind == TEXT]
    categories = [column.name for column in layout.inputs if column.kind == CATEGORY]
    roles = {
        "sequence": layout.sequence,
        "order": layout.order,
        "inputs": ", ".join(column.name for column in layout.inputs),
        "targets": ", ".join(column.name for column in layout.targets),
        "categories": ", ".join(categories),
        "ignored": ", ".join(examples.unused),
        "split": layout.split,
        "tokens": ", ".join(texts),
    }
    return {name: value for name, value in roles.items() if value}


def _parts(examples: Examples) -> dict[str, object]:
    """How much is in each part of the data, and how it was chosen."""
    unit = "character" if examples.text else "token" if examples.layout.task == TRANSLATE else "step"
    said: dict[str, object] = {}
    for part in PARTS:
        how = examples.chosen.get(part, "the rest")
        sizes = f"{plural(examples.count(part), 'sequence')}, {plural(examples.steps(part), unit)}: "
        said[f"{part} part"] = (sizes if examples.has(part) else "") + how
    return said


def _chosen(examples: Examples) -> list[tuple[str, Example]]:
    """A few sequences of different lengths, from longest to shortest, of the part that is measured."""
    source, names = examples.parts[examples.measured_on], examples.names[examples.measured_on]
    order = np.argsort([-len(example[0]) for example in source], kind="stable")
    places = order[np.unique(np.linspace(0, len(order) - 1, CHOSEN).round().astype(int))]
    return [(names[place], source[place]) for place in places]


@torch.no_grad()
def _confusion(model: nn.Module, examples: Examples) -> tuple[Counter[tuple[int, int]], tuple[str, ...]]:
    """How often each class was taken for which, over the part that is measured."""
    names = examples.layout.targets[0].categories
    # Of thousands of classes few are taken for each other, and a table of all may not fit into memory.
    seen: Counter[tuple[int, int]] = Counter()
    for batch in tt.train.loader(examples.parts[examples.measured_on], 256, shuffle=False, rank=0, workers=1):
        said = model(batch.inputs, batch.lengths).argmax(-1)
        wanted = batch.targets
        if batch.target_lengths is not None:
            real = tt.train.mask(batch.lengths, said.shape[1])
            said, wanted = said[real], wanted[real]
        seen.update(zip(wanted.tolist(), said.tolist(), strict=True))
    return seen, names


def _classes_from_inside(
    report: tt.train.Report, model: Any, examples: Examples, chosen: list[tuple[str, Example]]
) -> Reading:
    """States and gradients of both directions, for the answer at the end (for tags, at both ends)."""
    batch = tt.train.pad([example for _, example in chosen])
    rows = torch.arange(len(chosen))
    with torch.no_grad():
        x = model.inputs(batch.inputs)
        outputs, states = tt.bidirectional_dynamic_rnn(model.forwards, model.backwards, x, batch.lengths, dtype=x.dtype)
    assert batch.targets is not None
    if examples.layout.task == CLASSIFY:
        others, wanted = (hidden(states[1]), hidden(states[0])), (batch.targets, batch.targets)
    else:
        last = batch.lengths - 1
        others = outputs[1][rows, last], outputs[0][:, 0]
        wanted = batch.targets[rows, last], batch.targets[:, 0]

    def loss_forwards(_: Any, state: Any) -> Tensor:
        return nn.functional.cross_entropy(model.judge(hidden(state), others[0]), wanted[0], reduction="sum")

    def loss_backwards(_: Any, state: Any) -> Tensor:
        return nn.functional.cross_entropy(model.judge(others[1], hidden(state)), wanted[1], reduction="sum")

    there = tt.train.through_time(model.forwards, x, batch.lengths, loss_forwards)
    back = tt.train.through_time(model.backwards, x, batch.lengths, loss_backwards, reverse=True)
    names = examples.layout.targets[0].categories
    for row, (name, example) in enumerate(chosen):
        length = len(example[0])
        label = f" ({names[int(batch.targets[row])]})" if examples.layout.task == CLASSIFY else ""
        layers = {"Reading forwards": _part(there, row, length), "Reading backwards": _part(back, row, length)}
        report.add_through_time(f"{name}{label}", layers, reverse=["Reading backwards"])
    return Reading(model.forwards, x, batch.lengths)


def _part(inside: tt.train.ThroughTime, row: int, length: int) -> tuple[Tensor, Tensor | None]:
    """States and gradients of one sequence, without its padding."""
    gradients = inside.gradients
    return inside.states[row, :length], None if gradients is None else gradients[row, :length]


def _forecasts(report: tt.train.Report, model: Any, examples: Examples, chosen: list[tuple[str, Example]]) -> Reading:
    """What was forecast and what came, and how far back the forecast looks."""
    longest = max(examples.train, key=lambda example: len(example[0]))
    usable = [one for one in chosen if len(one[1][0]) > 1] or [("1", longest)]
    # A sequence that is shorter than the horizon is read up to its first step, and forecast as far as it goes.
    aheads = [min(model.horizon, len(inputs) - 1, _unseen(examples, targets)) for _, (inputs, targets) in usable]
    batch = tt.train.pad([inputs[:-ahead] for ahead, (_, (inputs, _)) in zip(aheads, usable, strict=True)])
    rows, last = torch.arange(len(usable)), batch.lengths - 1
    with torch.no_grad():
        forecast = model(batch.inputs, batch.lengths)[rows, last]
    futures = torch.full_like(forecast, torch.nan)
    for row, (ahead, (name, (inputs, _))) in enumerate(zip(aheads, usable, strict=True)):
        futures[row, :ahead] = inputs[-ahead:, model.places]
        parts = {}
        for place, (column, source) in enumerate(zip(examples.layout.targets, model.places, strict=True)):
            values = column.original(inputs[:, source].numpy())
            said = column.original(forecast[row, :ahead, place].numpy())
            parts[column.name] = (values[:-ahead], values[-ahead:], said)
        report.add_forecast(f"sequence {name}" if len(usable) > 1 else column.name, parts)
    x = model.inputs(batch.inputs).detach()
    present, known = batch.inputs[rows, last], futures.isfinite()

    def loss(_: Any, state: Any) -> Tensor:
        said = model.judge(hidden(state), present)
        return nn.functional.smooth_l1_loss(said[known], futures[known], reduction="sum")

    inside = tt.train.through_time(model.forwards, x, batch.lengths, loss)
    for row, (name, _) in enumerate(usable):
        length = int(batch.lengths[row])
        report.add_through_time(f"sequence {name}", {"Reading towards the present": _part(inside, row, length)})
    return Reading(model.forwards, x, batch.lengths)


def _unseen(examples: Examples, targets: Tensor) -> int:
    """Steps at the end of a sequence that are of the part that is measured: no more are drawn as the future."""
    if not examples.by_time:
        return len(targets)
    # Of a sequence divided by time, what came before is read, but does not count.
    known = answers(targets).isfinite().any(1).nonzero()
    return len(targets) - int(known[0]) if len(known) else 1


def _text_from_inside(report: tt.train.Report, model: Any, examples: Examples) -> Reading:
    """Two pieces of the text that is measured, character by character."""
    text = examples.text[examples.measured_on]
    column = examples.layout.inputs[0]
    # One short text may be all that there is.
    steps = min(TEXT_STEPS, len(text) - 1)
    starts = [start for start in (0, len(text) // 2) if start + steps + 1 <= len(text)]
    ids = torch.stack([text[start : start + steps] for start in starts])
    following = torch.stack([text[start + steps] for start in starts])
    x = model.embedding(ids).detach()

    def loss(_: Any, state: Any) -> Tensor:
        return nn.functional.cross_entropy(model.answer(hidden(state)), following, reduction="sum")

    inside = tt.train.through_time(model.forwards, x, None, loss)
    shown = {0: "?", model.end: "¶"} | dict(enumerate(column.categories, 1))
    for row, one in enumerate(ids.tolist()):
        letters = [shown[place].replace("\n", "↵").replace(" ", "·") for place in one]
        layer = {"Reading character by character": _part(inside, row, steps)}
        report.add_through_time("".join(letters[:20]) + "…", layer, labels=letters)
    return Reading(model.forwards, x)


def _translations(
    report: tt.train.Report, model: Any, examples: Examples, chosen: list[tuple[str, Example]]
) -> Reading:
    """Where the model looks while it writes what it should write, and what it knows of what it reads."""
    source, target = examples.layout.inputs[0], examples.layout.targets[0]
    batch = tt.train.pad([example for _, example in chosen])
    assert batch.targets is not None
    assert batch.target_lengths is not None
    with torch.no_grad():
        written, wanted, lengths = shifted(batch.targets, batch.target_lengths, model.begin, model.end)
        state = model.read(batch.inputs, batch.lengths)
        x = model.target(written)
        _, _, states = tt.dynamic_rnn(model.writer, x, lengths, initial_state=state, dtype=x.dtype, all_states=True)
        read = model.source(batch.inputs)
        (_, back), _ = tt.bidirectional_dynamic_rnn(
            model.forwards, model.backwards, read, batch.lengths, dtype=read.dtype
        )

    def loss(outputs: Any, _: Any) -> Tensor:
        remembered = model.remember(torch.cat([outputs, back], -1), batch.lengths)
        said, _ = tt.dynamic_rnn(model.writer, x, lengths, initial_state=remembered, dtype=x.dtype)
        return tt.train.cross_entropy(model.answer(said), wanted, lengths).total

    inside = tt.train.through_time(model.forwards, read, batch.lengths, loss)
    for row, (_, (ids, right)) in enumerate(chosen):
        tokens = ["?" if place == 0 else source.categories[place - 1] for place in ids.tolist()]
        result = [*("?" if place == 0 else target.categories[place - 1] for place in right.tolist()), "■"]
        name = source.join(tokens)
        report.add_attention(name, states.alignments[row, : len(result), : len(tokens)], tokens, result)
        layer = {"Reading forwards": _part(inside, row, len(tokens))}
        # What is written looks back at all that was read.
        report.add_through_time(name, layer, labels=tokens, every_step=True)
    return Reading(model.writer, x, lengths, state)
