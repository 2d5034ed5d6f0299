"""Plain baselines: what is reached without a model, on the same answers that the model is measured on."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from throughtime._text import plural
from throughtime.cli.tables._infer_roles import CLASSIFY, FORECAST, GENERATE, TAG
from throughtime.cli.tasks._examples import Example, Examples, answers, last_known
from throughtime.cli.tasks._parts import TRAINING

# The longest season that is looked for, and the steps of the training part that are looked at for it.
LONGEST_SEASON = 512
STEPS_LOOKED_AT = 200_000


class Baseline(NamedTuple):
    """A rule that needs no model; `value` is its figure, of the metric that is quoted, and `says` what it does."""

    name: str
    value: float
    says: str


def baseline_of(examples: Examples, horizon: int, streams: Tensor | None = None) -> Baseline:
    """The best plain rule, measured on the part that the figure to quote is measured on.

    Everything that a rule knows, it knows from the training part. `streams` are the characters to guess, where the
    task is to write.
    """
    task, part = examples.layout.task, examples.measured_on
    if task == FORECAST:
        return _naive(examples.train, examples.parts[part], horizon)
    if task == GENERATE:
        assert streams is not None
        return _unigram(examples.text[TRAINING], streams, len(examples.layout.inputs[0].categories) + 2)
    if task in (CLASSIFY, TAG):
        names = examples.layout.targets[0].categories
        learned, asked = (_classes(examples.parts[name]) for name in (TRAINING, part))
        label = learned.most_common(1)[0][0]
        return Baseline("majority", asked[label] / asked.total(), f"always saying `{names[label]}`")
    read, written = (_tokens(examples.parts[name]) for name in (TRAINING, part))
    token = read.most_common(1)[0][0]
    says = "always ending the text" if token is None else _token(examples, token)
    return Baseline("most frequent token", written[token] / written.total(), says)


def _classes(examples: Sequence[Example]) -> Counter[int]:
    """How often each class is the answer: of a sequence, or of a step."""
    return Counter(place for _, target in examples for place in target.reshape(-1).tolist())


def _tokens(examples: Sequence[Example]) -> Counter[int | None]:
    """How often each token is the answer; None is the end of a text."""
    found: Counter[int | None] = Counter(place for _, target in examples for place in target.tolist())
    found[None] = len(examples)
    return found


def _token(examples: Examples, place: int) -> str:
    return f"always writing `{examples.layout.targets[0].categories[place - 1]}`"


def _unigram(learned: Tensor, asked: Tensor, size: int) -> Baseline:
    """Bits a character by the frequency of each alone; one is added to each, so that none is impossible."""
    counts = torch.bincount(learned, minlength=size).double() + 1
    bits = -torch.log2(counts / counts.sum())
    return Baseline("unigram", float(bits[asked.reshape(-1)].mean()), "the frequency of each character alone")


def _naive(learned: Sequence[Example], asked: Sequence[Example], horizon: int) -> Baseline:
    """The last value, or that of a season ago where the training part has a season: the better one."""
    rules = [Baseline("last value", naive_error(asked, horizon, 1), "saying that nothing changes")]
    season = season_of(learned, horizon)
    if season is not None:
        says = f"repeating the values of {plural(season, 'step')} before"
        rules.append(Baseline(f"seasonal naive, period {season}", naive_error(asked, horizon, season), says))
    return min(rules, key=lambda rule: rule.value)


def naive_error(examples: Sequence[Example], horizon: int, season: int) -> float:
    """The mean absolute error of repeating the last season; a season of 1 repeats the last value.

    Where a sequence has not been read for a whole season, its last value is repeated.
    """
    total, count = 0.0, 0
    ahead = torch.arange(1, horizon + 1)
    for _, targets in examples:
        wanted, known = answers(targets), last_known(targets)
        now = torch.arange(len(wanted)).unsqueeze(1)
        # The newest step of the season before that is at the same place in the season.
        source = now + ahead - season * ((ahead + season - 1) // season)
        source = torch.where(source < 0, now, source)
        future = now + ahead
        inside = future < len(wanted)
        errors = (known[source[inside]] - wanted[future[inside]]).abs()
        counts = errors.isfinite()
        total, count = total + float(errors[counts].double().sum()), count + int(counts.sum())
    return total / count if count else math.nan


def season_of(examples: Sequence[Example], horizon: int) -> int | None:
    """The season whose repetition is best on the training part, if it is better there than the last value."""
    longest = max(len(targets) for _, targets in examples)
    errors = _errors_by_lag(examples, min(LONGEST_SEASON, longest // 2))
    best: tuple[float, int] | None = None
    for season in range(1, len(errors) + 1):
        lags = [season * math.ceil(ahead / season) for ahead in range(1, horizon + 1)]
        if lags[-1] > len(errors):
            continue
        score = sum(errors[lag - 1] for lag in lags) / horizon
        if best is None or score < best[0]:
            best = score, season
    return None if best is None or best[1] == 1 else best[1]


def _errors_by_lag(examples: Sequence[Example], longest: int) -> list[float]:
    """The mean absolute difference of values 1, 2, ... steps apart."""
    totals, counts = torch.zeros(longest, dtype=torch.float64), torch.zeros(longest, dtype=torch.float64)
    steps = 0
    for _, targets in examples:
        if steps >= STEPS_LOOKED_AT:
            break
        values = last_known(targets)[:STEPS_LOOKED_AT]
        steps += len(values)
        for lag in range(1, min(longest, len(values) - 1) + 1):
            apart = (values[lag:] - values[:-lag]).abs()
            totals[lag - 1] += float(apart.double().sum())
            counts[lag - 1] += apart.numel()
    return [float(total / count) if count else math.inf for total, count in zip(totals, counts, strict=True)]
