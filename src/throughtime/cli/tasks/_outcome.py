"""What a run has come to, in one sentence: the figure, what it was measured on, and what a plain baseline reaches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from throughtime._text import plural
from throughtime.cli.tables._infer_roles import CLASSIFY, FORECAST, GENERATE, TAG, TRANSLATE
from throughtime.cli.tasks._baselines import Baseline
from throughtime.cli.tasks._examples import Examples
from throughtime.cli.tasks._parts import PARTS, TEST, TRAINING, VALIDATION
from throughtime.cli.tasks._tasks import TASKS

CAVEATS = {
    TRAINING: "Nothing was held out: the figure is of the data it learned from, and says nothing of other data.",
    VALIDATION: "The validation part has chosen the epoch, so the figure is a little too good; there is no test part.",
    TEST: "",
}


class Outcome(NamedTuple):
    """The figure to quote, measured once on a `part` of the data with the weights that were kept."""

    part: str
    sequences: int
    steps: int
    metric: str
    value: float
    baseline: Baseline
    is_better: bool
    sentence: str
    """Without its full stop; **two stars** are around the figure."""
    only_class: str | None
    """The class of every answer that was measured, if there is but one: then the figure means little."""
    caveat: str

    @property
    def means_something(self) -> bool:
        """Whether the model beats the baseline on more than one class."""
        return self.is_better and self.only_class is None

    def said(self, after: str) -> str:
        """All of it, with how long it took."""
        return " ".join(filter(None, (f"{self.sentence}, after {after}.", self.caveat)))

    def as_json(self) -> dict[str, Any]:
        """Plain values, for `run.json`."""
        return {
            "part": self.part,
            "sequences": self.sequences,
            "steps": self.steps,
            "metric": self.metric,
            "value": self.value,
            "baseline": {"name": self.baseline.name, "value": self.baseline.value},
            "better_than_baseline": self.is_better,
            "headline": self.sentence.replace("**", ""),
            "only_class": self.only_class,
            "caveat": self.caveat or None,
        }


def outcome_of(examples: Examples, values: dict[str, float], rule: Baseline) -> Outcome:
    """What metrics on the part that is quoted come to, against a plain rule."""
    kind, part = examples.layout.task, examples.measured_on
    task = TASKS[kind]
    value = values[task.metric]
    is_better = value > rule.value if task.higher_is_better else value < rule.value
    lead = "" if is_better else f"{'No better' if value == rule.value else 'Worse'} than a plain baseline: "
    only = examples.only_class(part)
    if only is not None:
        lead = f"Means little, since the {part} part has one class only: {lead}"
    sentence = lead + _SAID[kind](values, measured_over(examples, part), rule, is_better)
    caveat = " ".join(filter(None, (CAVEATS[part], "" if only is None else _one_class_caveat(examples, part, only))))
    steps = examples.steps(part)
    return Outcome(part, examples.count(part), steps, task.metric, value, rule, is_better, sentence, only, caveat)


def _one_class_caveat(examples: Examples, part: str, only: str) -> str:
    """How to go on where only one class was measured."""
    fix = (
        "say which rows belong together with `--sequence COLUMN`, or bring the rows into the order of time"
        if examples.by_time
        else "give more sequences, or say in a column `split` which of them to test on"
    )
    return f"Every answer of the {part} part is `{only}`, so always saying that is right, too: {fix}."


def measured_over(examples: Examples, part: str) -> str:
    """What a figure of a part is measured on."""
    task, steps, count = examples.layout.task, examples.steps(part), examples.count(part)
    if task == GENERATE:
        return f"{plural(steps, 'character')} of {part} text"
    if task == TRANSLATE:
        return f"the {plural(steps, 'token')} of {plural(count, f'{part} text')}"
    if examples.by_time:
        how = examples.chosen.get(part, "the beginning of each sequence").replace(
            "each", "the" if count == 1 else "each"
        )
        return f"the {plural(steps, 'step')} of the {part} part ({how})"
    sequences = plural(count, f"{part} sequence")
    return sequences if task == CLASSIFY else f"the {plural(steps, 'step')} of {sequences}"


def parts_as_json(examples: Examples) -> dict[str, Any]:
    """The three parts in plain values: how much is in each, and how it was chosen or why there is none."""
    return {
        part: {
            "sequences": examples.count(part),
            "steps": examples.steps(part),
            "chosen": examples.chosen.get(part, "the rest"),
        }
        for part in PARTS
    }


def _say_share(done: str) -> Callable[[dict[str, float], str, Baseline, bool], str]:
    """For tasks whose figure is a share of right answers."""

    def say(values: dict[str, float], over: str, rule: Baseline, is_better: bool) -> str:
        share, plain = f"**{values['accuracy']:.1%}**", f"{rule.says} is right for {rule.value:.1%}"
        return f"{share} of {over} {done}; {plain}" if is_better else f"{plain} of {over}, the model for {share}"

    return say


def _say_forecast(values: dict[str, float], over: str, rule: Baseline, is_better: bool) -> str:
    gain = 1 - values["error"] / rule.value if rule.value else 0.0
    if is_better:
        return f"**{gain:.1%}** closer to what came than {rule.says}, over {over}"
    if gain < -1:
        return f"**{1 - gain:.1f} times** as far from what came as {rule.says}, over {over}"
    if not rule.value:
        return f"{rule.says} is never wrong over {over}, the model by **{values['error']:.3g}** standard deviations"
    return f"**{-gain:.1%}** further from what came than {rule.says}, over {over}"


def _say_text(values: dict[str, float], over: str, rule: Baseline, is_better: bool) -> str:
    bits, plain = f"**{values['bits']:.2f} bits**", f"{rule.says} takes {rule.value:.2f} bits"
    if is_better:
        return f"{bits} a character of {over}, {values['accuracy']:.1%} of them guessed; {plain}"
    return f"{plain} a character of {over}, the model {bits}"


_SAID = {
    CLASSIFY: _say_share("recognised"),
    TAG: _say_share("tagged right"),
    FORECAST: _say_forecast,
    GENERATE: _say_text,
    TRANSLATE: _say_share("right, given those before"),
}
