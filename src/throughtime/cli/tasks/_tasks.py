"""The five tasks: the model of each, how it is measured, and which figure to quote."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from torch import nn

from throughtime.cli.tables import Layout
from throughtime.cli.tables._guess import CLASSIFY, FORECAST, GENERATE, TAG, TRANSLATE
from throughtime.cli.tasks._generator import Generator, measure_text
from throughtime.cli.tasks._readers import (
    Classifier,
    Forecaster,
    Shape,
    Tagger,
    measure_classes,
    measure_forecast,
)
from throughtime.cli.tasks._translator import Translator, measure_translation


class Task(NamedTuple):
    """A kind of work: `metric` is the figure to quote, `baseline` one to compare it with, `say` a sentence of them."""

    model: Callable[[Layout, Shape], nn.Module]
    measure: Callable[..., Any]
    metric: str
    say: Callable[[dict[str, float], str], str]
    rates: tuple[str, ...] = ("accuracy",)
    baseline: str | None = None


def _say_classes(values: dict[str, float], over: str) -> str:
    return f"**{values['accuracy']:.1%}** of {over} recognised."


def _say_tags(values: dict[str, float], over: str) -> str:
    return f"**{values['accuracy']:.1%}** of the steps of {over} tagged right."


def _say_forecast(values: dict[str, float], over: str) -> str:
    still = values["persistence"]
    gain = 1 - values["error"] / still if still else 0.0
    if gain < 0:
        return f"**{-gain:.1%}** further from what came than saying that nothing changes, over {over}."
    return f"**{gain:.1%}** closer to what came than saying that nothing changes, over {over}."


def _say_text(values: dict[str, float], _: str) -> str:
    return f"**{values['bits']:.2f} bits** a character of held-out text, {values['accuracy']:.1%} of them guessed."


def _say_translation(values: dict[str, float], over: str) -> str:
    return f"**{values['accuracy']:.1%}** of the tokens of {over} right, given those before."


TASKS = {
    CLASSIFY: Task(Classifier, measure_classes, "accuracy", _say_classes),
    TAG: Task(Tagger, measure_classes, "accuracy", _say_tags),
    FORECAST: Task(Forecaster, measure_forecast, "error", _say_forecast, baseline="persistence"),
    GENERATE: Task(Generator, measure_text, "bits", _say_text),
    TRANSLATE: Task(Translator, measure_translation, "accuracy", _say_translation),
}


def make_model(layout: Layout, shape: Shape) -> nn.Module:
    """A new model of the task, with weights at random."""
    return TASKS[layout.task].model(layout, shape)


def weights_in(model: nn.Module) -> int:
    """How many numbers a model learns."""
    return sum(parameter.numel() for parameter in model.parameters())
