"""One look for all pictures. matplotlib is imported when the first is drawn: most programs draw none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, SOFT, GRID = "#26292c", "#6a7075", "#efece4"
BLUE, RED, GREEN, VIOLET = "#2a6f97", "#d1664a", "#5d8a66", "#8d6ba8"


def new_figure(width: float, height: float) -> Figure:
    """An empty figure; it belongs to the caller, not to pyplot."""
    from matplotlib.figure import Figure  # noqa: PLC0415

    return Figure(figsize=(width, height), dpi=120, layout="constrained")


def calm(axes: Axes, title: str, x: str = "", y: str = "") -> None:
    """Few lines, soft colours, the title on the left."""
    axes.set_title(title, loc="left", color=INK, fontsize="medium")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color=GRID)
    axes.set_axisbelow(True)
    axes.tick_params(colors=SOFT, labelsize="small")
    axes.set(xlabel=x, ylabel=y)


def legend(axes: Axes) -> None:
    """Names of the curves, if there are several."""
    if len(axes.get_lines()) > 1:
        axes.legend(frameon=False, fontsize="small")


def curve(axes: Axes, x: Any, y: Any, color: str, name: str, *, faint: bool = False) -> None:
    """One curve; a few points are marked, so that one alone can be seen."""
    few = len(x) < 40 and not faint
    width, alpha = (0.8, 0.4) if faint else (1.8, 1.0)
    axes.plot(x, y, color=color, label=name, linewidth=width, alpha=alpha, marker="o" if few else None, markersize=3)
