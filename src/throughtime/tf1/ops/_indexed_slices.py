"""`IndexedSlices`: rows of a large tensor that is zero elsewhere, such as the gradient of an embedding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from throughtime._errors import problem
from throughtime.tf1._namespace import export, exported
from throughtime.tf1.graph._graph import create_op
from throughtime.tf1.graph._operation import Operation, Tensor
from throughtime.tf1.graph._shapes import TensorShape


@exported("IndexedSlicesValue")
class IndexedSlicesValue(NamedTuple):
    """What a run gives for `IndexedSlices`."""

    values: Any
    indices: Any
    dense_shape: Any


@exported("IndexedSlices")
class IndexedSlices:
    """The rows `values[i]` at `indices[i]`; equal indices add up."""

    def __init__(self, values: Any, indices: Any, dense_shape: Any = None) -> None:
        self._values, self._indices, self._dense_shape = values, indices, dense_shape

    @property
    def values(self) -> Tensor:
        """The rows."""
        found: Tensor = self._values
        return found

    @property
    def indices(self) -> Tensor:
        """Where each row lies."""
        found: Tensor = self._indices
        return found

    @property
    def dense_shape(self) -> Any:
        """The shape of the whole tensor, as a tensor, or None."""
        return self._dense_shape

    @property
    def name(self) -> str:
        """The name of the rows."""
        return self.values.name

    @property
    def device(self) -> str:
        """The device of the rows."""
        return self.values.device

    @property
    def op(self) -> Operation:
        """The operation that makes the rows."""
        return self.values.op

    @property
    def dtype(self) -> Any:
        """The dtype of the rows."""
        return self.values.dtype

    @property
    def graph(self) -> Any:
        """The graph of the rows."""
        return self.values.graph

    @property
    def shape(self) -> TensorShape:
        """What is known of the whole tensor's shape."""
        rest = self.values.shape.sizes
        return TensorShape(None if rest is None else [None, *rest[1:]])

    def get_shape(self) -> TensorShape:
        """What is known of the whole tensor's shape."""
        return self.shape

    def __neg__(self) -> IndexedSlices:
        return IndexedSlices(-self.values, self.indices, self.dense_shape)  # type: ignore[operator]

    def __repr__(self) -> str:
        return f"IndexedSlices(indices={self.indices}, values={self.values}, dense_shape={self.dense_shape})"

    def _as_tensor(self) -> Tensor:
        """The whole tensor."""
        if self.dense_shape is None:
            fix = "Make it with `dense_shape=`."
            what = "IndexedSlices cannot become a tensor"
            raise ValueError(problem(what, got="no dense_shape", expected="the shape of the whole", fix=fix))

        def kernel(values: torch.Tensor, indices: torch.Tensor, shape: torch.Tensor) -> torch.Tensor:
            return values.new_zeros(tuple(shape.tolist())).index_add(0, indices, values)

        shape = self.shape
        parts = [self.values, self.indices, self.dense_shape]
        return create_op("UnsortedSegmentSum", kernel, parts, dtypes=[self.dtype], shapes=[shape]).outputs[0]

    def _fetch_parts(self) -> tuple[list[Any], Callable[..., Any]]:
        """What a run fetches for it, and what it makes of that."""
        if self.dense_shape is None:
            return [self.values, self.indices], lambda values, indices: IndexedSlicesValue(values, indices, None)
        return [self.values, self.indices, self.dense_shape], IndexedSlicesValue


export("python.framework.ops.IndexedSlices", IndexedSlices)
