"""Measures over many batches: local variables that add up, a value, and an operation that updates both."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from throughtime.tf1.graph._collections import GraphKeys
from throughtime.tf1.graph._dtypes import DType, float32
from throughtime.tf1.graph._graph import create_op, get_default_graph
from throughtime.tf1.graph._operation import Tensor
from throughtime.tf1.graph._scopes import outside_of_functions
from throughtime.tf1.graph._variable_scope import get_variable_scope, variable_scope
from throughtime.tf1.graph._variables import Variable, read_variable
from throughtime.tf1.ops._convert import convert_to_tensor

Parts = Sequence[torch.Tensor]


def local_variable(name: str, shape: Sequence[int], dtype: DType = float32) -> Variable:
    """A variable of zeros in the open variable scope, that is neither saved nor trained."""
    scope = get_variable_scope().name
    collections = [GraphKeys.LOCAL_VARIABLES, GraphKeys.METRIC_VARIABLES]
    with outside_of_functions() as graph, graph.name_scope(None):

        def kernel(state: Any) -> torch.Tensor:
            return torch.zeros(tuple(shape), dtype=dtype.torch_dtype, device=state.device)

        def zeros() -> Tensor:
            return create_op("zeros", kernel, dtypes=[dtype], shapes=[shape], stateful=True).outputs[0]

        return Variable(zeros, trainable=False, collections=collections, name=f"{scope}/{name}" if scope else name)


def streaming(
    name: str | None,
    default: str,
    sizes: Mapping[str, Sequence[int]],
    inputs: Sequence[Any],
    increments: Callable[..., Parts],
    result: Callable[..., torch.Tensor],
    metrics_collections: Any = None,
    updates_collections: Any = None,
    update_result: Callable[..., torch.Tensor] | None = None,
    dtype: DType = float32,
) -> tuple[Tensor, Tensor]:
    """A measure: `increments(*inputs)` is added to its variables, `result(*variables)` is its value.

    `sizes` names the variables and gives their shapes. The update gives the value too, or `update_result`.
    """
    with variable_scope(name, default):
        tensors = [convert_to_tensor(each) for each in inputs]
        variables = [local_variable(part, shape, dtype) for part, shape in sizes.items()]
        targets = [each.op for each in variables]

        def read(state: Any, function: Callable[..., torch.Tensor]) -> torch.Tensor:
            return function(*(read_variable(state, op) for op in targets))

        def value(state: Any) -> torch.Tensor:
            return read(state, result)

        def update(state: Any, *values: Any) -> torch.Tensor:
            for op, added in zip(targets, increments(*values), strict=True):
                old = read_variable(state, op)
                state.values[op] = old + added.detach().to(old.dtype)
            return read(state, after)

        after = update_result or result
        zeros = [torch.zeros(tuple(size)) for size in sizes.values()]
        options: dict[str, Any] = {"stateful": True, "differentiable": False}
        shapes = [list(function(*zeros).shape) for function in (result, after)]
        found = create_op("Metric", value, name="value", dtypes=[float32], shapes=shapes[:1], **options).outputs[0]
        options |= {"dtypes": [dtype if update_result else float32], "shapes": shapes[1:], "attrs": {"writes": targets}}
        updated = create_op("MetricUpdate", update, tensors, name="update_op", **options)
    graph = get_default_graph()
    graph.add_to_collections(metrics_collections or [], found)
    graph.add_to_collections(updates_collections or [], updated.outputs[0])
    return found, updated.outputs[0]


def spread(weights: torch.Tensor | None, values: torch.Tensor) -> torch.Tensor:
    """A weight for each value: missing axes are behind those that are there."""
    if weights is None:
        return torch.ones_like(values)
    found = weights.to(values.dtype)
    return found.reshape([*found.shape, *[1] * (values.ndim - found.ndim)]).expand_as(values)
