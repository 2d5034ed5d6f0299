"""Segments: sums, means, products and extremes of rows with the same number."""

import numpy as np

from .case import case, floats, ints
from .families import function

_ids = np.array([0, 0, 1, 3, 3], "int32")
_mixed = np.array([2, 0, 1, 2, -1], "int32")
for _kind in ("sum", "mean", "max", "min", "prod"):
    for _label, _shape in (("vector", (5,)), ("rows", (5, 3))):
        case(
            "segment_" + _kind,
            lambda tf, x, i, f="segment_" + _kind: function(tf, f)(x, i),
            _label,
            x=floats(*_shape),
            i=_ids,
            gradients=_kind != "prod",
        )
    case(
        "segment_" + _kind,
        lambda tf, x, i, f="segment_" + _kind: function(tf, f)(x, i),
        "int64",
        x=floats(5),
        i=_ids.astype("int64"),
        gradients=False,
    )
for _kind in ("sum", "mean", "max", "min", "prod", "sqrt_n"):
    for _label, _shape in (("vector", (5,)), ("rows", (5, 3))):
        case(
            "unsorted_segment_" + _kind,
            lambda tf, x, i, f="unsorted_segment_" + _kind: function(tf, f)(x, i, 4),
            _label,
            x=floats(*_shape),
            i=_mixed if _kind not in ("mean", "sqrt_n") else np.array([2, 0, 1, 2, 0], "int32"),
            gradients=_kind not in ("prod",),
        )
    case(
        "unsorted_segment_" + _kind,
        lambda tf, x, f="unsorted_segment_" + _kind: function(tf, f)(
            data=x, segment_ids=[0, 1, 0], num_segments=2, name="named"
        ),
        "named",
        x=floats(3, 2),
        gradients=False,
    )
for _kind in ("sum", "mean", "sqrt_n"):
    case(
        "sparse_segment_" + _kind,
        lambda tf, x, j, i, f="sparse_segment_" + _kind: function(tf, f)(x, j, i),
        x=floats(4, 3),
        j=ints(5, below=4),
        i=_ids,
        gradients=True,
    )
    case(
        "sparse_segment_" + _kind,
        lambda tf, x, j, i, f="sparse_segment_" + _kind: function(tf, f)(x, j, i, num_segments=6),
        "num_segments",
        x=floats(4, 3),
        j=ints(5, below=4),
        i=_ids,
        gradients=False,
    )
