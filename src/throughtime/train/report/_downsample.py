"""Numbers small enough to live in a page: checked, rounded, thinned out, packed."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from throughtime._errors import problem, type_name

# More points than this are more than a curve on a screen can show.
POINTS = 400
# More classes than this are more than a table on a screen can show.
CLASSES = 40
# The one signed byte that stands for no number.
NOT_FINITE = -128


def as_array(name: str, values: Any) -> np.ndarray[Any, Any]:
    """Numbers as float64: tensors of any device and dtype, with a gradient or without, arrays and lists alike."""
    try:
        return np.asarray(_on_host(values), np.float64)
    except (TypeError, ValueError):
        got = type_name(values)
        expected, fix = "numbers, in rows of one length", "Pass a tensor, an array, or lists of numbers."
        raise TypeError(problem(f"`{name}` holds what are no numbers", got=got, expected=expected, fix=fix)) from None


def _on_host(values: Any) -> Any:
    if isinstance(values, Tensor):
        return values.detach().double().cpu().numpy()
    if isinstance(values, list | tuple) and any(isinstance(value, Tensor | list | tuple) for value in values):
        return [_on_host(value) for value in values]
    return values


def share(name: str, value: Any) -> float | None:
    """A share between 0 and 1 as a plain float; None stays None."""
    number = None if value is None else float(as_array(name, value).reshape(()))
    # NaN is in no range.
    if number is not None and not 0 <= number <= 1:
        fix = f"Leave `{name}` out where it is not known."
        raise ValueError(problem(f"`{name}` is no share", got=number, expected="a number from 0 to 1", fix=fix))
    return number


def digits(value: float) -> float:
    """Four digits of it; the largest numbers of all would round up to infinity, and stay as they are."""
    short = float(f"{value:.4g}")
    return short if math.isfinite(short) else value


def rounded(values: Any) -> list[Any]:
    """Four digits; what is not finite is nothing."""
    array = as_array("values", values)
    if array.ndim > 1:
        return [rounded(row) for row in array]
    return [digits(value) if math.isfinite(value) else None for value in array.tolist()]


def lost(values: Any) -> int:
    """How many of the values are not finite."""
    return int((~np.isfinite(as_array("values", values))).sum())


def thinned(values: Sequence[float], points: int = POINTS) -> list[Any]:
    """Means over neighbours, so that at most `points` are left."""
    array = np.asarray(values, np.float64)
    if len(array) > points:
        # Halves first: the sum of the largest numbers is none.
        array = np.array([2 * (part / 2).mean() for part in np.array_split(array, points)])
    return rounded(array)


class Times(NamedTuple):
    """Which steps took their usual time, and those that did not: how many, the longest, whether the first is one."""

    usual: np.ndarray[Any, Any]
    """[N], bool."""
    slow: int
    longest: float
    first: bool


def usual_times(seconds: Sequence[float]) -> Times:
    """Steps that took far longer than nine tenths of those after the first: they compile kernels, as the first does.

    In one picture with them, all others are a flat line.
    """
    times = np.asarray(seconds, np.float64)
    later = np.sort(times[1:])
    limit = 3 * later[int(0.9 * (len(later) - 1))] if len(later) > 1 else np.inf
    usual = ~(times > limit)
    slow = times[~usual]
    return Times(usual, len(slow), float(slow.max(initial=0.0)), bool(len(usual)) and not usual[0])


def shown_steps(count: int, points: int = POINTS) -> np.ndarray[Any, Any]:
    """Which of `count` steps to show: all, or `points` at nearly equal distances, the first and the last among them."""
    return np.linspace(0, count - 1, min(count, points)).round().astype(np.int64)


def packed(values: Any) -> dict[str, Any]:
    """A map of numbers [rows, columns] as signed bytes, with the number that the largest stands for."""
    array = np.asarray(values, np.float64)
    finite = np.isfinite(array)
    known = np.where(finite, array, 0.0)
    limit = float(np.abs(known).max()) or 1.0 if array.size else 1.0
    # Divided first: 127 times the largest numbers of all is no number.
    signed = np.where(finite, np.round(127 * (known / limit)), NOT_FINITE).astype(np.int8)
    text = base64.b64encode(signed.tobytes()).decode("ascii")
    return {"rows": array.shape[0], "columns": array.shape[1], "limit": digits(limit), "values": text}


def whole_lengths(lengths: Any) -> np.ndarray[Any, Any]:
    """Lengths [S] of at least one sequence, as whole numbers."""
    array = as_array("lengths", lengths)
    if array.ndim != 1 or not len(array):
        expected, fix = "[S], one length for each sequence", "Pass the lengths of at least one sequence."
        raise ValueError(problem("`lengths` are no list of lengths", got=array.shape, expected=expected, fix=fix))
    wrong = array[~(np.isfinite(array) & (array >= 0) & (array == np.floor(array)))]
    if len(wrong):
        expected, fix = "whole numbers of at least 0", "Pass how many steps each sequence has."
        raise ValueError(problem("`lengths` has values that are no lengths", got=wrong[0], expected=expected, fix=fix))
    return array.astype(np.int64)


def histogram(lengths: Any, most_bars: int = 40) -> tuple[list[int], list[int]]:
    """Edges and counts: bars of equal whole width, the last edge excluded."""
    array = whole_lengths(lengths)
    low, high = int(array.min()), int(array.max())
    width = -(-(high - low + 1) // most_bars)
    edges = list(range(low, high + width + 1, width))
    return edges, np.histogram(array, edges)[0].tolist()


class Confusions(NamedTuple):
    """Counts of the classes that are shown, and what they are a part of."""

    names: list[str]
    matrix: np.ndarray[Any, Any]
    """[C, C] of the classes shown: row, what it is; column, what was said."""
    totals: np.ndarray[Any, Any]
    """[C]: how often each class shown is there, whatever was said."""
    total: int
    """Everything that was counted."""
    classes: int
    """How many classes there are, shown or not."""


def confusions(matrix: Any, names: Sequence[str], most: int = CLASSES) -> Confusions:
    """Counts [C, C], checked; of many classes those most often confused, and among equals the most frequent."""
    size = len(names)
    rows, columns, counts = _counted(matrix, size)
    wrong = rows != columns
    chosen = np.arange(size)
    if size > most:
        mistaken = np.zeros(size)
        for side in (rows, columns):
            mistaken += np.bincount(side[wrong], counts[wrong], size)
        frequent = np.bincount(rows, counts, size)
        # In the order that the classes came in, as in a table of all.
        chosen = np.sort(np.lexsort((-frequent, -mistaken))[:most])
    place = np.full(size, -1)
    place[chosen] = np.arange(len(chosen))
    inside = (place[rows] >= 0) & (place[columns] >= 0)
    shown = np.zeros((len(chosen), len(chosen)), np.int64)
    np.add.at(shown, (place[rows[inside]], place[columns[inside]]), counts[inside])
    totals = np.zeros(size, np.int64)
    np.add.at(totals, rows, counts)
    said = [str(names[at]) for at in chosen.tolist()]
    return Confusions(said, shown, totals[chosen], int(counts.sum()), size)


def _counted(matrix: Any, size: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Row, column and count of all that are not zero; counts by pairs never become a table of all classes."""
    if isinstance(matrix, Mapping):
        places = np.array(list(matrix), np.int64).reshape(-1, 2).T
        inside = not places.size or (places.min() >= 0 and places.max() < size)
        shape = (size, size) if inside else (int(places.max()) + 1,) * 2
        values = as_array("matrix", list(matrix.values()))
    else:
        dense = as_array("matrix", matrix)
        shape, places = dense.shape, np.array(np.nonzero(dense))
        values = dense[tuple(places)] if dense.ndim else dense
    if shape != (size, size) or not size:
        expected, fix = (
            f"({size}, {size}), by the names",
            "Pass one name for each class, of which there is at least one.",
        )
        raise ValueError(problem("`matrix` and `names` do not fit", got=shape, expected=expected, fix=fix))
    wrong = values[~(np.isfinite(values) & (values >= 0) & (values == np.floor(values)))]
    if len(wrong):
        expected, fix = "whole numbers of at least 0", "Pass how often each was said, not shares or scores."
        raise ValueError(problem("`matrix` has values that are no counts", got=wrong[0], expected=expected, fix=fix))
    return places[0], places[1], values.astype(np.int64)
