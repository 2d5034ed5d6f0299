"""A tensor as it is, its shape, and the same elements in another shape."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from throughtime.tf1._namespace import exported
from throughtime.tf1.graph._dtypes import as_dtype, float32, int32, string
from throughtime.tf1.ops._convert import constant, is_tensor
from throughtime.tf1.ops._helpers import sizes_of, torch_dtype
from throughtime.tf1.ops._structure import measures_strings, takes_strings
from throughtime.tf1.ops._table import Static, Tensor, ints, operation


@operation("identity", op_name="Identity")
@takes_strings
def identity(input: Tensor) -> Tensor:  # noqa: A002
    """The value itself."""
    return input


@operation("stop_gradient", op_name="StopGradient", differentiable=False)
def stop_gradient(input: Tensor) -> Tensor:  # noqa: A002
    """The value, as a constant for gradients."""
    return input.detach()


@operation("guarantee_const", op_name="GuaranteeConst", differentiable=False)
def guarantee_const(input: Tensor) -> Tensor:  # noqa: A002
    """The value, as a constant for gradients."""
    return input.detach()


@operation("shape", op_name="Shape", differentiable=False, positional=("input", "name", "out_type"))
@measures_strings
def shape(input: Tensor, out_type: Static = int32) -> Tensor:  # noqa: A002
    """The shape at run time."""
    return torch.tensor(tuple(input.shape), dtype=torch_dtype(out_type), device="cpu")


def _reshaped(tensor: Any, shape: Any) -> list[Any]:
    return [sizes_of(shape)]


@operation("reshape", op_name="Reshape", fallback_rule=_reshaped)
@takes_strings
def reshape(tensor: Tensor, shape: Static) -> Tensor:
    """The same elements in another shape."""
    sizes = ints(shape)
    if not isinstance(sizes, list):
        raise ValueError(f"Shape must be rank 1 but is rank 0: use [{sizes}]")
    return torch.reshape(tensor, sizes)


@operation("zeros", op_name="Fill", scope="zeros", differentiable=False)
def _zeros(shape: Static, dtype: Static = float32) -> Tensor:
    """Zeros."""
    return torch.zeros(ints(shape), dtype=torch_dtype(dtype))


@operation("ones", op_name="Fill", scope="ones", differentiable=False)
def _ones(shape: Static, dtype: Static = float32) -> Tensor:
    """Ones."""
    return torch.ones(ints(shape), dtype=torch_dtype(dtype))


@exported("zeros")
def zeros(shape: Any, dtype: Any = float32, name: str | None = None) -> Any:
    """Zeros; strings are empty."""
    if as_dtype(dtype).base_dtype == string and not is_tensor(shape):
        return constant(np.full(ints(shape), b"", object), string, name=name or "zeros")
    return _zeros(_sizes(shape), dtype, name=name)


@exported("ones")
def ones(shape: Any, dtype: Any = float32, name: str | None = None) -> Any:
    """Ones."""
    return _ones(_sizes(shape), dtype, name=name)


def _sizes(shape: Any) -> Any:
    """A number stands for a vector of that size."""
    return [shape] if isinstance(shape, int) else shape
