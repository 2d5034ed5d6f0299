"""The three parts of the data: training, validation (which chooses the epoch) and test (which is measured once)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

TRAINING, VALIDATION, TEST = PARTS = ("training", "validation", "test")
SHARE = 0.1
# Of fewer sequences to learn from, none is taken for validation: each is needed.
FEWEST = 10
# A sequence shorter than this has no tenth to spare.
FEWEST_STEPS = 20

BY_TIME = {TEST: "the last tenth of each sequence", VALIDATION: "the tenth before the last of each sequence"}
OF_THE_TEXT = {TEST: "the last tenth of the text", VALIDATION: "the last tenth of the text to learn from"}
BY_SEED = {TEST: "a tenth of the sequences, by the seed", VALIDATION: "a tenth of the sequences, by the seed"}
TOO_FEW = f"there are fewer than {FEWEST} sequences to learn from"
TOO_SHORT = f"a sequence has fewer than {FEWEST_STEPS} steps"


class Division(NamedTuple):
    """The part of each sequence, and for each part how it was chosen or why there is none."""

    parts: list[str]
    chosen: dict[str, str]


class Cuts(NamedTuple):
    """Where the parts of one sequence begin: training at 0, then validation, then test."""

    validation: int
    test: int


def divide(said: Sequence[str] | None, count: int, seed: int) -> Division:
    """A part for each of `count` sequences: as a column of the table has said, or at random.

    Without a column a tenth is tested. Unless the column names a validation part, a tenth of what is left is taken for
    it, where there are enough sequences.
    """
    draw = np.random.default_rng(seed)
    parts = list(said) if said is not None else [TRAINING] * count
    chosen: dict[str, str] = {}
    if said is not None:
        chosen = dict.fromkeys(set(said), "as the column says")
    elif count > 1:
        _take(parts, TEST, draw.permutation(count), max(1, round(SHARE * count)))
        chosen[TEST] = BY_SEED[TEST]
    learned = np.flatnonzero(np.array(parts) == TRAINING)
    if VALIDATION not in parts and len(learned) >= FEWEST:
        _take(parts, VALIDATION, draw.permutation(learned), max(1, round(SHARE * len(learned))))
        chosen[VALIDATION] = "a tenth of the sequences to learn from, by the seed" if said else BY_SEED[VALIDATION]
    chosen.setdefault(VALIDATION, f"none: {TOO_FEW}")
    chosen.setdefault(TEST, "none: the column names no test part" if said is not None else "none: one sequence")
    return Division(parts, chosen)


def _take(parts: list[str], part: str, places: np.ndarray[tuple[int], np.dtype[np.int64]], count: int) -> None:
    for place in places[:count]:
        parts[place] = part


def cuts_of(lengths: Sequence[int]) -> list[Cuts]:
    """Where to cut each sequence by time; without a validation part if one of them is too short to have one."""
    tails = [max(2, round(SHARE * length)) for length in lengths]
    spare = min(lengths) >= FEWEST_STEPS
    return [
        Cuts(length - 2 * tail if spare else length - tail, length - tail)
        for length, tail in zip(lengths, tails, strict=True)
    ]
