"""Curves and bars: how learning went, what comes next, how long sequences are, what it cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from throughtime._text import plural
from throughtime.train._history import History
from throughtime.train.plots._style import BLUE, GREEN, RED, SOFT, VIOLET, calm, curve, legend, new_figure
from throughtime.train.report._downsample import Times, histogram, share, usual_times, whole_lengths
from throughtime.train.report._report import checked_forecast

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def learning(history: History) -> Figure:
    """Loss and metrics by epoch, while training and of the validation.

    >>> import throughtime as tt
    >>> history = tt.train.History()
    >>> history.epochs.append(tt.train.Epoch(1, 9, {"loss": 1.2}, {"loss": 1.4}, 0.01, 0.3, True))
    >>> len(tt.train.plots.learning(history).axes)
    1
    """
    names = list(dict.fromkeys(name for epoch in history.epochs for name in (*epoch.train, *epoch.valid)))
    figure = new_figure(4.4 * max(1, len(names)), 3.2)
    numbers = [epoch.number for epoch in history.epochs]
    for place, name in enumerate(names, 1):
        axes = figure.add_subplot(1, len(names), place)
        for part, color, metrics in (
            ("training", BLUE, [epoch.train for epoch in history.epochs]),
            ("validation", RED, [epoch.valid for epoch in history.epochs]),
        ):
            if any(name in values for values in metrics):
                curve(axes, numbers, [values.get(name, np.nan) for values in metrics], color, part)
        calm(axes, name.replace("_", " "), "epoch", whole="x")
        legend(axes)
    return figure


def forecast(known: Any, came: Any, forecast: Any, *, name: str = "value") -> Figure:
    """Values known [T], what came after them [H] and what was forecast [H].

    >>> import throughtime as tt
    >>> figure = tt.train.plots.forecast([1.0, 2.0, 3.0], [4.0, 5.0], [3.9, 5.2])
    >>> [line.get_label() for line in figure.axes[0].get_lines()][:3]
    ['known', 'what came', 'forecast']
    """
    figure = new_figure(8, 3)
    axes = figure.add_subplot()
    known, came, forecast = checked_forecast({name: (known, came, forecast)})[name]
    past, future = np.arange(1, len(known) + 1), np.arange(len(known) + 1, len(known) + len(came) + 1)
    curve(axes, past, known, BLUE, "known")
    curve(axes, future, came, BLUE, "what came", dashed=True)
    curve(axes, future, forecast, RED, "forecast")
    calm(axes, name, "step", whole="x")
    legend(axes)
    axes.axvline(len(known), color=SOFT, linewidth=0.8, linestyle=":")
    return figure


def lengths(lengths: Any, *, padding: float | None = None) -> Figure:
    """How long sequences are; `padding` is the share of padding in batches of them.

    >>> import throughtime as tt
    >>> tt.train.plots.lengths([3, 3, 7], padding=0.05).axes[0].get_title(loc="left")
    '3 sequences, 13 steps, 5.0 % padding'
    """
    figure = new_figure(5, 3)
    axes = figure.add_subplot()
    whole, padding = whole_lengths(lengths), share("padding", padding)
    edges, counts = histogram(whole)
    # A bar of whole numbers begins half a step before the first of them: one of a single length stands above it.
    axes.bar(np.array(edges[:-1]) - 0.5, counts, width=np.diff(edges) * 0.92, align="edge", color=BLUE, alpha=0.85)
    spare = "" if padding is None else f", {100 * padding:.1f} % padding"
    title = f"{plural(len(whole), 'sequence')}, {plural(int(whole.sum()), 'step')}{spare}"
    calm(axes, title, "steps", "sequences", whole="both")
    if len(counts) == 1:
        axes.set_xticks(edges[:1])
    return figure


def cost(history: History) -> Figure:
    """Time, gradient norm, memory and learning rate, training step by training step.

    Steps that took far longer than others, as the first does that compiles kernels, are told and not drawn.

    >>> import throughtime as tt
    >>> history = tt.train.History()
    >>> history.steps.append(tt.train.Step(1, 1, {"loss": 1.2}, 0.7, 0.01, 32, 300, 320, 0.02, 10**8))
    >>> len(tt.train.plots.cost(history).axes)
    4
    """
    figure = new_figure(9, 5)
    numbers = np.array([step.number for step in history.steps])
    times = usual_times([step.seconds for step in history.steps])
    parts: list[tuple[str, str, list[float], str]] = [
        (f"time of a step{_apart(times)}", "ms", [1000 * step.seconds for step in history.steps], BLUE),
        ("norm of the gradient", "", [step.gradient_norm for step in history.steps], RED),
        ("memory, at most so far", "MiB", [step.memory / 2**20 for step in history.steps], GREEN),
        ("learning rate", "", [step.learning_rate for step in history.steps], VIOLET),
    ]
    for place, (title, unit, values, color) in enumerate(parts, 1):
        axes = figure.add_subplot(2, 2, place)
        shown = times.usual if color == BLUE else slice(None)
        curve(axes, numbers[shown], np.array(values)[shown], color, title)
        calm(axes, title, "training step", unit, whole="x")
        if color == RED and min(values, default=0) > 0:
            axes.set_yscale("log")
    return figure


def _apart(times: Times) -> str:
    """What is not drawn, in a few words."""
    if not times.slow:
        return ""
    longest = f"{1000 * times.longest:,.0f} ms"
    if times.slow == 1 and times.first:
        return f", without the first: {longest}"
    return f", without {times.slow:,} of up to {longest}"
