"""Numbers small enough to live in a page: rounded, thinned out, packed."""

from __future__ import annotations

import base64
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

# More points than this are more than a curve on a screen can show.
POINTS = 400


def rounded(values: Any) -> list[Any]:
    """Four digits; what is not finite is nothing."""
    array = np.asarray(values, np.float64)
    if array.ndim > 1:
        return [rounded(row) for row in array]
    return [float(f"{value:.4g}") if math.isfinite(value) else None for value in array.tolist()]


def thinned(values: Sequence[float], points: int = POINTS) -> list[Any]:
    """Means over neighbours, so that at most `points` are left."""
    array = np.asarray(values, np.float64)
    if len(array) > points:
        array = np.array([part.mean() for part in np.array_split(array, points)])
    return rounded(array)


def packed(values: Any) -> dict[str, Any]:
    """A map of numbers [rows, columns] as signed bytes, with the number that the largest stands for."""
    array = np.nan_to_num(np.asarray(values, np.float64))
    limit = float(np.abs(array).max()) or 1.0 if array.size else 1.0
    signed = np.round(127 * array / limit).astype(np.int8)
    text = base64.b64encode(signed.tobytes()).decode("ascii")
    return {"rows": array.shape[0], "columns": array.shape[1], "limit": float(f"{limit:.4g}"), "values": text}


def histogram(lengths: Any, most_bars: int = 40) -> tuple[list[int], list[int]]:
    """Edges and counts: bars of equal whole width, the last edge excluded."""
    array = np.asarray(lengths, np.int64)
    low, high = int(array.min()), int(array.max())
    width = -(-(high - low + 1) // most_bars)
    edges = list(range(low, high + width + 1, width))
    return edges, np.histogram(array, edges)[0].tolist()
