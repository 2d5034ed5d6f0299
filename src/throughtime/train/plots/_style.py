"""One look for all pictures. matplotlib is imported when the first is drawn: most programs draw none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

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


def calm(axes: Axes, title: str, x: str = "", y: str = "", *, whole: Literal["x", "both"] | None = None) -> None:
    """Few lines, soft colours, the title on the left; where there is no half, as of steps, `whole` numbers."""
    # A name may have dollars in it, and is no formula.
    axes.set_title(title, loc="left", color=INK, fontsize="medium", parse_math=False)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color=GRID)
    axes.set_axisbelow(True)
    # Of a scale of powers, also what lies between them.
    axes.tick_params(which="both", colors=SOFT, labelsize="small")
    axes.set_xlabel(x, color=SOFT)
    axes.set_ylabel(y, color=SOFT)
    if whole is not None:
        axes.locator_params(whole, integer=True)


def legend(axes: Axes) -> None:
    """Names of the curves, if there are several."""
    if len(axes.get_lines()) > 1:
        axes.legend(frameon=False, fontsize="small")


def curve(axes: Axes, x: Any, y: Any, color: str, name: str, *, dashed: bool = False) -> None:
    """One curve; a few points are marked, so that one alone can be seen."""
    marker, style = "o" if len(x) < 40 else None, (0, (4, 2)) if dashed else "-"
    axes.plot(x, y, color=color, label=name, linewidth=1.8, linestyle=style, marker=marker, markersize=3)
