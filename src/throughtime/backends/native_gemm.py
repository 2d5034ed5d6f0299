"""GEMMs outside of loops by machine code of ours: reductions over rows, and all rows times matrices."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from throughtime.layout.previous_step import PreviousStep
from throughtime.native.gemm import rows_times_matrix, weight_gradient
from throughtime.native.gemm.policy import gemm_policy

_NARROW = range(2, 9)
"""Numbers of columns with which torch takes about three times as long: an eighth of the threshold applies."""


def over_rows(
    g: Sequence[Tensor | PreviousStep], parts: Sequence[Tensor | PreviousStep], sum_parts: bool = False
) -> tuple[Tensor, Tensor]:
    """`cat(parts, 1)ᵀ @ cat(g, 1)`, for rows [n, ...] each, and the sum of `g`, or of the parts if it is asked for."""
    like = g[0].stream if isinstance(g[0], PreviousStep) else g[0]
    rows, (columns, features) = like.shape[0], [sum([part.shape[1] for part in side]) for side in (g, parts)]
    product, sums = like.new_empty(features, columns), like.new_empty(features if sum_parts else columns)
    if not rows or not columns or not features:
        summed = [part.tensor() if isinstance(part, PreviousStep) else part for part in (parts if sum_parts else g)]
        return product.zero_(), sums.copy_(torch.cat(summed, 1).sum(0))
    # Referenced as long as they are read.
    given = [part if isinstance(part, PreviousStep) else _with_rows(part) for part in (*g, *parts)]
    places = [_placed(part) for part in given]
    into = {"beside" if sum_parts else "sums": sums.data_ptr()}
    weight_gradient.weight_gradient(like.dtype, rows, places[: len(g)], places[len(g) :], product.data_ptr(), **into)
    return product, sums


def product_over_rows(a: Tensor, g: Tensor) -> Tensor:
    """`aᵀ @ g`, for rows [n, ...] each."""
    if a.shape[0] * a.shape[1] * g.shape[1] <= gemm_policy.value.torch_over_rows_up_to or a.dtype is not g.dtype:
        return torch.mm(a.t(), g)
    product = g.new_empty(a.shape[1], g.shape[1])
    # As long as they are read.
    given = [_with_rows(g), _with_rows(a)]
    places = [_placed(one) for one in given]
    weight_gradient.weight_gradient(g.dtype, a.shape[0], places[:1], places[1:], product.data_ptr())
    return product


def times(rows: Sequence[Tensor], matrices: Sequence[Tensor], *, out: Tensor | None = None) -> Tensor:
    """The sum of `rows @ matrix` of every pair, rows [n, ...] each."""
    count, columns, depth = rows[0].shape[0], matrices[0].shape[1], sum([matrix.shape[0] for matrix in matrices])
    if out is None:
        out = rows[0].new_empty(count, columns)
    alike = {tensor.dtype for tensor in (*rows, *matrices)} == {out.dtype}
    torch_up_to = gemm_policy.value.torch_up_to >> (3 if columns in _NARROW else 0)
    if count * columns * depth <= torch_up_to or not alike:
        # Torch also raises for arguments that do not fit.
        torch.mm(rows[0], matrices[0], out=out)
        for pair in zip(rows[1:], matrices[1:], strict=True):
            out.addmm_(*pair)
        return out
    # Referenced as long as they are read.
    given, plain = [_with_rows(tensor) for tensor in rows], [matrix.resolve_neg() for matrix in matrices]
    places = [rows_times_matrix.StridedMatrix(matrix.data_ptr(), *matrix.stride(), *matrix.shape) for matrix in plain]
    rows_times_matrix.rows_times_matrices(out.dtype, count, [*map(_placed, given)], places, _placed(out))
    return out


def _placed(rows: Tensor | PreviousStep) -> weight_gradient.StridedRows:
    if isinstance(rows, PreviousStep):
        return rows.placed()
    return weight_gradient.StridedRows(rows.data_ptr(), rows.stride(0) * rows.dtype.itemsize, rows.shape[1])


def _with_rows(tensor: Tensor) -> Tensor:
    """The same with contiguous rows."""
    return tensor.resolve_neg() if tensor.stride(1) == 1 else tensor.resolve_neg().contiguous()
