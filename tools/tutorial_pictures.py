"""Draw the pictures of the tutorial: the unrolled cell, lengths and padding, and a loss that falls.

python tools/tutorial_pictures.py
"""

from __future__ import annotations

import matplotlib as mpl

mpl.use("Agg")

import torch
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.patches import FancyBboxPatch, Rectangle

import throughtime as tt
from pictures import FOLDER, GOAL, OURS

GREY = "0.55"
LENGTHS = (5, 2, 4, 3)
STEPS = 400


def box(axes: Axes, x: float, y: float, text: str) -> None:
    """A rounded box of width 1 and height 0.6 around a point."""
    axes.add_patch(FancyBboxPatch((x - 0.5, y - 0.3), 1, 0.6, boxstyle="round,pad=0.02", fc="#dbe9f6", ec=OURS, lw=1.5))
    axes.text(x, y, text, ha="center", va="center", fontsize=11)


def arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float], bend: float = 0) -> None:
    """An arrow from one point to another; `bend` is the radius of its arc."""
    style = {"arrowstyle": "-|>", "color": "black", "lw": 1.2, "connectionstyle": f"arc3,rad={bend}"}
    axes.annotate("", xy=end, xytext=start, arrowprops=style)


def unrolled() -> None:
    """One cell with a loop, and the same cell at two steps."""
    figure, axes = plt.subplots(figsize=(7, 2.9), layout="constrained")
    for x, step in ((0, "t"), (3.2, "0"), (5.4, "1")):
        box(axes, x, 0, "cell")
        arrow(axes, (x, -1.0), (x, -0.34))
        arrow(axes, (x, 0.34), (x, 1.0))
        axes.text(x, -1.2, f"$x_{step}$", ha="center", fontsize=13)
        axes.text(x, 1.12, f"$y_{step}$", ha="center", fontsize=13)
    arrow(axes, (0.0, 0.62), (0.54, -0.1), bend=-1.2)
    arrow(axes, (3.74, 0), (4.86, 0))
    arrow(axes, (5.94, 0), (6.7, 0))
    arrow(axes, (2.1, 0), (2.66, 0))
    axes.text(2.0, 0, "0", ha="right", va="center", fontsize=12)
    axes.text(6.8, 0, "state", ha="left", va="center", fontsize=11)
    axes.text(1.45, 0, "=", ha="center", va="center", fontsize=22, color=GREY)
    axes.text(4.3, -0.62, "the same weights", ha="center", fontsize=9, color=GREY)
    axes.set(xlim=(-0.9, 7.6), ylim=(-1.5, 1.5), aspect="equal")
    axes.axis("off")
    figure.savefig(FOLDER / "tutorial_unrolled.png", dpi=150)
    plt.close(figure)


def lengths() -> None:
    """Rows of steps, real and padded, and the step of each final state."""
    figure, axes = plt.subplots(figsize=(7, 2.7), layout="constrained")
    for row, length in enumerate(LENGTHS):
        for step in range(max(LENGTHS)):
            real = step < length
            last = step == length - 1
            face = "#f6d9b5" if last else "#dbe9f6" if real else "white"
            place = (step, -row - 0.4)
            edge = GOAL if last else OURS if real else GREY
            axes.add_patch(Rectangle(place, 0.92, 0.8, fc=face, ec=edge, ls="-" if real else ":", lw=1.3))
            axes.text(step + 0.46, -row, f"$y_{step}$" if real else "0", ha="center", va="center", fontsize=11)
        axes.text(-0.15, -row, f"instance {row}", ha="right", va="center", fontsize=10)
        axes.text(max(LENGTHS) + 0.15, -row, f"length {length}: state after step {length - 1}", va="center", fontsize=9)
    for step in range(max(LENGTHS)):
        axes.text(step + 0.46, 0.62, f"step {step}", ha="center", fontsize=9, color=GREY)
    axes.set(xlim=(-1.6, 8.8), ylim=(-len(LENGTHS) + 0.4, 1.0))
    axes.axis("off")
    figure.savefig(FOLDER / "tutorial_lengths.png", dpi=150)
    plt.close(figure)


def training() -> None:
    """The loss of the tutorial's network while it learns parity."""
    torch.manual_seed(0)
    cell, head = tt.LSTMCell(16, input_size=1), torch.nn.Linear(16, 2)
    adam = torch.optim.Adam([*cell.parameters(), *head.parameters()], lr=0.02)
    losses = []
    for _ in range(STEPS):
        counts = torch.randint(1, 9, (64,))
        bits = torch.randint(0, 2, (64, 8)).float()
        parity = (bits * (torch.arange(8) < counts[:, None])).sum(1).long() % 2
        _, state = tt.dynamic_rnn(cell, bits[..., None], counts, dtype=torch.float32)
        loss = torch.nn.functional.cross_entropy(head(state.h), parity)
        adam.zero_grad()
        loss.backward()
        adam.step()
        losses.append(loss.item())
    figure, axes = plt.subplots(figsize=(7, 2.7), layout="constrained")
    axes.plot(range(1, STEPS + 1), losses, color=OURS, linewidth=1.2)
    axes.axhline(0.6931, color=GOAL, linewidth=1, linestyle="--")
    axes.text(STEPS, 0.72, "chance", ha="right", fontsize=9, color=GOAL)
    axes.set(xlabel="step of training", ylabel="loss", ylim=(0, 0.85), xlim=(0, STEPS))
    axes.grid(axis="y", color="0.92")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure.savefig(FOLDER / "tutorial_training.png", dpi=150)
    plt.close(figure)


if __name__ == "__main__":
    unrolled()
    lengths()
    training()
