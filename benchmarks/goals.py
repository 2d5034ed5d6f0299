"""What each suite is to reach, and whether it did."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import geometric_mean
from typing import Any, NamedTuple

Rows = Sequence[dict[str, Any]]

STATISTICS: dict[str, Callable[[Sequence[float]], float]] = {
    "geometric mean": geometric_mean,
    "least": min,
    "most": max,
}


class Goal(NamedTuple):
    """A bound on one statistic of a column: from below, or for "most" from above.

    It takes the results with the values of `only`. With `by` it is a goal for each value of that column.
    """

    what: str
    column: str
    statistic: str
    bound: float
    unit: str = ""
    only: tuple[tuple[str, Any], ...] = ()
    by: str = ""

    def for_each(self, rows: Rows) -> list[Goal]:
        """One goal for each value of the column `by`, in order of appearance."""
        if not self.by:
            return [self]
        values = dict.fromkeys(row[self.by] for row in rows)
        return [self._replace(what=f"{value}, {self.what}", only=((self.by, value),), by="") for value in values]

    def verdict(self, rows: Rows) -> dict[str, Any]:
        """For the file of results: what was reached; None where nothing was measured, as without a peer."""
        values = [row.get(self.column) for row in rows if _concerns(dict(self.only), row)]
        measured = [value for value in values if value is not None]
        got = STATISTICS[self.statistic](measured) if measured and len(measured) == len(values) else None
        sign = "≤" if self.statistic == "most" else "≥"
        met = None if got is None else _holds(got, sign, self.bound)
        return {
            "what": self.what,
            "column": self.column,
            "only": dict(self.only),
            "statistic": self.statistic,
            "sign": sign,
            "bound": self.bound,
            "unit": self.unit,
            "got": None if got is None else float(f"{got:.4g}"),
            "met": met,
        }


def _concerns(only: dict[str, Any], row: dict[str, Any]) -> bool:
    return all(row.get(key) == value for key, value in only.items())


def _holds(got: float, sign: str, bound: float) -> bool:
    return got <= bound if sign == "≤" else got >= bound


def _spread(what: str, mean: float, least: float) -> tuple[Goal, Goal]:
    return Goal(what, "ratio", "geometric mean", mean), Goal(what, "ratio", "least", least)


def _family(name: str, mean: float) -> tuple[Goal, Goal]:
    """For the results of one family, against cuDNN: on no shape slower."""
    what, only = f"{name}, against cuDNN", (("family", name),)
    return Goal(what, "ratio", "geometric mean", mean, only=only), Goal(what, "ratio", "least", 1.0, only=only)


def _dropped_in(form: str, mean: float) -> tuple[Goal, Goal]:
    """For modules that take the place of torch's, which are of no use where they are slower."""
    what, only = f"drop-in modules, {form}, against torch.nn", (("form", form),)
    return Goal(what, "ratio", "geometric mean", mean, only=only), Goal(what, "ratio", "least", 1.0, only=only)


def _swapped(how: str) -> tuple[Goal, Goal]:
    """Where memory matters, 36 GiB for a training step: four layers of LSTM, multiplied in one way."""
    only = (("case", f"4 × LSTM 1024, {how}"), ("way", "swap_memory"))
    what = f"swap_memory, {how}, of the plain run"
    return (
        Goal(f"{what}: peak", "of_plain_peak", "most", 0.25, only=only),
        Goal(f"{what}: time", "of_plain_time", "most", 1.05, only=only),
    )


