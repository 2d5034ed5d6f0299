"""The five tasks: the model of each, how it is measured, and which figure to quote."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from torch import nn

from throughtime.cli.tables import Layout
from throughtime.cli.tables._infer_roles import CLASSIFY, FORECAST, GENERATE, TAG, TRANSLATE
from throughtime.cli.tasks._language_model import Generator, measure_text
from throughtime.cli.tasks._models import Classifier, Forecaster, Shape, Tagger, measure_classes, measure_forecast
from throughtime.cli.tasks._translator import Translator, measure_translation


class Task(NamedTuple):
    """A kind of work: `metric` is the figure to quote, `baseline` a metric that is drawn beside it by epoch."""

    model: Callable[[Layout, Shape], nn.Module]
    measure: Callable[..., Any]
    metric: str
    higher_is_better: bool = True
    rates: tuple[str, ...] = ("accuracy",)
    baseline: str | None = None


TASKS = {
    CLASSIFY: Task(Classifier, measure_classes, "accuracy"),
    TAG: Task(Tagger, measure_classes, "accuracy"),
    FORECAST: Task(Forecaster, measure_forecast, "error", higher_is_better=False, baseline="persistence"),
    GENERATE: Task(Generator, measure_text, "bits", higher_is_better=False),
    TRANSLATE: Task(Translator, measure_translation, "accuracy"),
}


def make_model(layout: Layout, shape: Shape) -> nn.Module:
    """A new model of the task, with weights at random."""
    return TASKS[layout.task].model(layout, shape)


def weights_in(model: nn.Module) -> int:
    """How many numbers a model learns."""
    return sum(parameter.numel() for parameter in model.parameters())
