"""Order: largest elements, sorting, searching, counting."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import torch

from throughtime.tf1._namespace import exported
from throughtime.tf1.graph._dtypes import bool_, int32, int64
from throughtime.tf1.ops._helpers import plain, torch_dtype
from throughtime.tf1.ops._table import Static, Tensor, operation


def _arg(name: str, op_name: str, function: Any, doc: str) -> None:
    def kernel(input: Tensor, axis: Static = 0, output_type: Static = int64) -> Tensor:  # noqa: A002
        return function(input, int(plain(axis))).to(torch_dtype(output_type))

    kernel.__doc__ = doc
    operation(
        name,
        op_name=op_name,
        spellings={"dimension": "axis"},
        differentiable=False,
        positional=("input", "axis", "name", "dimension", "output_type"),
    )(kernel)

    def old(input: Tensor, dimension: Static, output_type: Static = int64) -> Tensor:  # noqa: A002
        return function(input, int(plain(dimension))).to(torch_dtype(output_type))

    old.__doc__ = doc
    operation(f"arg_{name[3:]}", op_name=op_name, differentiable=False)(old)


def _first_largest(x: Tensor, axis: int) -> Tensor:
    """The first of equal elements, as TensorFlow counts; torch leaves it open."""
    if x.is_meta:
        return torch.argmax(x, axis)
    best = x == torch.amax(x, axis, keepdim=True)
    return torch.argmax(best.to(torch.uint8), axis)


_arg("argmax", "ArgMax", _first_largest, "The index of the largest element along an axis.")
_arg("argmin", "ArgMin", lambda x, axis: _first_largest(-x, axis), "The index of the smallest element along an axis.")

TopKV2 = namedtuple("TopKV2", ["values", "indices"])  # noqa: PYI024


@operation("nn.top_k", op_name="TopKV2")
def _top_k(input: Tensor, k: Static = 1, sorted: Static = True) -> tuple[Tensor, Tensor]:  # noqa: A002
    """The `k` largest elements along the last axis, and their indices; of equal ones the first."""
    values, order = torch.sort(input, dim=-1, descending=True, stable=True)
    count = int(plain(k))
    if count > input.shape[-1]:
        raise ValueError(f"input must have last dimension >= k = {count} but is {input.shape[-1]}")
    return values[..., :count], order[..., :count].to(torch.int32)


@exported("nn.top_k", "math.top_k")
def top_k(input: Any, k: Any = 1, sorted: bool = True, name: str | None = None) -> Any:  # noqa: A002
    """The `k` largest elements along the last axis, and their indices."""
    return TopKV2(*_top_k(input, k, sorted, name=name))


@operation(
    "nn.in_top_k",
    op_name="InTopKV2",
    scope="in_top_k/InTopKV2",
    differentiable=False,
    dtypes=lambda **_: [bool_],
    shape_rule=lambda predictions, targets, k: [targets.shape],
)
def in_top_k(predictions: Tensor, targets: Tensor, k: Static) -> Tensor:
    """Whether the prediction for the target is among the `k` largest of its row; equal ones count."""
    chosen = torch.gather(predictions, 1, targets.long().unsqueeze(1))
    larger = (predictions > chosen).sum(1)
    return (larger < int(plain(k))) & torch.isfinite(chosen.squeeze(1))


@operation("sort", op_name="Sort", scope="sort")
def sort(values: Tensor, axis: Static = -1, direction: Static = "ASCENDING") -> Tensor:
    """The elements in order along an axis."""
    return torch.sort(values, dim=int(axis), descending=_descending(direction), stable=True).values


@operation("argsort", op_name="ArgSort", scope="argsort", differentiable=False)
def argsort(values: Tensor, axis: Static = -1, direction: Static = "ASCENDING", stable: Static = False) -> Tensor:
    """The indices that put elements in order along an axis."""
    return torch.sort(values, dim=int(axis), descending=_descending(direction), stable=True).indices.to(torch.int32)


def _descending(direction: str) -> bool:
    if direction not in {"ASCENDING", "DESCENDING"}:
        raise ValueError(f"direction should be 'ASCENDING' or 'DESCENDING', got {direction!r}")
    return direction == "DESCENDING"


@operation(
    "searchsorted",
    op_name="SearchSorted",
    scope="searchsorted",
    differentiable=False,
    same_dtype=("sorted_sequence", "values"),
)
def searchsorted(sorted_sequence: Tensor, values: Tensor, side: Static = "left", out_type: Static = int32) -> Tensor:
    """Where values would be inserted into sorted rows."""
    if values.is_meta:
        return torch.empty_like(values, dtype=torch_dtype(out_type))
    found = torch.searchsorted(sorted_sequence.contiguous(), values.contiguous(), right=side == "right")
    return found.to(torch_dtype(out_type))


@operation("nn.zero_fraction", op_name="zero_fraction", scope="zero_fraction", differentiable=False)
def zero_fraction(value: Tensor) -> Tensor:
    """The share of elements that are zero."""
    return torch.mean((value == 0).to(torch.float32))


@operation(
    "bincount",
    op_name="Bincount",
    scope="bincount",
    differentiable=False,
    dtypes=lambda arr, weights, minlength, maxlength, dtype: [dtype if weights is None else weights.dtype],
    shape_rule=lambda **_: [(None,)],
)
def bincount(
    arr: Tensor,
    weights: Tensor | None = None,
    minlength: Static = None,
    maxlength: Static = None,
    dtype: Static = int32,
) -> Tensor:
    """How often each number occurs, or the sum of the weights of its occurrences."""
    numbers = arr.reshape(-1).long()
    size = max(int(numbers.max()) + 1 if numbers.numel() else 0, int(plain(minlength or 0)))
    size = min(size, int(plain(maxlength))) if maxlength is not None else size
    inside = numbers < size
    given = torch.ones_like(numbers, dtype=torch_dtype(dtype)) if weights is None else weights.reshape(-1)
    return torch.zeros(size, dtype=given.dtype).index_add(0, numbers[inside], given[inside])


def _bins(values: Tensor, value_range: Any, nbins: Any) -> Tensor:
    low, high = (value_range[0], value_range[1])
    count = int(plain(nbins))
    place = torch.floor(count * (values - low) / (high - low))
    return place.clamp(0, count - 1).to(torch.int64)


@operation(
    "histogram_fixed_width",
    op_name="HistogramFixedWidth",
    scope="histogram_fixed_width",
    differentiable=False,
    dtypes=lambda values, value_range, nbins, dtype: [dtype],
    shape_rule=lambda values, value_range, nbins, dtype: [(nbins,)],
)
def histogram_fixed_width(values: Tensor, value_range: Static, nbins: Static = 100, dtype: Static = int32) -> Tensor:
    """How many values lie in each of `nbins` intervals of equal width."""
    places = _bins(values, value_range, nbins).reshape(-1)
    return torch.bincount(places, minlength=int(plain(nbins))).to(torch_dtype(dtype))


@operation("histogram_fixed_width_bins", op_name="histogram_fixed_width_bins", differentiable=False)
def histogram_fixed_width_bins(
    values: Tensor, value_range: Static, nbins: Static = 100, dtype: Static = int32
) -> Tensor:
    """The interval that each value lies in."""
    return _bins(values, value_range, nbins).to(torch_dtype(dtype))


@operation(
    "confusion_matrix",
    op_name="ConfusionMatrix",
    scope="confusion_matrix",
    differentiable=False,
    positional=("labels", "predictions", "num_classes", "dtype", "name", "weights"),
    dtypes=lambda labels, predictions, num_classes, dtype, weights: [dtype],
    shape_rule=lambda labels, predictions, num_classes, dtype, weights: [(num_classes, num_classes)],
)
def confusion_matrix(
    labels: Tensor,
    predictions: Tensor,
    num_classes: Static = None,
    dtype: Static = int32,
    weights: Tensor | None = None,
) -> Tensor:
    """How often each label (row) was predicted as each class (column)."""
    rows, columns = labels.reshape(-1).long(), predictions.reshape(-1).long()
    size = int(plain(num_classes)) if num_classes is not None else int(max(rows.max(), columns.max())) + 1
    given = torch.ones_like(rows) if weights is None else weights.reshape(-1)
    kind = torch_dtype(dtype)
    return torch.zeros(size * size, dtype=kind).index_add(0, rows * size + columns, given.to(kind)).reshape(size, size)
