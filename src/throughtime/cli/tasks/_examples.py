"""From a table to examples: sequences read, columns fitted on those to learn from, everything turned into numbers."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Collection, Iterator
from typing import NamedTuple, NoReturn

import numpy as np
import torch
from torch import Tensor

from throughtime._text import plural
from throughtime.cli._user_errors import refuse
from throughtime.cli.tables import Column, Layout, RowChunk, Rows, Table, rows_of
from throughtime.cli.tables._group_rows import cut_piece, sorted_rows
from throughtime.cli.tables._infer_roles import CLASSIFY, FORECAST, GENERATE, TAG, TRANSLATE
from throughtime.cli.tables._schema import CATEGORY, NUMBER, TEXT
from throughtime.cli.tables._table import Values
from throughtime.cli.tasks._parts import (
    BY_TIME,
    FEWEST_STEPS,
    OF_THE_TEXT,
    PARTS,
    SHARE,
    TEST,
    TOO_SHORT,
    TRAINING,
    VALIDATION,
    cuts_of,
    divide,
)

# What a split column may say, in any case of letters.
SPLIT_WORDS = {
    TRAINING: {"train", "training", "0", "false", "no", ""},
    VALIDATION: {"valid", "validation", "val", "dev"},
    TEST: {"test", "testing", "1", "true", "yes", "held out", "held_out"},
}
# Fewer sequences than this are divided by time, not one by one.
FEW = 20
# Steps that are read before the part of a long sequence that is measured.
CONTEXT = 512

# Inputs, and a target where the task has one.
Example = tuple[Tensor, ...]


class Examples(NamedTuple):
    """What a model learns from, what chooses the epoch, and what it is tested on.

    `names` are those of the sequences of each part, `chosen` says how each part was chosen or why there is none.
    `text` has the joined texts of each part where the task is to write. `unused` are columns of the table that have no
    part in it. Classes that are `unlearned` are not in the training part.
    """

    layout: Layout
    parts: dict[str, list[Example]]
    names: dict[str, list[str]]
    chosen: dict[str, str]
    text: dict[str, Tensor]
    # Steps of each part where every sequence is divided by time; empty where each sequence is in one part.
    spans: dict[str, int]
    unused: tuple[str, ...] = ()
    unlearned: tuple[str, ...] = ()

    @property
    def by_time(self) -> bool:
        """Whether every sequence is divided by time."""
        return bool(self.spans)

    @property
    def train(self) -> list[Example]:
        """The training part."""
        return self.parts[TRAINING]

    def has(self, part: str) -> bool:
        """Whether there is anything in a part."""
        return part in self.text if self.text else bool(self.parts[part])

    def count(self, part: str) -> int:
        """How many sequences a part has, or has a piece of."""
        return len(self.parts[part]) or int(self.has(part))

    def steps(self, part: str) -> int:
        """How many steps a part has: of texts to write, characters or tokens, with the end of each text."""
        if self.text:
            return len(self.text.get(part, ()))
        if self.spans:
            return self.spans[part] if self.has(part) else 0
        if self.layout.task == TRANSLATE:
            return sum(len(target) + 1 for _, target in self.parts[part])
        return sum(len(example[0]) for example in self.parts[part])

    def only_class(self, part: str) -> str | None:
        """The class of every answer of a part, if there are classes and the part has but one of them."""
        if self.layout.task not in (CLASSIFY, TAG) or not self.parts[part]:
            return None
        places = torch.cat([target.reshape(-1) for _, target in self.parts[part]]).unique()
        return self.layout.targets[0].categories[int(places)] if len(places) == 1 else None

    @property
    def measured_on(self) -> str:
        """The part that the figure to quote is measured on: the test, else the validation, else the training part."""
        return next(part for part in (TEST, VALIDATION, TRAINING) if self.has(part))


def sequences(table: Table, layout: Layout, *, together: bool = True) -> Iterator[Rows]:
    """The sequences of a table: each of its rows where the input is a text, rows of one name elsewhere."""
    if layout.inputs[0].kind != TEXT:
        yield from (rows_of if together else sorted_rows)(table, layout.sequence, layout.order)
        return
    for piece in table.pieces():
        # Where each file is a text it has a name, elsewhere a line.
        names = piece.lines.astype(str) if table.sequence is None else piece.texts(table.sequence)
        for place, name in enumerate(names.tolist()):
            yield Rows(name, cut_piece(piece, place, place + 1))


def read_examples(table: Table, layout: Layout, *, together: bool, seed: int) -> Examples:
    """Read everything, hold a part out, fit the columns on the rest."""
    names: list[str] = []
    pieces: list[RowChunk] = []
    said: list[str] = []
    for rows in sequences(table, layout, together=together):
        if len(rows):
            names.append(rows.name)
            pieces.append(_kept(rows.piece, layout, table))
            said.append(_said_part(rows.piece, layout, table))
    if layout.split is None and _is_cut_by_time(layout, pieces):
        return _divided_by_time(table, layout, names, pieces)
    parts, chosen = divide(None if layout.split is None else said, len(pieces), seed)
    learned = [piece for piece, part in zip(pieces, parts, strict=True) if part == TRAINING]
    if not learned:
        refuse(
            f"{table.path} has nothing to learn from",
            got=f"`{layout.split}` says validation or test everywhere",
            expected="sequences to learn from, too",
            fix=f"Correct the column, or say `--ignore {layout.split}` to hold out a tenth.",
        )
    fitted = _fitted(layout, learned, pieces)
    unlearned = _unlearned(table, fitted, learned)
    examples: dict[str, list[Example]] = {part: [] for part in PARTS}
    members: dict[str, list[str]] = {part: [] for part in PARTS}
    for name, piece, part in zip(names, pieces, parts, strict=True):
        examples[part].append(example_of(piece, fitted, table))
        members[part].append(name)
    text = _text_parts(fitted, examples, chosen) if layout.task == GENERATE else {}
    if layout.task == FORECAST:
        _without_unanswered(examples, members, chosen)
    return Examples(
        fitted, examples, members, chosen, text, {}, unused=_unused(table, layout), unlearned=tuple(sorted(unlearned))
    )


def _unlearned(table: Table, fitted: Layout, learned: list[RowChunk]) -> set[str]:
    """Classes that are not in the training part; a target of one class only is a mistake."""
    if fitted.task not in (CLASSIFY, TAG):
        return set()
    target = fitted.targets[0]
    check_classes(table, target.name, target.categories)
    return set(target.categories).difference(_fit_column(target, learned).categories)


def _text_parts(layout: Layout, examples: dict[str, list[Example]], chosen: dict[str, str]) -> dict[str, Tensor]:
    """The texts of each part one after another, each with its end; ends of the training text where a part has none."""
    end = torch.tensor([len(layout.inputs[0].categories) + 1])
    joined = {
        part: torch.cat([piece for (ids,) in texts for piece in (ids, end)])
        for part, texts in examples.items()
        if texts
    }
    for part in (TEST, VALIDATION):
        if part not in joined and (part == VALIDATION or layout.split is None):
            learned = joined[TRAINING]
            cut = len(learned) - round(SHARE * len(learned))
            joined[TRAINING], joined[part] = learned[:cut], learned[cut:]
            chosen[part] = OF_THE_TEXT[part]
    return joined


def _without_unanswered(
    examples: dict[str, list[Example]], members: dict[str, list[str]], chosen: dict[str, str]
) -> None:
    """Leave out a validation or test part in which no step to come is known: nothing can be measured on it."""
    for part in (VALIDATION, TEST):
        if examples[part] and not any(answers(targets)[1:].isfinite().any() for _, targets in examples[part]):
            examples[part], members[part], chosen[part] = [], [], "none: no step to come is known in it"


def _unused(table: Table, layout: Layout) -> tuple[str, ...]:
    """Columns that were left out, by the user or by the guess."""
    used = {column.name for column in (*layout.inputs, *layout.targets)} | {layout.sequence, layout.order, layout.split}
    return tuple(name for name in table.columns if name not in used)


def _is_cut_by_time(layout: Layout, pieces: list[RowChunk]) -> bool:
    """Whether each sequence is divided: a few series to forecast, or one long sequence of tags."""
    if layout.task == FORECAST:
        return len(pieces) < FEW
    return layout.task == TAG and len(pieces) == 1 and len(pieces[0]) >= FEWEST_STEPS


def _divided_by_time(table: Table, layout: Layout, names: list[str], pieces: list[RowChunk]) -> Examples:
    """The last tenth of each sequence is the test part, the tenth before it the validation part.

    A forecast reads what came before a part, which does not count there; tags are read from both sides, so that
    nothing of another part is read with them.
    """
    cuts = cuts_of([len(piece) for piece in pieces])
    if min(cut.validation for cut in cuts) < 2:
        refuse(
            f"{table.path} is too short to forecast",
            got=f"a sequence of {plural(min(map(len, pieces)), 'step')}",
            expected="at least 4, and better hundreds",
            fix="Give longer sequences.",
        )
    learned = [cut_piece(piece, 0, cut.validation) for piece, cut in zip(pieces, cuts, strict=True)]
    fitted = _fitted(layout, learned, pieces)
    unlearned = _unlearned(table, fitted, learned)
    examples: dict[str, list[Example]] = {part: [] for part in PARTS}
    steps = dict.fromkeys(PARTS, 0)
    for piece, cut in zip(pieces, cuts, strict=True):
        whole = example_of(piece, fitted, table)
        spans = {TRAINING: (0, cut.validation), VALIDATION: (cut.validation, cut.test), TEST: (cut.test, len(piece))}
        for part, (start, end) in spans.items():
            if end > start:
                examples[part].append(_span(whole, start, end, layout.task))
                steps[part] += end - start
    members = {part: names if examples[part] else [] for part in PARTS}
    chosen = {part: how if examples[part] else f"none: {TOO_SHORT}" for part, how in BY_TIME.items()}
    if layout.task == FORECAST:
        _without_unanswered(examples, members, chosen)
    return Examples(
        fitted,
        examples,
        members,
        chosen,
        {},
        steps,
        unused=_unused(table, layout),
        unlearned=tuple(sorted(unlearned)),
    )


def _span(whole: Example, start: int, end: int, task: str) -> Example:
    """Some steps of a sequence; of a forecast with what came before them, whose answers are hidden."""
    inputs, targets = whole
    if task != FORECAST:
        return inputs[start:end], targets[start:end]
    begin = max(0, start - CONTEXT)
    hidden = targets[begin:end].clone()
    answers(hidden)[: start - begin] = torch.nan
    return inputs[begin:end], hidden


def answers(targets: Tensor) -> Tensor:
    """Of the targets [.., T, 2 * D] of a forecast the values to forecast [.., T, D]; NaN where none counts."""
    return targets[..., : targets.shape[-1] // 2]


def last_known(targets: Tensor) -> Tensor:
    """Of the targets [.., T, 2 * D] of a forecast the last value known at each step [.., T, D]; never NaN."""
    return targets[..., targets.shape[-1] // 2 :]


def example_of(piece: RowChunk, layout: Layout, table: Table) -> Example:
    """One sequence: inputs [T, F] and, by the task, a class, tags [T], values [T, 2 * D] or the ids of a text [U]."""
    inputs = torch.from_numpy(inputs_of(piece, layout, table))
    if layout.task == GENERATE:
        return (inputs,)
    target = layout.targets[0]
    if layout.task in (CLASSIFY, TAG):
        places = torch.from_numpy(target.places(piece.texts(target.name)) - 1)
        return inputs, places[0] if layout.task == CLASSIFY else places
    if layout.task == TRANSLATE:
        return inputs, torch.from_numpy(target.places(target.split(piece.texts(target.name)[0])))
    # What is not known is no answer to learn.
    values = [
        np.where(np.isnan(piece.numbers(column.name, table)), np.nan, column.standardised(piece, table))
        for column in layout.targets
    ]
    stacked = np.stack(values, 1).astype(np.float32)
    return inputs, torch.from_numpy(np.concatenate([stacked, _filled(stacked)], 1))


def _filled(values: Values) -> Values:
    """Values [T, D] in which the last known one stands for each that is missing, and the mean where none was known."""
    known = ~np.isnan(values)
    places = np.maximum.accumulate(np.where(known, np.arange(len(values))[:, None], -1), 0)
    found = np.take_along_axis(values, np.maximum(places, 0), 0)
    return np.where(places < 0, np.float32(0), found)


def inputs_of(piece: RowChunk, layout: Layout, table: Table) -> Values:
    """The inputs of one sequence: numbers first, then categories by their places; a text is its ids [T]."""
    column = layout.inputs[0]
    if column.kind == TEXT:
        ids = column.places(column.split(piece.texts(column.name)[0]))
        if not len(ids) and layout.task != GENERATE:
            _refuse_gap(piece.lines[0], column, table, "a text")
        return ids[:, None].astype(np.float32) if layout.task == CLASSIFY else ids
    numbers = [column.standardised(piece, table) for column in layout.inputs if column.kind == NUMBER]
    places = [column.places(piece.texts(column.name)) for column in layout.inputs if column.kind == CATEGORY]
    return np.stack([*numbers, *(place.astype(np.float32) for place in places)], 1)


def _kept(piece: RowChunk, layout: Layout, table: Table) -> RowChunk:
    """The columns that are needed, numbers as numbers: what is kept of a file while it is read."""
    columns = {}
    for column in (*layout.inputs, *layout.targets):
        if column.kind == NUMBER:
            columns[column.name] = piece.numbers(column.name, table)
        else:
            texts = piece.texts(column.name)
            columns[column.name] = np.array([sys.intern(text) for text in texts], object)
            if column in layout.targets and column.kind == CATEGORY:
                _check_no_gap(texts, column, piece, table)
            if column in layout.targets and layout.task == CLASSIFY:
                _check_steady(
                    texts, column.name, piece, table, "one class for each sequence", "Correct it, or say `--task tag`."
                )
    return RowChunk(columns, piece.lines)


def _check_no_gap(texts: Values, column: Column, piece: RowChunk, table: Table) -> None:
    gaps = [line for line, text in zip(piece.lines, texts, strict=True) if not text]
    if gaps:
        _refuse_gap(gaps[0], column, table, "the class, since it is the target")


def _check_steady(texts: Values, name: str, piece: RowChunk, table: Table, expected: str, fix: str) -> None:
    """The rows of a sequence agree."""
    changes = np.flatnonzero(texts[1:] != texts[:-1])
    if len(changes):
        place = int(changes[0])
        refuse(
            f"{table.place(piece.lines[place + 1])}: `{name}` changes within a sequence",
            got=f"{texts[place + 1]!r} after {texts[place]!r}",
            expected=expected,
            fix=fix,
        )


def _refuse_gap(line: int, column: Column, table: Table, expected: str) -> NoReturn:
    refuse(
        f"{table.place(line)}, column `{column.name}` is empty",
        got="nothing",
        expected=expected,
        fix="Fill it in, or remove the sequence.",
    )


def _said_part(piece: RowChunk, layout: Layout, table: Table) -> str:
    """What the split column says of a sequence, by its first row."""
    if layout.split is None:
        return TRAINING
    texts = piece.texts(layout.split)
    # Most of a series to learn from and its end to test on is what happens without such a column.
    fix = f"Correct it, or say `--ignore {layout.split}`."
    _check_steady(texts, layout.split, piece, table, "a sequence to learn from or one to test on", fix)
    text = texts[0]
    word = text.strip().lower()
    part = next((part for part, words in SPLIT_WORDS.items() if word in words), None)
    if part is None:
        refuse(
            f"{table.place(piece.lines[0])}, column `{layout.split}` is not a split",
            got=repr(text),
            expected="train, test or validation (or 0 and 1)",
            fix=f"Correct the cell, or say `--ignore {layout.split}`.",
        )
    return part


def _fitted(layout: Layout, learned: list[RowChunk], every: list[RowChunk]) -> Layout:
    """The layout with its columns' means and categories; classes may be met in the test only."""
    inputs = tuple(_fit_column(column, learned) for column in layout.inputs)
    known = {column.name: column for column in inputs if column.kind == NUMBER}
    targets = tuple(known.get(column.name) or _fit_column(column, every) for column in layout.targets)
    return dataclasses.replace(layout, inputs=inputs, targets=targets)


