"""How the results of each suite are shown: the columns of its table, on the console and in the documentation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from floor import floor_us

Row = dict[str, Any]
MISSING = "–"
BUSY = 0.1
"""With a larger share of the machine in other hands, threads wait for each other, and torch's the most: to be said."""


class Column(NamedTuple):
    """A heading, the text below it for a result, and whether that is a number."""

    heading: str
    text: Callable[[Row], str]
    numeric: bool = True


class Layout(NamedTuple):
    title: str
    note: str
    columns: tuple[Column, ...]


def value(heading: str, key: str, form: str = "", numeric: bool = True) -> Column:
    """A number or a word that the result has."""
    return Column(heading, lambda row: MISSING if row.get(key) is None else format(row[key], form), numeric)


def milliseconds(heading: str, key: str) -> Column:
    """A median, with three digits that count."""
    return Column(heading, lambda row: _digits(row[key]["median_ms"]) if row.get(key) else MISSING)


def spread(heading: str, key: str) -> Column:
    """The quartiles around a median, relative to it."""

    def text(row: Row) -> str:
        if not row.get(key):
            return MISSING
        low, high = row[key]["lower_quartile_ms"], row[key]["upper_quartile_ms"]
        return f"{50 * (high - low) / row[key]['median_ms']:.0f} %"

    return Column(heading, text)


def _digits(number: float) -> str:
    return f"{number:.0f}" if number >= 100 else f"{number:.3g}"


def _shape(row: Row) -> str:
    return " ".join(f"{letter}{size}" for letter, size in row["shape"].items())


CELL = value("cell", "cell", numeric=False)
SHAPE = Column("batch", _shape, numeric=False)
OURS = milliseconds("ours ms", "throughtime")
SPREAD = spread("±", "throughtime")
LEAST = Column("least ms", lambda row: _digits(row["least_ms"]) if row.get("least_ms") else MISSING)
RATIO = value("times as fast", "ratio", ".2f")
BACKEND = value("backend", "backend", numeric=False)

LEAST_NOTE = "*Least* is what its multiply-adds alone would take, at the best speed of the processor in this run."

