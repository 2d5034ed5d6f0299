"""`SparseTensor`: indices, values and a shape; the operations that dense programs use."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import torch

from throughtime.tf1._namespace import exported
from throughtime.tf1.graph._dtypes import as_dtype, int64
from throughtime.tf1.graph._graph import Graph
from throughtime.tf1.graph._shapes import TensorShape
from throughtime.tf1.ops._convert import constant_value, convert_to_tensor
from throughtime.tf1.ops._helpers import axes, plain
from throughtime.tf1.ops._table import Static, Tensor, ints, operation

SparseTensorValue = exported("SparseTensorValue", "compat.v1.SparseTensorValue")(
    namedtuple("SparseTensorValue", ["indices", "values", "dense_shape"])  # noqa: PYI024
)


@exported("SparseTensor", "sparse.SparseTensor")
class SparseTensor:
    """A tensor with most elements missing: `indices` `[n, rank]`, `values` `[n]`, and the shape it would have."""

    def __init__(self, indices: Any, values: Any, dense_shape: Any):
        self._indices = convert_to_tensor(indices, None if hasattr(indices, "op") else int64, name="indices")
        self._values = convert_to_tensor(values, name="values")
        self._dense_shape = convert_to_tensor(
            dense_shape, None if hasattr(dense_shape, "op") else int64, name="dense_shape"
        )

    @classmethod
    def from_value(cls, value: Any) -> Any:
        """A `SparseTensor` of its value."""
        return value if isinstance(value, SparseTensor) else cls(value[0], value[1], value[2])

    @property
    def indices(self) -> Any:
        """Where values are, `[n, rank]`."""
        return self._indices

    @property
    def values(self) -> Any:
        """The values, `[n]`."""
        return self._values

    @property
    def dense_shape(self) -> Any:
        """The shape of the whole tensor."""
        return self._dense_shape

    @property
    def op(self) -> Any:
        """The operation that makes the values."""
        return self._values.op

    @property
    def dtype(self) -> Any:
        """The dtype of the values."""
        return self._values.dtype

    @property
    def graph(self) -> Graph:
        """The graph of the values."""
        found: Graph = self._values.graph
        return found

    @property
    def shape(self) -> TensorShape:
        """The static shape."""
        return self.get_shape()

    def get_shape(self) -> TensorShape:
        """The static shape."""
        known = constant_value(self._dense_shape)
        return TensorShape(None) if known is None else TensorShape(known.tolist())

    def eval(self, feed_dict: Any = None, session: Any = None) -> Any:
        """The value in `session`, or in the default one."""
        found = self.graph.session_for(session, "SparseTensor.eval").run(
            [self._indices, self._values, self._dense_shape], feed_dict
        )
        return SparseTensorValue(*found)

    def __repr__(self) -> str:
        return f"SparseTensor(indices={self._indices}, values={self._values}, dense_shape={self._dense_shape})"


def _dense(indices: Tensor, values: Tensor, shape: Any, default: Any = 0) -> Tensor:
    target = torch.full(ints(shape), plain(default), dtype=values.dtype)
    return target.index_put(tuple(indices.long().unbind(-1)), values)


@operation("sparse_tensor_to_dense", op_name="SparseToDense", differentiable=False)
def _to_dense(indices: Tensor, values: Tensor, dense_shape: Static, default_value: Static = 0) -> Tensor:
    """The whole tensor, with a default where no value is."""
    return _dense(indices, values, dense_shape, default_value)


@exported("sparse_tensor_to_dense", "sparse.to_dense")
def sparse_tensor_to_dense(
    sp_input: Any, default_value: Any = None, validate_indices: bool = True, name: str | None = None
) -> Any:
    """The whole tensor, with a default where no value is."""
    return _to_dense(
        sp_input.indices,
        sp_input.values,
        sp_input.dense_shape,
        0 if default_value is None else default_value,
        name=name,
    )


@operation(
    "sparse_tensor_dense_matmul",
    op_name="SparseTensorDenseMatMul",
    scope="SparseTensorDenseMatMul/SparseTensorDenseMatMul",
)
def _matmul(
    indices: Tensor,
    values: Tensor,
    dense_shape: Static,
    b: Tensor,
    adjoint_a: Static = False,
    adjoint_b: Static = False,
) -> Tensor:
    """A sparse matrix times a dense one."""
    matrix = _dense(indices, values, dense_shape)
    return (matrix.mT if adjoint_a else matrix) @ (b.mT if adjoint_b else b)


@exported("sparse_tensor_dense_matmul", "sparse.matmul", "sparse.sparse_dense_matmul")
def sparse_tensor_dense_matmul(
    sp_a: Any, b: Any, adjoint_a: bool = False, adjoint_b: bool = False, name: str | None = None
) -> Any:
    """A sparse matrix times a dense one."""
    return _matmul(sp_a.indices, sp_a.values, sp_a.dense_shape, b, adjoint_a, adjoint_b, name=name)


@operation("sparse_reduce_sum", op_name="SparseReduceSum")
def _reduce_sum(
    indices: Tensor, values: Tensor, dense_shape: Static, axis: Static = None, keepdims: Static = False
) -> Tensor:
    """The sum over axes, as a dense tensor."""
    dense = _dense(indices, values, dense_shape)
    return dense.sum(axes(axis, dense.ndim), bool(keepdims))


@exported("sparse_reduce_sum", "sparse.reduce_sum")
def sparse_reduce_sum(
    sp_input: Any, axis: Any = None, keepdims: Any = None, reduction_axes: Any = None, keep_dims: Any = None
) -> Any:
    """The sum over axes, as a dense tensor."""
    over, keep = axis if axis is not None else reduction_axes, keepdims or keep_dims or False
    return _reduce_sum(sp_input.indices, sp_input.values, sp_input.dense_shape, over, keep)


def _sorted(indices: Tensor, values: Tensor, sizes: list[int]) -> tuple[Tensor, Tensor]:
    """Indices and values in the order of rows."""
    flat = _flat(indices, sizes)
    order = torch.argsort(flat, stable=True)
    return indices[order], values[order]


def _flat(indices: Tensor, sizes: list[int]) -> Tensor:
    flat = torch.zeros(len(indices), dtype=torch.int64)
    for axis, size in enumerate(sizes):
        flat = flat * size + indices[:, axis]
    return flat


def _unflat(flat: Tensor, sizes: list[int]) -> Tensor:
    columns = []
    for size in reversed(sizes):
        columns.append(flat % size)
        flat = torch.div(flat, size, rounding_mode="floor")
    return torch.stack(columns[::-1], 1)


def _pairs(**given: Any) -> dict[str, Any]:
    return {
        "dtypes": lambda **a: [int64, a["values"].dtype.base_dtype],
        "shape_rule": lambda **a: [a["indices"].shape, a["values"].shape],
        **given,
    }


@operation("sparse_reorder", op_name="SparseReorder", **_pairs())
def _reorder(indices: Tensor, values: Tensor, dense_shape: Static) -> tuple[Tensor, Tensor]:
    """Indices and values in the order of rows."""
    return _sorted(indices, values, ints(dense_shape))


@exported("sparse_reorder", "sparse.reorder")
def sparse_reorder(sp_input: Any, name: str | None = None) -> SparseTensor:
    """The same tensor with indices in the order of rows."""
    indices, values = _reorder(sp_input.indices, sp_input.values, sp_input.dense_shape, name=name)
    return SparseTensor(indices, values, sp_input.dense_shape)


@operation(
    "sparse_reshape",
    op_name="SparseReshape",
    dtypes=lambda **_: [int64, int64],
    shape_rule=lambda **_: [(None, None), (None,)],
    differentiable=False,
)
def _reshape(indices: Tensor, dense_shape: Static, shape: Static) -> tuple[Tensor, Tensor]:
    """Indices in another shape, and that shape."""
    old, new = ints(dense_shape), list(ints(shape))
    if -1 in new:
        known = -int(torch.tensor(new).prod())
        new[new.index(-1)] = int(torch.tensor(old).prod()) // known
    return _unflat(_flat(indices, old), new), torch.tensor(new, dtype=torch.int64)


@exported("sparse_reshape", "sparse.reshape")
def sparse_reshape(sp_input: Any, shape: Any, name: str | None = None) -> SparseTensor:
    """The same values in another shape."""
    indices, sizes = _reshape(sp_input.indices, sp_input.dense_shape, shape, name=name)
    return SparseTensor(indices, sp_input.values, sizes)


@operation(
    "sparse_transpose",
    op_name="SparseTranspose",
    dtypes=lambda **a: [int64, a["values"].dtype.base_dtype, int64],
    shape_rule=lambda **a: [a["indices"].shape, a["values"].shape, (None,)],
    differentiable=False,
)
def _transpose(
    indices: Tensor, values: Tensor, dense_shape: Static, perm: Static = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Indices, values and shape with axes in another order."""
    sizes = ints(dense_shape)
    order = list(reversed(range(len(sizes)))) if perm is None else ints(perm)
    new = [sizes[axis] for axis in order]
    return *_sorted(indices[:, order], values, new), torch.tensor(new, dtype=torch.int64)


