"""One look for all pictures. matplotlib is imported when the first is drawn: most programs draw none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, SOFT, GRID = "#26292c", "#6a7075", "#efece4"
BLUE, RED, GREEN, VIOLET = "#2a6f97", "#d1664a", "#5d8a66", "#8d6ba8"
# What fits: names along an axis, and inches of a figure.
NAMES, WIDEST = 80, 24.0


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of a size that can be drawn; it belongs to the caller, not to pyplot."""
    from matplotlib.figure import Figure  # noqa: PLC0415

    return Figure(figsize=(min(width, WIDEST), min(height, WIDEST)), dpi=120, layout="constrained")


def names_on(axes: Axes, which: str, names: Sequence[str], *, start: int = 0) -> None:
    """Names along an axis, at most `NAMES` of them, as they are written."""
    stride = -(-len(names) // NAMES) or 1
    places = range(start, start + len(names), stride)
    set_ticks = axes.set_xticks if which == "x" else axes.set_yticks
    shown = [str(name) for name in names[::stride]]
    # Words side by side would lie upon each other.
    aslant: dict[str, Any] = {"rotation": 45, "ha": "right", "rotation_mode": "anchor"}
    set_ticks(
        places, shown, parse_math=False, **(aslant if which == "x" and max(map(len, shown), default=0) > 3 else {})
    )


def calm(axes: Axes, title: str, x: str = "", y: str = "") -> None:
    """Few lines, soft colours, the title on the left."""
    # A name may have dollars in it, and is no formula.
    axes.set_title(title, loc="left", color=INK, fontsize="medium", parse_math=False)
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
