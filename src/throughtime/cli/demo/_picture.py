"""Part three: how the training went, and one utterance's hidden state through time."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.image import AxesImage
from matplotlib.ticker import MaxNLocator, NullFormatter, PercentFormatter
from torch import Tensor

from throughtime.cli.demo._speakers import GOAL, Epoch, SpeakerClassifier
from throughtime.data import Utterances

INK = "#333333"
BLUE, ORANGE = "#2a6f97", "#e07a5f"
PADDING = "#eeeeee"


class Heard(NamedTuple):
    """One utterance as the network heard it: hidden states [T, H] in both directions."""

    forwards: Tensor
    backwards: Tensor
    length: int
    speaker: int


@torch.no_grad()
def choose_utterance(model: SpeakerClassifier, data: Utterances) -> Heard:
    """A recognised utterance of typical length, so that both speech and padding are in the picture."""
    model.eval()
    inputs, lengths, speakers = data.padded()
    wrong = model(inputs, lengths).argmax(1) != speakers
    typical = lengths.float().quantile(0.75)
    # A wrong answer counts as far from typical: one is chosen only if there is nothing else.
    row = int(((lengths - typical).abs() + wrong * inputs.shape[1]).argmin())
    (forwards, backwards), _ = model.read(inputs[row : row + 1], lengths[row : row + 1])
    return Heard(forwards[0], backwards[0], int(lengths[row]), int(speakers[row]))


def save(path: Path, history: list[Epoch], heard: Heard) -> None:
    """Draw everything and write the PNG."""
    figure = Figure(figsize=(12, 6.4), dpi=150, layout="constrained")
    grid = figure.add_gridspec(1, 2, width_ratios=(1, 1.3), wspace=0.03)
    _draw_training(figure.add_subfigure(grid[0]), history)
    _draw_utterance(figure.add_subfigure(grid[1]), heard)
    figure.savefig(path)


def _draw_training(figure: SubFigure, history: list[Epoch]) -> None:
    """Loss above accuracy, epoch by epoch."""
    figure.suptitle("Who is speaking? Learning from 270 utterances", color=INK)
    upper, lower = figure.subplots(2, 1, sharex=True)
    losses, train, test = zip(*history, strict=True)
    epochs = range(1, len(history) + 1)
    _draw_curve(upper, epochs, losses, BLUE, "training loss")
    upper.set_yscale("log")
    upper.yaxis.set_major_formatter("{x:g}")
    upper.yaxis.set_minor_formatter(NullFormatter())
    _draw_curve(lower, epochs, train, BLUE, "training")
    _draw_curve(lower, epochs, test, ORANGE, f"test: {test[-1]:.1%}")
    lower.axhline(GOAL, color=INK, linewidth=0.8, linestyle=":", label=f"goal: {GOAL:.0%}")
    lower.set(xlabel="epoch", ylabel="accuracy", ylim=(0, 1.02))
    lower.yaxis.set_major_formatter(PercentFormatter(1.0))
    lower.xaxis.set_major_locator(MaxNLocator(integer=True))
    upper.set_ylabel("cross-entropy")
    for axes, corner in ((upper, "upper right"), (lower, "lower right")):
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, loc=corner)


def _draw_curve(axes: Axes, epochs: range, values: Sequence[float], color: str, label: str) -> None:
    """One quantity over the epochs; a dot shows where a run of one epoch would be no line."""
    axes.plot(epochs, values, color=color, label=label, linewidth=1.8, marker="o", markersize=2.5)


def _draw_utterance(figure: SubFigure, heard: Heard) -> None:
    """The hidden states of both directions, one heat map each."""
    figure.suptitle(f"One utterance of speaker {heard.speaker}: the LSTM's hidden state through time", color=INK)
    upper, lower = figure.subplots(2, 1, sharex=True)
    _draw_states(upper, heard.forwards, heard.length, "read forwards →", last=heard.length - 1)
    image = _draw_states(lower, heard.backwards, heard.length, "← read backwards", last=0)
    lower.set_xlabel("step")
    lower.xaxis.set_major_locator(MaxNLocator(integer=True))
    figure.colorbar(image, ax=[upper, lower], label="value of a unit", shrink=0.5, aspect=30)


def _draw_states(axes: Axes, states: Tensor, length: int, title: str, last: int) -> AxesImage:
    """A heat map [H, T], units ordered by their final value; the padding is marked, since nothing happens there."""
    ordered = states[:, states[last].argsort()].T.numpy()
    image = axes.imshow(ordered, aspect="auto", cmap="RdBu_r", vmin=-1, vmax=1, interpolation="nearest", origin="lower")
    axes.axvspan(length - 0.5, len(states) - 0.5, facecolor=PADDING, edgecolor="white", hatch="//", linewidth=0)
    axes.axvline(length - 0.5, color=INK, linewidth=1.5)
    middle = (length + len(states) - 1) / 2
    axes.text(middle, len(ordered) / 2, f"length {length}:\nzeros from here,\nnever computed", ha="center", va="center")
    axes.set_title(title, fontsize="medium", loc="left")
    axes.set(ylabel="unit", yticks=[])
    return image