GOALS: dict[str, tuple[Goal, ...]] = {
    "dense-training": (
        *_spread("training, dense, against torch.nn", 1.3, 1.0),
        # One kind of cell could carry the others.
        Goal("training, dense, against torch.nn", "ratio", "geometric mean", 1.3, by="cell"),
    ),
    "ragged-training": (
        *_spread("training, variable length, against torch packed", 5.0, 2.5),
        Goal("variable length: share of our dense time, over the share of real steps", "over_share", "most", 1.15),
    ),
    "inference": (
        *_spread("inference, against the faster of torch and ONNX Runtime", 1.2, 1.0),
        Goal(
            "inference, LSTM B1 H64, against ONNX Runtime",
            "against_onnxruntime",
            "least",
            1.0,
            only=(("cell", "LSTM"), ("shape", {"B": 1, "T": 100, "I": 64, "H": 64})),
        ),
    ),
    "drop-in": (*_dropped_in("dense", 1.3), *_dropped_in("packed", 3.0)),
    "company": (Goal("beside other OpenMP runtimes, of the ratio alone", "of_alone", "least", 0.95),),
    "real-models": (
        Goal("models of published packages, training", "ratio", "geometric mean", 1.8, only=(("mode", "training"),)),
        Goal("models of published packages, training", "ratio", "least", 0.95, only=(("mode", "training"),)),
    ),
    "call-overhead": (
        Goal("one call at B1 T1 H16, beyond torch.nn.LSTM", "beyond_us", "most", 100.0, " µs", (("is_a_call", True),)),
    ),
    "own-cells": (
        Goal("against its eager loop", "ratio", "geometric mean", 5.0, by="cell"),
        Goal("time over that of our LSTM of equal size", "of_lstm", "most", 1.5, by="cell"),
    ),
    "matrix-cells": (Goal("cells with matrices in a row, against their eager loops", "ratio", "least", 1.0),),
    "plain-loop": (Goal("cells that no kernel takes, against plain loops over them", "ratio", "least", 1.0),),
    "against-tensorflow": (Goal("training, against TensorFlow's dynamic_rnn", "ratio", "least", 3.0),),
    "first-call": (
        Goal("first call of a new cell, cold", "extra_s", "most", 5.0, " s", (("cache", "cold"),)),
        Goal("first call of a new cell, from the disk cache", "extra_s", "most", 0.5, " s", (("cache", "disk"),)),
    ),
    "memory": (Goal("peak memory of training, of torch.nn's", "of_torch", "most", 1.0),),
    "parallel-iterations": (),
    "cross-entropy": (Goal("the loss of real steps, against torch's", "ratio", "least", 1.0),),
    "epoch": (
        # The loop as people write it, and the same over batches of like lengths, which a plain loop does not have.
        Goal("an epoch of training, against torch packed", "against_shuffled", "geometric mean", 3.0),
        Goal("an epoch of training, against torch packed", "against_shuffled", "least", 3.0),
        *_spread("an epoch of training, against torch packed over our batches", 3.0, 3.0),
    ),
    "gpu-cudnn": (
        *_family("inference float32 and bfloat16", 3.0),
        *_family("training float32 and bfloat16", 2.5),
        *_family("inference float16", 1.2),
        *_family("training float16", 1.2),
        *_family("packed float32 and bfloat16", 4.0),
        *_family("packed float16", 4.0),
    ),
    "gpu-own-cells": (
        Goal("on a GPU, against its eager loop", "ratio", "geometric mean", 30.0, by="cell"),
        Goal("on a GPU, time over that of our LSTM of equal size", "of_lstm", "most", 2.0, by="cell"),
    ),
    "swap-memory": (*_swapped("exact float32"), *_swapped("TF32"), *_swapped("bfloat16")),
    "gpu-graphs": (Goal("on a GPU, loops as CUDA graphs, against eager loops", "ratio", "least", 1.0),),
}
"""In the order of the documentation."""


def verdicts(suite: str, rows: Rows) -> list[dict[str, Any]]:
    """What a suite was to reach, what it did reach."""
    return [goal.verdict(rows) for family in GOALS[suite] for goal in family.for_each(rows)]


def word(met: bool | None) -> str:
    """What became of a goal."""
    return {True: "met", False: "missed", None: "not measured"}[met]


def of_row(row: dict[str, Any], reached: Rows) -> str:
    """Whether one result keeps to the goals that every single one is to keep to; empty where there are none."""
    single = [goal for goal in reached if goal["statistic"] != "geometric mean" and _concerns(goal["only"], row)]
    measured = [goal for goal in single if row.get(goal["column"]) is not None]
    if not measured:
        return ""
    return word(all(_holds(row[goal["column"]], goal["sign"], goal["bound"]) for goal in measured))


def shown(goal: dict[str, Any], number: float | None) -> str:
    """A bound of a goal or what was reached, with its unit."""
    return word(None) if number is None else f"{number:.3g}{goal['unit']}"