LAYOUTS: dict[str, Layout] = {
    "dense-training": Layout(
        "Training, dense, against torch.nn",
        "Forward and backward, batch-major, gradients of inputs and weights for a random gradient of the outputs. "
        + LEAST_NOTE,
        (CELL, SHAPE, LEAST, OURS, SPREAD, milliseconds("torch ms", "torch"), spread("±", "torch"), RATIO, BACKEND),
    ),
    "ragged-training": Layout(
        "Training, variable length, against torch packed",
        "torch packs, runs and unpacks. *Real* is the share of steps that are not padding; *over real* our time over "
        "that of our own dense run, divided by that share.",
        (
            CELL,
            SHAPE,
            value("lengths", "lengths", numeric=False),
            value("real", "share", ".0%"),
            OURS,
            SPREAD,
            milliseconds("torch ms", "torch"),
            RATIO,
            milliseconds("our dense ms", "dense"),
            value("over real", "over_share", ".2f"),
            BACKEND,
        ),
    ),
    "inference": Layout(
        "Inference, against the faster of torch and ONNX Runtime",
        "Time-major, no gradients. " + LEAST_NOTE,
        (
            CELL,
            SHAPE,
            LEAST,
            OURS,
            SPREAD,
            milliseconds("torch ms", "torch"),
            milliseconds("ONNX Runtime ms", "onnxruntime"),
            RATIO,
            BACKEND,
        ),
    ),
    "drop-in": Layout(
        "Drop-in modules, against torch.nn",
        "`tt.accelerate` of a copy; both sides get the same inputs. Lengths of packed sequences are uniform, from 1 to "
        "T; the tagger packs and unpacks in its own code.",
        (
            value("network", "cell", numeric=False),
            SHAPE,
            value("form", "form", numeric=False),
            value("mode", "mode", numeric=False),
            OURS,
            SPREAD,
            milliseconds("torch ms", "torch"),
            spread("±", "torch"),
            RATIO,
            BACKEND,
        ),
    ),
    "company": Layout(
        "Beside packages with an OpenMP runtime of their own",
        "Times as fast as torch, alone and with the package imported; medians of several processes each.",
        (
            CELL,
            SHAPE,
            value("company", "company", numeric=False),
            value("mode", "mode", numeric=False),
            value("alone", "alone", ".2f"),
            RATIO,
            value("of alone", "of_alone", ".2f"),
            value("runtime", "runtime", numeric=False),
        ),
    ),
    "real-models": Layout(
        "Models of published packages, accelerated, against plain torch",
        "`tt.accelerate` of a copy, random weights, the package imported.",
        (
            value("model", "cell", numeric=False),
            value("mode", "mode", numeric=False),
            OURS,
            SPREAD,
            milliseconds("torch ms", "torch"),
            spread("±", "torch"),
            RATIO,
        ),
    ),
    "call-overhead": Layout(
        "The cost of one small call: LSTM, B1 T1 I16 H16",
        "",
        (
            value("what", "mode", numeric=False),
            value("ours µs", "ours_us", ".0f"),
            value("torch µs", "torch_us", ".0f"),
            value("beyond µs", "beyond_us", ".0f"),
            BACKEND,
        ),
    ),
    "own-cells": Layout(
        "Training a user's own cell, against its eager loop",
        "The eager loop is a Python loop over the same cell. The LSTM of equal size is ours, for the stack two.",
        (
            CELL,
            SHAPE,
            OURS,
            SPREAD,
            milliseconds("eager ms", "eager"),
            RATIO,
            milliseconds("our LSTM ms", "lstm"),
            value("of our LSTM", "of_lstm", ".2f"),
            BACKEND,
        ),
    ),
    "matrix-cells": Layout(
        "Training cells that compute with matrices of a row, against their eager loops",
        "The eager loop is a Python loop over the same cell.",
        (CELL, SHAPE, OURS, SPREAD, milliseconds("eager ms", "eager"), RATIO, BACKEND),
    ),
    "plain-loop": Layout(
        "Cells that no kernel takes, against plain loops over them",
        "The eager loop is a Python loop over the same cell; inference is without gradients.",
        (
            CELL,
            value("mode", "mode", numeric=False),
            SHAPE,
            OURS,
            SPREAD,
            milliseconds("eager ms", "eager"),
            RATIO,
            BACKEND,
        ),
    ),
    "against-tensorflow": Layout(
        "Training, against TensorFlow's own dynamic_rnn",
        "Graph mode, time-major, the same weights; its inputs are resident and its gradients are not copied out. "
        + LEAST_NOTE,
        (
            CELL,
            SHAPE,
            LEAST,
            OURS,
            SPREAD,
            milliseconds("TensorFlow ms", "tensorflow"),
            spread("±", "tensorflow"),
            RATIO,
            BACKEND,
        ),
    ),
    "first-call": Layout(
        "The first training step of a new cell, in a fresh process",
        "*Extra* is what the first step takes beyond the next one. The batch is one sequence.",
        (
            CELL,
            value("T", "T"),
            value("cache", "cache", numeric=False),
            value("first s", "first_s", ".2f"),
            value("next s", "next_s", ".3f"),
            value("extra s", "extra_s", ".2f"),
        ),
    ),
    "memory": Layout(
        "Peak memory of a training step, of torch.nn's",
        "Growth of the resident memory of a fresh process over one step, after one on a tiny batch.",
        (
            CELL,
            SHAPE,
            value("lengths", "lengths", numeric=False),
            value("ours MiB", "ours_mib", ".1f"),
            value("torch MiB", "torch_mib", ".1f"),
            value("of torch", "of_torch", ".2f"),
        ),
    ),
    "parallel-iterations": Layout(
        "Memory and time as parallel_iterations shrinks",
        "An LSTM; growth of the resident memory of a fresh process over one call.",
        (
            SHAPE,
            value("mode", "mode", numeric=False),
            Column("parallel_iterations", lambda row: str(row["parallel_iterations"])),
            value("peak MiB", "peak_mib", ".1f"),
            milliseconds("ms", "throughtime"),
        ),
    ),
    "cross-entropy": Layout(
        "The loss of real steps and its gradient, against torch's",
        "Cross-entropy of `C` classes. *Real* is the share of steps that are not padding; torch picks them by a mask.",
        (SHAPE, value("real", "real", ".0%"), OURS, SPREAD, milliseconds("torch ms", "torch"), RATIO),
    ),
    "epoch": Layout(
        "An epoch of training, against torch packed",
        "`tt.train.fit` against a plain loop over the same batches of like lengths; *shuffled* is that loop as people "
        "write it, over batches drawn at random. *Least* is what an epoch of `tt.train.fit` takes around a recurrence "
        "that takes no time, and its multiply-adds at the best speed of the processor; *possible* is torch's time over "
        "that.",
        (
            CELL,
            value("data", "case", numeric=False),
            value("sequences", "sequences"),
            OURS,
            SPREAD,
            milliseconds("torch ms", "torch"),
            RATIO,
            LEAST,
            Column("possible", lambda row: f"{row['torch']['median_ms'] / row['least_ms']:.2f}"),
            milliseconds("shuffled ms", "shuffled"),
            value("times as fast as that", "against_shuffled", ".2f"),
        ),
    ),
    "gpu-cudnn": Layout(
        "On a GPU, against cuDNN",
        "Time-major, float32 as TF32. *Packed* is training on a `PackedSequence` with lengths from 1 to T. Times are "
        "those of a step of the whole batch. *Floor* is the least a step could take: a meeting of blocks a pass (1 µs, "
        "measured), and products or memory at the card's stated rates.",
        (
            CELL,
            value("mode", "mode", numeric=False),
            value("dtype", "dtype", numeric=False),
            SHAPE,
            value("ours µs", "step_us", ".2f"),
            SPREAD,
            Column("floor µs", lambda row: f"{floor_us(row):.2f}"),
            value("cuDNN µs", "cudnn_step_us", ".2f"),
            RATIO,
        ),
    ),
    "gpu-own-cells": Layout(
        "On a GPU, a user's own cell, against its eager loop",
        "Training in float32 as TF32. The eager loop is a Python loop over the same cell.",
        (
            CELL,
            SHAPE,
            OURS,
            SPREAD,
            milliseconds("eager ms", "eager"),
            RATIO,
            milliseconds("our LSTM ms", "lstm"),
            value("of our LSTM", "of_lstm", ".2f"),
            BACKEND,
        ),
    ),
    "gpu-graphs": Layout(
        "On a GPU, loops as CUDA graphs, against eager loops",
        "Cells that the kernels do not take. *Ragged* is training on lengths from 1 to T, against the plain loop of "
        "the package, which leaves out padding too.",
        (
            CELL,
            value("mode", "mode", numeric=False),
            value("dtype", "dtype", numeric=False),
            SHAPE,
            OURS,
            SPREAD,
            milliseconds("eager ms", "eager"),
            RATIO,
            BACKEND,
        ),
    ),
}