def check_classes(table: Table, name: str, classes: Collection[str]) -> None:
    """There is something to tell apart."""
    if len(classes) == 1:
        refuse(
            f"{table.path}, column `{name}` has one class only",
            got=f"{next(iter(classes))!r} everywhere{left_out(table)}",
            expected="two classes or more",
            fix="Give sequences of another class, or name another column with `--target`.",
        )


def left_out(table: Table) -> str:
    """What to add where it matters that some sequences have no steps."""
    if not table.empty:
        return ""
    verb = "does" if table.empty == 1 else "do"
    return f"; {plural(table.empty, 'sequence')} of length 0 {verb} not count"


def _fit_column(column: Column, pieces: list[RowChunk]) -> Column:
    values = [piece.columns[column.name] for piece in pieces]
    if column.kind == NUMBER:
        numbers = np.concatenate(values)
        known = numbers[np.isfinite(numbers)]
        mean, deviation = (float(known.mean()), float(known.std())) if len(known) else (0.0, 1.0)
        return dataclasses.replace(column, mean=mean, deviation=deviation or 1.0)
    texts = {text for part in values for text in part}
    if column.kind == TEXT:
        texts = {token for text in texts for token in column.split(text)}
    return dataclasses.replace(column, categories=tuple(sorted(texts - {""}, key=_natural)))


def _natural(text: str) -> tuple[bool, float, str]:
    """Numbers by size, before words by letters."""
    try:
        return False, float(text), text
    except ValueError:
        return True, 0.0, text
