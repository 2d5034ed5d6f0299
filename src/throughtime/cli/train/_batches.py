"""Examples as batches: by length, in windows, or as streams of text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from torch import Tensor, nn

import throughtime as tt
from throughtime._text import plural
from throughtime.cli._user_errors import refuse
from throughtime.cli.tables._infer_roles import FORECAST, GENERATE, TRANSLATE
from throughtime.cli.tasks._defaults import Recipe
from throughtime.cli.tasks._examples import Example, Examples
from throughtime.cli.tasks._parts import PARTS, TEST, TRAINING, VALIDATION
from throughtime.train._distributed import this_worker
from throughtime.train.data._batches import share_of, side_by_side

# A long series is learned in overlapping windows: many short ways back instead of one that never ends.
WINDOW = 256
STREAMS = 32
# Characters in all, and those of the training part.
LEAST_TEXT, LEAST_LEARNED = 1_000, 800
# Texts to translate come in widths that are multiples of this.
WIDTHS = 8


class Batches(NamedTuple):
    """What `tt.train.fit` takes, and how many steps of the optimiser an epoch has."""

    train: Any
    validation: Any
    test: Any
    steps: int


def windows_of(examples: Examples) -> list[Example]:
    """The examples to learn from; long series cut into windows that overlap by half."""
    if examples.layout.task != FORECAST:
        return examples.train
    cut: list[Example] = []
    for inputs, targets in examples.train:
        starts = range(0, max(1, len(inputs) - WINDOW // 2), WINDOW // 2)
        cut += [(inputs[start : start + WINDOW], targets[start : start + WINDOW]) for start in starts]
    return cut


def batches_of(examples: Examples, learned: list[Example], recipe: Recipe, seed: int) -> Batches:
    """Batches of each part; of the training part those of `learned`."""
    if examples.layout.task == GENERATE:
        return _streams(examples, recipe)
    make = _of_few_widths if examples.layout.task == TRANSLATE else tt.train.pad
    train = tt.train.loader(learned, recipe.batch_size, seed=seed, collate_fn=make)
    validation, test = (
        tt.train.loader(examples.parts[part], 256, shuffle=False, collate_fn=make) if examples.has(part) else None
        for part in (VALIDATION, TEST)
    )
    return Batches(train, validation, test, len(train))


def batches_to_quote(examples: Examples, batches: Batches) -> Any:
    """Those of the part that the figure to quote is measured on: whole sequences, each of them once."""
    if examples.measured_on != TRAINING:
        return batches.test if examples.measured_on == TEST else batches.validation
    make = _of_few_widths if examples.layout.task == TRANSLATE else tt.train.pad
    return tt.train.loader(examples.train, 256, shuffle=False, collate_fn=make)


def _of_few_widths(examples: Sequence[Any]) -> tt.train.Batch:
    """A batch whose width is one of few: what looks back at a text is compiled for each width."""
    batch = tt.train.pad(examples)
    return batch._replace(inputs=nn.functional.pad(batch.inputs, (0, -batch.inputs.shape[1] % WIDTHS)))


def streams_to_measure(text: Tensor) -> tt.train.Batch:
    """A text of the validation or test part as streams side by side."""
    return side_by_side(text, max(1, min(STREAMS, len(text) // 200)))


def _streams(examples: Examples, recipe: Recipe) -> Batches:
    learned = examples.text[TRAINING]
    # What the user has: without the ends of texts, and with what is held out.
    given = sum(len(ids) for part in PARTS for (ids,) in examples.parts[part])
    if given < LEAST_TEXT or len(learned) < LEAST_LEARNED:
        part = f", {len(learned):,} of them to learn from" if given >= LEAST_TEXT else ""
        refuse(
            "the text is too short to learn from",
            got=plural(given, "character") + part,
            expected=f"at least {LEAST_TEXT:,}, and better a million",
            fix="Give more text.",
        )
    rows = max(1, min(recipe.batch_size, len(learned) // (4 * (recipe.truncate or 64))))
    # Of a short text there may be fewer streams than workers, and each stream counts once all the same.
    worker = this_worker()
    train = share_of(side_by_side(learned, rows), worker)
    validation, test = (
        [share_of(streams_to_measure(examples.text[part]), worker)] if examples.has(part) else None
        for part in (VALIDATION, TEST)
    )
    return Batches([train], validation, test, -(-train.inputs.shape[1] // (recipe.truncate or 64)))
