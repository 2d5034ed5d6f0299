"""Clipping of `IndexedSlices`: their rows are clipped, as TensorFlow does."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from throughtime.tf1._namespace import export
from throughtime.tf1.ops._elementwise import clip_by_value
from throughtime.tf1.ops._indexed_slices import IndexedSlices
from throughtime.tf1.ops._norms import clip_by_average_norm, clip_by_norm


def _by_rows(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def clip(t: Any, *args: Any, **arguments: Any) -> Any:
        if not isinstance(t, IndexedSlices):
            return function(t, *args, **arguments)
        return IndexedSlices(function(t.values, *args, **arguments), t.indices, t.dense_shape)

    return clip


for _name, _function in (
    ("clip_by_value", clip_by_value),
    ("clip_by_norm", clip_by_norm),
    ("clip_by_average_norm", clip_by_average_norm),
):
    export(_name, _by_rows(_function))
