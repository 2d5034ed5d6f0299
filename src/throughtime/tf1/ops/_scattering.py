"""Values written into zeros or into a tensor by index, and partitions."""

from __future__ import annotations

from typing import Any

import torch

from throughtime.tf1._namespace import exported
from throughtime.tf1.ops._helpers import plain
from throughtime.tf1.ops._structure import takes_strings
from throughtime.tf1.ops._table import Static, Tensor, Tensors, ints, operation


def put(target: Tensor, indices: Tensor, updates: Tensor, accumulate: bool) -> Tensor:
    """A copy of `target` with `updates` written, or added, at index tuples."""
    if target.is_meta:
        return torch.empty_like(target)
    places = tuple(indices.long().unbind(-1))
    return target.index_put(places, updates, accumulate=accumulate)


@operation("scatter_nd", op_name="ScatterNd")
def scatter_nd(indices: Tensor, updates: Tensor, shape: Static) -> Tensor:
    """Zeros with `updates` added at index tuples."""
    return put(torch.zeros(ints(shape), dtype=updates.dtype), indices, updates, True)


def _tensor_scatter(name: str, op_name: str, sign: int | None, doc: str, *others: str) -> None:
    def kernel(tensor: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
        return put(tensor, indices, updates if sign is None else sign * updates, sign is not None)

    kernel.__doc__ = doc
    operation(name, *others, op_name=op_name, same_dtype=("tensor", "updates"))(kernel)


_tensor_scatter(
    "tensor_scatter_nd_update", "TensorScatterUpdate", None, "A copy with values replaced.", "tensor_scatter_update"
)
_tensor_scatter("tensor_scatter_nd_add", "TensorScatterAdd", 1, "A copy with values added.", "tensor_scatter_add")
_tensor_scatter("tensor_scatter_nd_sub", "TensorScatterSub", -1, "A copy with values subtracted.", "tensor_scatter_sub")


@operation(
    "sparse_to_dense",
    op_name="SparseToDense",
    differentiable=False,
    same_dtype=("sparse_values", "default_value"),
    positional=("sparse_indices", "output_shape", "sparse_values", "default_value", "validate_indices", "name"),
)
def sparse_to_dense(
    sparse_indices: Tensor,
    output_shape: Static,
    sparse_values: Tensor,
    default_value: Tensor | int = 0,
    validate_indices: Static = True,
) -> Tensor:
    """A tensor of one value with others written at indices."""
    target = torch.as_tensor(default_value).expand(ints(output_shape)).clone()
    places = sparse_indices.reshape(-1, 1) if sparse_indices.ndim < 2 else sparse_indices
    return put(target, places, sparse_values.expand(places.shape[0]), False)


def _partition_shapes(data: Any, partitions: Any, num_partitions: Any) -> list[Any]:
    sizes, rank = data.shape.sizes, partitions.shape.sizes
    known = None if sizes is None or rank is None else [None, *sizes[len(rank) :]]
    return [known] * int(num_partitions)


@operation(
    "dynamic_partition",
    op_name="DynamicPartition",
    shape_rule=_partition_shapes,
    dtypes=lambda data, partitions, num_partitions: [data.dtype.base_dtype] * int(num_partitions),
)
@takes_strings
def _dynamic_partition(data: Tensor, partitions: Tensor, num_partitions: Static) -> tuple[Tensor, ...]:
    """The rows of each partition."""
    return tuple(data[partitions == number] for number in range(int(plain(num_partitions))))


@exported("dynamic_partition")
def dynamic_partition(data: Any, partitions: Any, num_partitions: int, name: str | None = None) -> list[Any]:
    """The rows of each partition, as a list."""
    result = _dynamic_partition(data, partitions, num_partitions, name=name)
    return list(result) if isinstance(result, list | tuple) else [result]


def _stitched_shape(indices: Any, data: Any) -> list[Any]:
    sizes, rank = data[0].shape.sizes, indices[0].shape.sizes
    known = [one.host[0].max().item() for one in indices if one.host is not None and one.host[0].numel()]
    count = max(known) + 1 if known and len(known) == len(indices) else None
    return [None if sizes is None or rank is None else [count, *sizes[len(rank) :]]]


@operation(
    "dynamic_stitch",
    "parallel_dynamic_stitch",
    op_name="DynamicStitch",
    shape_rule=_stitched_shape,
    dtypes=lambda indices, data: [data[0].dtype.base_dtype],
)
def dynamic_stitch(indices: Tensors, data: Tensors) -> Tensor:
    """Rows of several tensors put at their indices."""
    places = torch.cat([one.reshape(-1) for one in indices]).long()
    inner = data[0].shape[indices[0].ndim :]
    rows = torch.cat([one.reshape(-1, *inner) for one in data])
    count = int(places.max()) + 1 if places.numel() else 0
    last = torch.zeros(count, dtype=torch.long).index_put((places,), torch.arange(len(places)))
    return rows[last]
