"""From a table to examples: sequences read, columns fitted on those to learn from, everything turned into numbers."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Collection, Iterator
from typing import NamedTuple, NoReturn

import numpy as np
import torch
from torch import Tensor

from throughtime._words import counted
from throughtime.cli._mistakes import refuse
from throughtime.cli.tables import Column, Layout, Piece, Rows, Table, rows_of
from throughtime.cli.tables._guess import CLASSIFY, FORECAST, GENERATE, TAG, TRANSLATE
from throughtime.cli.tables._layout import CATEGORY, NUMBER, TEXT
from throughtime.cli.tables._rows import cut_piece, sorted_rows
from throughtime.cli.tables._table import Values

HELD_OUT = 0.1
LEARN_WORDS = {"train", "training", "0", "false", "no", ""}
TEST_WORDS = {"test", "testing", "valid", "validation", "val", "dev", "1", "true", "yes", "held out", "held_out"}
# Fewer sequences than this are held out by time, not one by one.
FEW = 20
# Steps that are read before the held-out end of a long sequence.
CONTEXT = 512

# Inputs, and a target where the task has one.
Example = tuple[Tensor, ...]


class Examples(NamedTuple):
    """What a model learns from and what it is tested on.

    `names` are those of the held-out sequences, `unused` the columns of the table that have no part in it. Classes that
    are `unlearned` are met among the held out only.
    """

    layout: Layout
    train: list[Example]
    held_out: list[Example]
    names: list[str]
    by_time: bool = False
    unused: tuple[str, ...] = ()
    unlearned: tuple[str, ...] = ()


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
    pieces: list[Piece] = []
    tested: list[bool] = []
    for rows in sequences(table, layout, together=together):
        if len(rows):
            names.append(rows.name)
            pieces.append(_kept(rows.piece, layout, table))
            tested.append(_is_tested(rows.piece, layout, table))
    if layout.split is None and layout.task == FORECAST and len(pieces) < FEW:
        return _held_out_by_time(table, layout, names, pieces)
    if layout.split is None and len(pieces) > 1:
        chosen = np.random.default_rng(seed).permutation(len(pieces))[: max(1, round(HELD_OUT * len(pieces)))]
        tested = np.isin(np.arange(len(pieces)), chosen).tolist()
    learned = [piece for piece, test in zip(pieces, tested, strict=True) if not test]
    if not learned:
        refuse(
            f"{table.path} has nothing to learn from",
            got=f"`{layout.split}` says test everywhere",
            expected="sequences of both kinds",
            fix=f"Correct the column, or say `--ignore {layout.split}` to hold out a tenth.",
        )
    fitted = _fitted(layout, learned, pieces)
    unlearned: tuple[str, ...] = ()
    if layout.task in (CLASSIFY, TAG):
        target = fitted.targets[0]
        check_classes(table, target.name, target.categories)
        unlearned = tuple(set(target.categories).difference(_fit_column(target, learned).categories))
    parts: dict[bool, list[Example]] = {False: [], True: []}
    for piece, test in zip(pieces, tested, strict=True):
        parts[test].append(example_of(piece, fitted, table))
    kept = [name for name, test in zip(names, tested, strict=True) if test]
    return Examples(
        fitted, parts[False], parts[True], kept, unused=_unused(table, layout), unlearned=tuple(sorted(unlearned))
    )


def _unused(table: Table, layout: Layout) -> tuple[str, ...]:
    """Columns that were left out, by the user or by the guess."""
    used = {column.name for column in (*layout.inputs, *layout.targets)} | {layout.sequence, layout.order, layout.split}
    return tuple(name for name in table.columns if name not in used)


def _held_out_by_time(table: Table, layout: Layout, names: list[str], pieces: list[Piece]) -> Examples:
    """The last tenth of each sequence is held out; what came before is read there too, but does not count."""
    cuts = [len(piece) - max(2, round(HELD_OUT * len(piece))) for piece in pieces]
    if min(cuts) < 2:
        refuse(
            f"{table.path} is too short to forecast",
            got=f"a sequence of {counted(min(map(len, pieces)), 'step')}",
            expected="at least 4, and better hundreds",
            fix="Give longer sequences.",
        )
    fitted = _fitted(layout, [cut_piece(piece, 0, cut) for piece, cut in zip(pieces, cuts, strict=True)], pieces)
    train: list[Example] = []
    held_out: list[Example] = []
    for piece, cut in zip(pieces, cuts, strict=True):
        inputs, targets = example_of(piece, fitted, table)
        train.append((inputs[:cut], targets[:cut]))
        start = max(0, cut - CONTEXT)
        hidden = targets[start:].clone()
        hidden[: cut - start] = torch.nan
        held_out.append((inputs[start:], hidden))
    return Examples(fitted, train, held_out, names, by_time=True, unused=_unused(table, layout))


def example_of(piece: Piece, layout: Layout, table: Table) -> Example:
    """One sequence: inputs [T, F] and, by the task, a class, tags [T], values [T, D] or the ids of a text [U]."""
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
    return inputs, torch.from_numpy(np.stack(values, 1).astype(np.float32))


def inputs_of(piece: Piece, layout: Layout, table: Table) -> Values:
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


def _kept(piece: Piece, layout: Layout, table: Table) -> Piece:
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
    return Piece(columns, piece.lines)


def _check_no_gap(texts: Values, column: Column, piece: Piece, table: Table) -> None:
    gaps = [line for line, text in zip(piece.lines, texts, strict=True) if not text]
    if gaps:
        _refuse_gap(gaps[0], column, table, "the class, since it is the target")


def _check_steady(texts: Values, name: str, piece: Piece, table: Table, expected: str, fix: str) -> None:
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


def _is_tested(piece: Piece, layout: Layout, table: Table) -> bool:
    """What the split column says of a sequence, by its first row."""
    if layout.split is None:
        return False
    texts = piece.texts(layout.split)
    # Most of a series to learn from and its end to test on is what happens without such a column.
    fix = f"Correct it, or say `--ignore {layout.split}`."
    _check_steady(texts, layout.split, piece, table, "a sequence to learn from or one to test on", fix)
    text = texts[0]
    word = text.strip().lower()
    if word not in LEARN_WORDS | TEST_WORDS:
        refuse(
            f"{table.place(piece.lines[0])}, column `{layout.split}` is not a split",
            got=repr(text),
            expected="train, test or validation (or 0 and 1)",
            fix=f"Correct the cell, or say `--ignore {layout.split}`.",
        )
    return word in TEST_WORDS


def _fitted(layout: Layout, learned: list[Piece], every: list[Piece]) -> Layout:
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
    return f"; {counted(table.empty, 'sequence')} of length 0 {verb} not count"


def _fit_column(column: Column, pieces: list[Piece]) -> Column:
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
