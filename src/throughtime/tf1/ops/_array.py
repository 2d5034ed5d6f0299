"""Arrays: shapes and their change, joining and filling."""

from __future__ import annotations

from typing import Any

import torch

from throughtime.tf1.graph._dtypes import as_dtype, float32, int32
from throughtime.tf1.graph._operation import Tensor as GraphTensor
from throughtime.tf1.ops._table import Static, Tensor, Tensors, ints, operation


def _torch_dtype(dtype: Any) -> Any:
    return as_dtype(dtype).torch_dtype


@operation("identity", op_name="Identity")
def identity(input: Tensor) -> Tensor:  # noqa: A002
    """The value itself."""
    return input


@operation("stop_gradient", op_name="StopGradient", differentiable=False)
def stop_gradient(input: Tensor) -> Tensor:  # noqa: A002
    """The value, as a constant for gradients."""
    return input.detach()


@operation("shape", op_name="Shape", differentiable=False)
def shape(input: Tensor, out_type: Static = int32) -> Tensor:  # noqa: A002
    """The shape at run time."""
    return torch.tensor(tuple(input.shape), dtype=_torch_dtype(out_type), device="cpu")


@operation("reshape", op_name="Reshape")
def reshape(tensor: Tensor, shape: Static) -> Tensor:
    """The same elements in another shape."""
    sizes = ints(shape)
    return torch.reshape(tensor, sizes if isinstance(sizes, list) else [sizes])


@operation("zeros", op_name="Fill", scope="zeros")
def zeros(shape: Static, dtype: Static = float32) -> Tensor:
    """Zeros."""
    return torch.zeros(ints(shape), dtype=_torch_dtype(dtype))


@operation("ones", op_name="Fill", scope="ones")
def ones(shape: Static, dtype: Static = float32) -> Tensor:
    """Ones."""
    return torch.ones(ints(shape), dtype=_torch_dtype(dtype))


@operation("concat", op_name="ConcatV2", scope="concat")
def concat(values: Tensors, axis: Static) -> Tensor:
    """Tensors joined along an axis."""
    return torch.cat(list(values), ints(axis))


@operation("stack", op_name="Pack", scope="stack")
def stack(values: Tensors, axis: Static = 0) -> Tensor:
    """Tensors joined along a new axis."""
    return torch.stack(list(values), axis)


def _pieces(value: GraphTensor, num: Any, axis: int) -> int:
    sizes = value.shape.sizes
    count = num if num is not None else None if sizes is None else sizes[axis]
    if count is None:
        raise ValueError(f"Cannot infer num from shape {value.shape}; pass num=")
    return int(count)


@operation(
    "unstack", op_name="Unpack", scope="unstack",
    dtypes=lambda value, num, axis: [value.dtype.base_dtype] * _pieces(value, num, axis),
)  # fmt: skip
def unstack(value: Tensor, num: Static = None, axis: Static = 0) -> tuple[Tensor, ...]:
    """The parts of a tensor along an axis."""
    return torch.unbind(value, axis)


@operation(
    "reduce_sum", "math.reduce_sum", op_name="Sum", spellings={"reduction_indices": "axis", "keep_dims": "keepdims"}
)
def reduce_sum(input_tensor: Tensor, axis: Static = None, keepdims: Static = False) -> Tensor:
    """The sum over axes, over all if `axis` is None."""
    axes = list(range(input_tensor.ndim)) if axis is None else ints(axis)
    return torch.sum(input_tensor, axes, bool(keepdims), dtype=input_tensor.dtype) if axes != [] else input_tensor