@exported("sparse_transpose", "sparse.transpose")
def sparse_transpose(sp_input: Any, perm: Any = None, name: str | None = None) -> SparseTensor:
    """Axes in another order."""
    return SparseTensor(*_transpose(sp_input.indices, sp_input.values, sp_input.dense_shape, perm, name=name))


@operation(
    "sparse_retain",
    op_name="SparseRetain",
    dtypes=lambda **a: [int64, a["values"].dtype.base_dtype],
    shape_rule=lambda **_: [(None, None), (None,)],
    differentiable=False,
)
def _retain(indices: Tensor, values: Tensor, to_retain: Tensor) -> tuple[Tensor, Tensor]:
    """The values that are marked."""
    return indices[to_retain], values[to_retain]


@exported("sparse_retain", "sparse.retain")
def sparse_retain(sp_input: Any, to_retain: Any) -> SparseTensor:
    """The values that are marked."""
    indices, values = _retain(sp_input.indices, sp_input.values, to_retain)
    return SparseTensor(indices, values, sp_input.dense_shape)


@operation(
    "sparse_softmax",
    op_name="SparseSoftmax",
    dtypes=lambda **a: [a["values"].dtype.base_dtype],
    shape_rule=lambda **a: [a["values"].shape],
)
def _softmax(indices: Tensor, values: Tensor, dense_shape: Static) -> Tensor:
    """Exponentials of the values of each row that sum to one."""
    rows = _flat(indices[:, :-1], ints(dense_shape)[:-1])
    largest = values.new_full((int(rows.max()) + 1,), float("-inf")).scatter_reduce(0, rows, values, "amax")
    powers = torch.exp(values - largest[rows])
    return powers / torch.zeros_like(largest).index_add(0, rows, powers)[rows]


