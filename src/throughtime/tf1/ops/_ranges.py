"""`tf.range`: its dtype is that of its arguments together, its size is known if they are."""

from __future__ import annotations

from typing import Any

import torch

from throughtime.tf1._namespace import exported
from throughtime.tf1.graph._dtypes import as_dtype, float32, float64, int32, int64
from throughtime.tf1.ops._convert import convert_to_tensor, is_tensor, numpy_value
from throughtime.tf1.ops._helpers import torch_dtype
from throughtime.tf1.ops._table import Static, Tensor, operation

_ORDER = (int32, int64, float32, float64)


@operation("range", op_name="Range", scope="range", differentiable=False)
def _range(start: Tensor, limit: Tensor, delta: Tensor, dtype: Static) -> Tensor:
    """Numbers from `start` up to, but without, `limit`."""
    kind = torch_dtype(dtype)
    numbers = (one.item() for one in (start, limit, delta))
    return torch.arange(*numbers, dtype=kind, device="cpu" if not kind.is_floating_point else None)


@exported("range")
def range_(start: Any, limit: Any = None, delta: Any = 1, dtype: Any = None, name: str = "range") -> Any:
    """Numbers from `start` (0 if only one is given) up to, but without, `limit`."""
    if limit is None:
        start, limit = 0, start
    given = [start, limit, delta]
    kind = as_dtype(dtype) if dtype is not None else max((_dtype(one) for one in given), key=_ORDER.index)
    tensors = [_as(one, kind) for one in given]
    return _range(*tensors, dtype=kind, name=name)


def _dtype(value: Any) -> Any:
    found = as_dtype(value.dtype) if is_tensor(value) else as_dtype(numpy_value(value, None).dtype)
    return found.base_dtype if found.base_dtype in _ORDER else float32


def _as(value: Any, kind: Any) -> Any:
    if is_tensor(value):
        from throughtime.tf1._namespace import lookup  # noqa: PLC0415

        tensor = convert_to_tensor(value)
        return tensor if tensor.dtype.base_dtype == kind else lookup("cast")(tensor, kind)
    return convert_to_tensor(numpy_value(value, None).astype(kind.as_numpy_dtype), kind)
