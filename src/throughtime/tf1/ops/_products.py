"""Products of tensors."""

from __future__ import annotations

from typing import Any

import torch

from throughtime.tf1._namespace import exported
from throughtime.tf1.ops._table import Static, Tensor, Tensors, ints, operation


@operation("linalg.matvec", op_name="MatVec", scope="MatVec", same_dtype=("a", "b"))
def matvec(
    a: Tensor,
    b: Tensor,
    transpose_a: Static = False,
    adjoint_a: Static = False,
    a_is_sparse: Static = False,
    b_is_sparse: Static = False,
) -> Tensor:
    """A matrix times a vector."""
    matrix = a.mH if adjoint_a else a.mT if transpose_a else a
    return (matrix @ b.unsqueeze(-1)).squeeze(-1)


@operation("sparse_matmul", op_name="SparseMatMul", same_dtype=("a", "b"))
def sparse_matmul(
    a: Tensor,
    b: Tensor,
    transpose_a: Static = False,
    transpose_b: Static = False,
    a_is_sparse: Static = False,
    b_is_sparse: Static = False,
) -> Tensor:
    """The product of two matrices; that they have many zeros makes no difference."""
    return (a.mT if transpose_a else a) @ (b.mT if transpose_b else b)


@operation("tensordot", op_name="Tensordot", same_dtype=("a", "b"))
def tensordot(a: Tensor, b: Tensor, axes: Static) -> Tensor:
    """The sum of products over pairs of axes."""
    found = ints(axes) if not isinstance(axes, int) else axes
    if isinstance(found, int):
        return torch.tensordot(a, b, found)
    first, second = (one if isinstance(one, list) else [one] for one in found)
    return torch.tensordot(a, b, (first, second))


@operation("einsum", op_name="Einsum", scope="einsum")
def _einsum(inputs: Tensors, equation: Static) -> Tensor:
    """The sum of products that an equation describes."""
    return torch.einsum(equation, *inputs)


@exported("einsum", "linalg.einsum")
def einsum(equation: str, *inputs: Any, name: str | None = None, **_: Any) -> Any:
    """The sum of products that an equation describes, such as `"ij,jk->ik"`."""
    return _einsum(list(inputs), equation, name=name)


@operation("cross", op_name="Cross", same_dtype=("a", "b"), fallback_rule=lambda a, b: [a.shape])
def cross(a: Tensor, b: Tensor) -> Tensor:
    """The cross product of vectors of three numbers."""
    return torch.linalg.cross(a, b, dim=-1)


@operation("nn.xw_plus_b", op_name="BiasAdd", scope="xw_plus_b")
def xw_plus_b(x: Tensor, weights: Tensor, biases: Tensor) -> Tensor:
    """`x @ weights + biases`."""
    return torch.matmul(x, weights) + biases


@operation("nn.relu_layer", op_name="Relu", scope="relu_layer")
def relu_layer(x: Tensor, weights: Tensor, biases: Tensor) -> Tensor:
    """`relu(x @ weights + biases)`."""
    return torch.relu(torch.matmul(x, weights) + biases)