@exported("sparse_softmax", "sparse.softmax")
def sparse_softmax(sp_input: Any, name: str | None = None) -> SparseTensor:
    """`softmax` along the last axis; missing elements count as minus infinity."""
    return SparseTensor(
        sp_input.indices,
        _softmax(sp_input.indices, sp_input.values, sp_input.dense_shape, name=name),
        sp_input.dense_shape,
    )


@operation(
    "sparse_add",
    op_name="SparseAdd",
    dtypes=lambda **a: [int64, a["first_values"].dtype.base_dtype],
    shape_rule=lambda **_: [(None, None), (None,)],
)
def _add(
    first_indices: Tensor, first_values: Tensor, second_indices: Tensor, second_values: Tensor, dense_shape: Static
) -> tuple[Tensor, Tensor]:
    """The sum of two sparse tensors."""
    sizes = ints(dense_shape)
    flat = torch.cat([_flat(first_indices, sizes), _flat(second_indices, sizes)])
    found, numbers = torch.unique(flat, return_inverse=True)
    sums = torch.zeros(len(found), dtype=first_values.dtype).index_add(
        0, numbers, torch.cat([first_values, second_values])
    )
    return _unflat(found, sizes), sums


@exported("sparse_add", "sparse.add")
def sparse_add(a: Any, b: Any, threshold: Any = None, thresh: Any = None) -> Any:
    """The sum of two tensors of which one or both are sparse."""
    if isinstance(a, SparseTensor) and isinstance(b, SparseTensor):
        indices, values = _add(a.indices, a.values, b.indices, b.values, a.dense_shape)
        return SparseTensor(indices, values, a.dense_shape)
    sparse, dense = (a, b) if isinstance(a, SparseTensor) else (b, a)
    return sparse_tensor_to_dense(sparse) + dense


@operation(
    "sparse_to_indicator",
    op_name="SparseToIndicator",
    differentiable=False,
    dtypes=lambda **_: [as_dtype("bool")],
    shape_rule=lambda **_: [None],
)
def _indicator(indices: Tensor, values: Tensor, dense_shape: Static, vocab_size: Static) -> Tensor:
    """Which ids occur in each row."""
    sizes, count = ints(dense_shape), int(plain(vocab_size))
    found = torch.zeros(*sizes[:-1], count, dtype=torch.bool)
    found[(*indices[:, :-1].unbind(-1), values.long())] = True
    return found


@exported("sparse_to_indicator", "sparse.to_indicator")
def sparse_to_indicator(sp_input: Any, vocab_size: Any, name: str | None = None) -> Any:
    """Which ids occur in each row, as truth values."""
    return _indicator(sp_input.indices, sp_input.values, sp_input.dense_shape, vocab_size, name=name)


@operation(
    "sparse.from_dense",
    op_name="dense_to_sparse",
    dtypes=lambda tensor: [int64, tensor.dtype.base_dtype, int64],
    shape_rule=lambda tensor: [(None, tensor.shape.ndims), (None,), (tensor.shape.ndims,)],
    differentiable=False,
)
def _from_dense(tensor: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Indices and values of elements that are not zero, and the shape."""
    places = torch.nonzero(tensor)
    return places, tensor[tuple(places.unbind(-1))], torch.tensor(tuple(tensor.shape), dtype=torch.int64)


@exported("sparse.from_dense", "contrib.layers.dense_to_sparse")
def from_dense(tensor: Any, name: str | None = None) -> SparseTensor:
    """A sparse tensor of the elements that are not zero."""
    return SparseTensor(*_from_dense(tensor, name=name))


@exported("sparse_placeholder", "sparse.placeholder")
def sparse_placeholder(dtype: Any, shape: Any = None, name: str | None = None) -> SparseTensor:
    """A sparse tensor that every run must feed, as a `SparseTensorValue` or a tuple of three arrays."""
    from throughtime.tf1._namespace import lookup  # noqa: PLC0415

    rank = None if shape is None else len(shape)
    made = lookup("placeholder")
    return SparseTensor(
        made(int64, [None, rank], f"{name or 'Placeholder'}/indices"),
        made(dtype, [None], f"{name or 'Placeholder'}/values"),
        made(int64, [rank], f"{name or 'Placeholder'}/shape"),
    )
