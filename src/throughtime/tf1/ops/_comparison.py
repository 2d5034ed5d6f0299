"""Comparison and selection."""

from __future__ import annotations

import numpy as np
import torch

from throughtime.tf1.graph._dtypes import bool_
from throughtime.tf1.ops._table import Tensor, operation


def _compared(name: str, op_name: str, holds: bool) -> None:
    def kernel(x: Tensor, y: Tensor) -> Tensor:
        if isinstance(x, np.ndarray):
            return torch.as_tensor(np.asarray(np.equal(x, y) if holds else np.not_equal(x, y), bool))
        return torch.eq(x, y) if holds else torch.ne(x, y)

    kernel.__doc__ = f"Where both are {'equal' if holds else 'different'}."
    operation(name, op_name=op_name, same_dtype=("x", "y"), differentiable=False, dtypes=lambda x, y: [bool_])(kernel)


_compared("equal", "Equal", True)
_compared("not_equal", "NotEqual", False)


def _where_rank(condition: object, x: object, y: object) -> list[object]:
    shape = condition.shape  # type: ignore[attr-defined]
    return [(None, None if shape.sizes is None else len(shape.sizes))]
