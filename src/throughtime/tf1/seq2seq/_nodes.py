"""Small nodes that several modules of this package make."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from throughtime.tf1.functions._tensor_array import TensorArray
from throughtime.tf1.graph._dtypes import as_dtype, int32
from throughtime.tf1.graph._graph import create_op
from throughtime.tf1.graph._operation import Tensor
from throughtime.tf1.graph._shapes import Dimension
from throughtime.tf1.ops._convert import constant_value, convert_to_tensor


def node(op_type: str, kernel: Callable[..., Any], inputs: Sequence[Any], *, like: Tensor | None = None) -> Tensor:
    """One operation with one output; `like` has its dtype and shape where the kernel needs real values."""
    tensors = [convert_to_tensor(one) for one in inputs]
    if like is None:
        return create_op(op_type, kernel, tensors).outputs[0]
    return create_op(op_type, kernel, tensors, dtypes=[like.dtype.base_dtype], shapes=[like.shape]).outputs[0]


def known(value: Any) -> int | None:
    """A size as a number, None if only a run tells it."""
    if isinstance(value, Dimension):
        return value.value
    found = constant_value(value) if isinstance(value, Tensor) else value
    return None if found is None else int(found)


def size_of(tensor: Tensor, axis: int) -> Any:
    """The size of an axis: a number if it is known, else a tensor."""
    sizes = tensor.shape.sizes
    if sizes is not None and sizes[axis] is not None:
        return sizes[axis]
    kernel = lambda value: torch.tensor(value.shape[axis], dtype=torch.int32, device="cpu")  # noqa: E731
    return create_op("Shape", kernel, [tensor], dtypes=[int32], shapes=[()]).outputs[0]


def zeros(rows: Any, width: Any, dtype: Any) -> Tensor:
    """Zeros [rows, width], where both sizes may be tensors."""
    kind = as_dtype(dtype).base_dtype
    kernel = lambda first, second: torch.zeros(int(first), int(second), dtype=kind.torch_dtype)  # noqa: E731
    sizes = [convert_to_tensor(known(one) if known(one) is not None else one, int32) for one in (rows, width)]
    return create_op("Fill", kernel, sizes, name="zeros", dtypes=[kind], shapes=[(known(rows), known(width))]).outputs[
        0
    ]


def _select(done: torch.Tensor, old: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
    return torch.where(done.reshape([*done.shape, *[1] * (new.ndim - done.ndim)]), old, new)


def unless(finished: Tensor, old: Any, new: Any) -> Any:
    """`old` for sequences that have ended, else `new`; arrays and what has no batch axis are new."""
    if isinstance(new, TensorArray) or convert_to_tensor(new).shape.ndims == 0:
        return new
    tensor = convert_to_tensor(new)
    return node("Select", _select, [finished, old, tensor], like=tensor)


def unless_zero(finished: Tensor, new: Any) -> Tensor:
    """Zeros for sequences that have ended, else `new`."""
    tensor = convert_to_tensor(new)
    kernel = lambda done, value: _select(done, torch.zeros_like(value), value)  # noqa: E731
    return node("Select", kernel, [finished, tensor], like=tensor)


def swapped(tensor: Tensor) -> Tensor:
    """The first two axes in the other order."""
    sizes = tensor.shape.sizes
    if sizes is not None and len(sizes) < 2:
        return tensor
    return node("Transpose", lambda value: value.transpose(0, 1) if value.ndim > 1 else value, [tensor])
