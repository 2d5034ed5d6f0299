"""Reductions over axes, with the old spellings of their arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from throughtime.tf1.graph._dtypes import int64
from throughtime.tf1.ops._helpers import axes, torch_dtype
from throughtime.tf1.ops._table import Static, Tensor, operation

Reduction = Callable[[Tensor, list[int], bool], Tensor]
SPELLINGS = {"reduction_indices": "axis", "keep_dims": "keepdims"}


def _mean(x: Tensor, over: list[int], keep: bool) -> Tensor:
    if x.is_floating_point() or x.is_complex():
        return torch.mean(x, over, keep)
    count = 1
    for axis in over:
        count *= x.shape[axis]
    return torch.div(torch.sum(x, over, keep, dtype=x.dtype), count, rounding_mode="trunc")


def _product(x: Tensor, over: list[int], keep: bool) -> Tensor:
    for axis in reversed(over):
        x = torch.prod(x, axis, keep, dtype=x.dtype)
    return x


def _variance(x: Tensor, over: list[int], keep: bool) -> Tensor:
    return torch.mean(torch.square(x - torch.mean(x, over, True)), over, keep)


def _any(x: Tensor, over: list[int], keep: bool) -> Tensor:
    for axis in reversed(over):
        x = torch.any(x, axis, keep)
    return x


def _all(x: Tensor, over: list[int], keep: bool) -> Tensor:
    for axis in reversed(over):
        x = torch.all(x, axis, keep)
    return x


def _reduction(name: str, op_name: str, reduce: Reduction, doc: str, old: bool = True, **options: Any) -> None:
    def kernel(input_tensor: Tensor, axis: Static = None, keepdims: Static = False) -> Tensor:
        over = axes(axis, input_tensor.ndim)
        return (
            reduce(input_tensor, over, bool(keepdims))
            if over
            else reduce(input_tensor.unsqueeze(-1), [input_tensor.ndim], False)
        )

    kernel.__doc__ = doc
    kernel.__name__ = name.rpartition(".")[2]
    positional = ("input_tensor", "axis", "keepdims", "name", *(SPELLINGS if old else ()))
    operation(name, op_name=op_name, spellings=SPELLINGS if old else None, positional=positional, **options)(kernel)


_reduction("reduce_sum", "Sum", lambda x, over, keep: torch.sum(x, over, keep, dtype=x.dtype), "The sum.")
_reduction("reduce_mean", "Mean", _mean, "The mean; of whole numbers a whole number.")
_reduction("reduce_max", "Max", torch.amax, "The largest number.")
_reduction("reduce_min", "Min", torch.amin, "The smallest number.")
_reduction("reduce_prod", "Prod", _product, "The product.")
_reduction("reduce_all", "All", _all, "Whether all hold.", differentiable=False)
_reduction("reduce_any", "Any", _any, "Whether one holds.", differentiable=False)
_reduction("reduce_logsumexp", "ReduceLogSumExp", torch.logsumexp, "The logarithm of the sum of exponentials.")
_reduction(
    "math.reduce_euclidean_norm",
    "EuclideanNorm",
    lambda x, over, keep: torch.linalg.vector_norm(x, 2, over, keep),
    "The root of the sum of squares.",
    old=False,
    differentiable=False,
)
_reduction("math.reduce_variance", "reduce_variance", _variance, "The variance.", old=False)
_reduction("math.reduce_std", "reduce_std", lambda *a: torch.sqrt(_variance(*a)), "The standard deviation.", old=False)


@operation(
    "count_nonzero",
    op_name="count_nonzero",
    differentiable=False,
    spellings={**SPELLINGS, "input": "input_tensor"},
    positional=("input_tensor", "axis", "keepdims", "dtype", "name", "reduction_indices", "keep_dims", "input"),
)
def count_nonzero(input_tensor: Tensor, axis: Static = None, keepdims: Static = False, dtype: Static = int64) -> Tensor:
    """The number of elements that are not zero."""
    return torch.sum(input_tensor != 0, axes(axis, input_tensor.ndim), bool(keepdims), dtype=torch_dtype(dtype))
