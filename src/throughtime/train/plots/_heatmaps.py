"""Maps of numbers: confusions, states through time, attention."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from throughtime._text import plural
from throughtime.train.plots._style import INK, RED, SOFT, calm, curve, names_on, new_figure
from throughtime.train.report._downsample import confusions
from throughtime.train.report._report import attention_weights, check_labels, checked_layer

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def confusion(matrix: Any, names: Sequence[str]) -> Figure:
    """Counts [C, C] of what is (rows) and what was said (columns); shades are shares of a row.

    Of more classes than a picture can show, those most often confused are shown.

    >>> import throughtime as tt
    >>> figure = tt.train.plots.confusion([[5, 1], [0, 4]], ["a", "b"])
    >>> [text.get_text() for text in figure.axes[0].texts]
    ['5', '1', '4']
    """
    shown = confusions(matrix, names)
    counts, names = shown.matrix, shown.names
    shares = counts / np.maximum(1, shown.totals[:, None])
    figure = new_figure(1.6 + 0.45 * len(names), 1.2 + 0.45 * len(names))
    axes = figure.add_subplot()
    axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    for row, column in np.argwhere(counts):
        color = "white" if shares[row, column] > 0.55 else INK
        axes.text(column, row, str(counts[row, column]), ha="center", va="center", color=color, fontsize="small")
    part = f": {len(names)} of {shown.classes:,} classes" if shown.classes > len(names) else ""
    calm(axes, f"which is taken for which{part}", "said", "is")
    axes.grid(visible=False)
    names_on(axes, "x", names)
    names_on(axes, "y", names)
    return figure


def through_time(states: Any, gradients: Any = None, *, labels: Sequence[str] | None = None) -> Figure:
    """The states [T, H] of one sequence as `tt.train.through_time` gives them, units ordered by where they end.

    Below, if given, the norm of the gradient [T] that reaches each step. `labels` name the steps.

    >>> import torch, throughtime as tt
    >>> cell = tt.GRUCell(4, input_size=3)
    >>> inside = tt.train.through_time(cell, torch.randn(1, 6, 3), None, lambda outputs, state: state.sum())
    >>> figure = tt.train.plots.through_time(inside.states[0], inside.gradients[0])
    >>> [axes.get_title(loc="left") for axes in (figure.axes[0], figure.axes[-1])]
    ['hidden state, 4 units', 'norm of the gradient that reaches each step']
    """
    values, norms = checked_layer(states, gradients)
    check_labels(labels, {"states": len(values)})
    both = norms is not None
    figure = new_figure(8, 5 if both else 3.2)
    grid = figure.add_gridspec(2 if both else 1, 1, height_ratios=(3, 2) if both else None)
    upper = figure.add_subplot(grid[0])
    limit = float(np.abs(values[np.isfinite(values)]).max(initial=0.0)) or 1.0
    ordered = values[:, np.argsort(values[-1], kind="stable")].T
    extent = (0.5, len(values) + 0.5, -0.5, len(ordered) - 0.5)
    look: dict[str, Any] = {"cmap": "RdBu_r", "vmin": -limit, "vmax": limit, "interpolation": "nearest"}
    image = upper.imshow(ordered, aspect="auto", origin="lower", extent=extent, **look)
    calm(upper, f"hidden state, {plural(values.shape[1], 'unit')}", "" if both else "step", "unit", whole="x")
    upper.grid(visible=False)
    upper.set_yticks([])
    bar = figure.colorbar(image, ax=upper, aspect=30)
    bar.outline.set_visible(False)
    bar.ax.tick_params(colors=SOFT, labelsize="small")
    lowest = upper
    if norms is not None:
        lowest = figure.add_subplot(grid[1], sharex=upper)
        _draw_norms(lowest, norms)
        upper.tick_params(labelbottom=False)
    if labels is not None:
        names_on(lowest, "x", labels, start=1)
    return figure


def _draw_norms(axes: Axes, norms: np.ndarray[Any, Any]) -> None:
    steps, gone = np.arange(1, len(norms) + 1), norms == 0
    curve(axes, steps, np.where(norms > 0, norms, np.nan), RED, "gradient norm")
    axes.set_yscale("log")
    rings = "; a ring: 0" if gone.any() else ""
    calm(axes, f"norm of the gradient that reaches each step{rings}", "step")
    # Zero has no place on a scale of powers: it is at the lower edge.
    edge: dict[str, Any] = {"transform": axes.get_xaxis_transform(), "clip_on": False, "zorder": 3}
    axes.plot(steps[gone], np.zeros(gone.sum()), "o", color=RED, markerfacecolor="white", markersize=4, **edge)


def attention(weights: Any, source: Sequence[str], target: Sequence[str]) -> Figure:
    """Attention weights [U, T]: how much each of `target` looked at each of `source`.

    >>> import throughtime as tt
    >>> figure = tt.train.plots.attention([[0.9, 0.1], [0.2, 0.8]], ["h", "i"], ["HH", "AY"])
    >>> [label.get_text() for label in figure.axes[0].get_yticklabels()]
    ['HH', 'AY']
    """
    values = attention_weights(weights, source, target)
    figure = new_figure(1.5 + 0.36 * len(source), 1.1 + 0.32 * len(target))
    axes = figure.add_subplot()
    axes.imshow(values, cmap="Blues", vmin=0, vmax=1, aspect="auto")
    calm(axes, "where it looks", "read", "written")
    axes.grid(visible=False)
    names_on(axes, "x", source)
    names_on(axes, "y", target)
    return figure
