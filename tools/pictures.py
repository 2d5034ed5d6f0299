"""Draw the pictures of the documentation from the newest benchmark results.

python tools/pictures.py
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import geometric_mean
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from tables import ROOT, machine_line, newest

FOLDER = ROOT / "docs" / "pictures"
SUITES = {
    "dense-training": "training, dense\nagainst torch.nn",
    "ragged-training": "training, variable length\nagainst torch packed",
    "inference": "inference, against the faster of\ntorch and ONNX Runtime",
    "own-cells": "training a user's own cell\nagainst its eager loop",
    "matrix-cells": "training a cell with matrices\nin a row, against its eager loop",
    "plain-loop": "a cell that no kernel takes,\nagainst a plain loop over it",
    "against-tensorflow": "training\nagainst TensorFlow",
}
"""Those whose results are ratios, above 1 where ours is faster."""
ON_A_GPU = {
    "gpu-cudnn": "{family}\nagainst cuDNN",
    "gpu-own-cells": "training a user's own cell\nagainst its eager loop",
    "gpu-graphs": "what kernels do not take, as\nCUDA graphs, against eager loops",
}
"""The same on a GPU; results that are of a family have a row for each."""
OURS, OTHERS, GOAL = "#1764ab", "#b3362d", "#e08214"
PLAIN = FuncFormatter(lambda number, _: f"{number:g}")
Results = dict[str, dict[str, Any]]
Dots = tuple[list[dict[str, Any]], list[dict[str, Any]]]
"""Results, and the goals for them."""


def ratios(results: Results) -> None:
    """On a CPU, a row for each suite."""
    rows = {SUITES[name]: (content["results"], content["goals"]) for name, content in results.items()}
    draw_ratios("ratios.png", rows, results)


def gpu_ratios(results: Results) -> None:
    """On a GPU, a row for each family of results."""
    rows: dict[str, Dots] = {}
    for name, content in results.items():
        families = dict.fromkeys(row.get("family", "") for row in content["results"])
        for family in families:
            of_family = [row for row in content["results"] if row.get("family", "") == family]
            goals = [goal for goal in content["goals"] if goal["only"].get("family", family) == family]
            rows[ON_A_GPU[name].format(family=family)] = (of_family, goals)
    draw_ratios("gpu_ratios.png", rows, results)


def draw_ratios(name: str, rows: dict[str, Dots], results: Results) -> None:
    """One dot a shape, on a logarithmic scale."""
    figure, axes = plt.subplots(figsize=(8.5, 1.2 + 0.8 * len(rows)), layout="constrained")
    for height, (dots, goals) in enumerate(rows.values()):
        values = [row["ratio"] for row in dots if row["ratio"] is not None]
        if values:
            draw_row(axes, height, values, goals)
    axes.set_axisbelow(True)
    axes.axvline(1, color="black", linewidth=1, zorder=1)
    axes.set(xscale="log", xlabel="times as fast as the other (logarithmic)", ylim=(len(rows) - 0.45, -0.55))
    axes.set_yticks(range(len(rows)), list(rows))
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(PLAIN)
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.grid(axis="x", color="0.92")
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.legend(handles=legend(axes), loc="lower center", bbox_to_anchor=(0.4, 1.0), ncols=4, frameon=False)
    sign(figure, results)
    figure.savefig(FOLDER / name, dpi=150)
    plt.close(figure)


def sign(figure: Figure, results: Results) -> None:
    """Where and when it was measured, in small letters below."""
    lines = sorted({machine_line({**content, "peers": {}}) for content in results.values()})
    figure.supxlabel("\n".join(lines), fontsize=7, color="0.4")


def draw_row(axes: Axes, height: int, values: list[float], goals: list[dict[str, Any]]) -> None:
    """The dots of one suite, its geometric mean, and the goal that the suite has for it (or for its least)."""
    colours = [OURS if value >= 1 else OTHERS for value in values]
    # Dots that would cover each other step aside, in order, so that the picture is the same every time.
    heights = [height + 0.06 * (index % 5 - 2) for index in range(len(values))]
    axes.scatter(values, heights, s=26, c=colours, alpha=0.75, linewidths=0, zorder=3)
    mean = geometric_mean(values)
    axes.plot([mean, mean], [height - 0.3, height + 0.3], color=OURS, linewidth=2, zorder=2)
    axes.annotate(f"{mean:.2f}", (mean, height - 0.3), ha="center", va="bottom", fontsize=8, color=OURS)
    wanted = [goal for goal in goals if goal["column"] == "ratio"]
    bound = max((goal["bound"] for goal in wanted), default=None)
    if bound is not None:
        axes.plot(
            [bound, bound], [height - 0.3, height + 0.3], color=GOAL, linewidth=2, linestyle=(0, (2, 1)), zorder=2
        )


def legend(axes: Axes) -> list[Any]:
    dots = [axes.scatter([], [], s=26, c=colour, linewidths=0) for colour in (OURS, OTHERS)]
    lines = [
        axes.plot([], [], color=OURS, linewidth=2)[0],
        axes.plot([], [], color=GOAL, linewidth=2, linestyle=":")[0],
    ]
    names = ("a shape where ours is faster", "where ours is slower", "geometric mean", "goal")
    for handle, name in zip([*dots, *lines], names, strict=True):
        handle.set_label(name)
    return [*dots, *lines]


def parallel_iterations(results: Results) -> None:
    """Peak memory and time of one call for each value, from unbounded on the left to step by step on the right."""
    rows = results["parallel-iterations"]["results"]
    values = list(dict.fromkeys(row["parallel_iterations"] for row in rows))
    shape = " ".join(f"{letter}{size}" for letter, size in rows[0]["shape"].items())
    figure, panels = plt.subplots(1, 2, figsize=(8.5, 3.2), layout="constrained")
    measures: dict[str, Callable[[dict[str, Any]], float]] = {
        "peak memory, MiB": lambda row: float(row["peak_mib"]),
        "time, ms": lambda row: float(row["throughtime"]["median_ms"]),
    }
    for axes, (label, measure) in zip(panels, measures.items(), strict=True):
        for mode, colour in (("training", OURS), ("inference", GOAL)):
            points = [measure(row) for row in rows if row["mode"] == mode]
            axes.plot(range(len(points)), points, marker="o", markersize=4, color=colour, label=mode)
        axes.set_xticks(range(len(values)), ["None" if value is None else str(value) for value in values])
        axes.set(xlabel="parallel_iterations", ylabel=label)
        axes.set_ylim(bottom=0)
        axes.grid(axis="y", color="0.92")
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
    panels[1].legend(frameon=False, loc="upper left")
    figure.suptitle(f"LSTM, {shape}", fontsize=10)
    sign(figure, results)
    figure.savefig(FOLDER / "parallel_iterations.png", dpi=150)
    plt.close(figure)


PICTURES: dict[str, tuple[Callable[[Results], None], tuple[str, ...]]] = {
    "ratios.png": (ratios, tuple(SUITES)),
    "gpu_ratios.png": (gpu_ratios, tuple(ON_A_GPU)),
    "parallel_iterations.png": (parallel_iterations, ("parallel-iterations",)),
}


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for picture, (draw, suites) in PICTURES.items():
        found = {name: newest(name) for name in suites}
        results = {name: content for name, content in found.items() if content is not None}
        if results:
            draw(results)
        print(f"{picture}: drawn" if results else f"{picture}: no results yet, run `make bench` first")


if __name__ == "__main__":
    main()
