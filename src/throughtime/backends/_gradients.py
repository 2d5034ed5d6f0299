"""Gradients of matrices beside kernels: sums over rows by machine code, without a copy of what they are made of."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from throughtime.backends import numba

_library = torch.library.Library("throughtime", "FRAGMENT")
_library.define("over_rows(Tensor g, Tensor[] parts, bool sum_parts=False) -> (Tensor, Tensor)")


def over_rows(g: Tensor, parts: Sequence[Tensor], sum_parts: bool = False) -> tuple[Tensor, Tensor]:
    """`cat(parts, 1)ᵀ @ g`, for rows [n, ...] each, and the sum of `g`, or of `cat(parts, 1)` if that is asked for."""
    (rows, columns), features = g.shape, sum(part.shape[1] for part in parts)
    product, sums = g.new_empty(features, columns), g.new_empty(features if sum_parts else columns)
    if not rows or not columns or not features:
        return product.zero_(), sums.copy_((torch.cat([*parts], 1) if sum_parts else g).sum(0))
    # As long as they are read.
    given = [_with_rows(tensor) for tensor in (g, *parts)]
    size = g.dtype.itemsize
    places = [(tensor.data_ptr(), tensor.stride(0) * size, tensor.shape[1]) for tensor in given]
    into = {"beside" if sum_parts else "sums": sums.data_ptr()}
    numba.over_rows(g.dtype, rows, places[0], places[1:], product.data_ptr(), **into)
    return product, sums


_library.impl("over_rows", over_rows, "CPU")
OVER_ROWS = torch.ops.throughtime.over_rows.default


def _with_rows(tensor: Tensor) -> Tensor:
    """The numbers of a row side by side."""
    return tensor.resolve_neg() if tensor.stride(1) == 1 else tensor.resolve_neg().contiguous()
