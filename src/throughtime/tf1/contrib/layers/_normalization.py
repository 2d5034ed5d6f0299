"""Batch, layer and unit normalisation of `contrib.layers`."""

from __future__ import annotations

from typing import Any

import torch

from throughtime.tf1._namespace import export, lookup
from throughtime.tf1.contrib._arg_scope import add_arg_scope
from throughtime.tf1.contrib.layers._layers import finished
from throughtime.tf1.contrib.layers._variables import model_variable
from throughtime.tf1.graph._collections import GraphKeys
from throughtime.tf1.graph._graph import create_op, get_default_graph
from throughtime.tf1.graph._scopes import control_dependencies
from throughtime.tf1.graph._variable_scope import variable_scope
from throughtime.tf1.layers._normalization import batch_normalized
from throughtime.tf1.layers._switch import static_flag
from throughtime.tf1.ops._convert import convert_to_tensor
from throughtime.tf1.train._moving_average import assign_average


def _parameter(
    name: str, shape: list[int | None], dtype: Any, given: Any, trainable: bool, collections: Any = None
) -> Any:
    """A variable with an initialiser that the program may have given."""
    ones = name in {"gamma", "moving_variance"}
    default = lookup("ones_initializer" if ones else "zeros_initializer")()
    initializer = (given or {}).get(name, default)
    chosen = collections.get(name) if isinstance(collections, dict) else collections
    return model_variable(
        name, shape=shape, dtype=dtype, initializer=initializer, trainable=trainable, collections=list(chosen or [])
    )


@add_arg_scope
def batch_norm(
    inputs: Any,
    decay: float = 0.999,
    center: bool = True,
    scale: bool = False,
    epsilon: float = 0.001,
    activation_fn: Any = None,
    param_initializers: Any = None,
    param_regularizers: Any = None,
    updates_collections: Any = GraphKeys.UPDATE_OPS,
    is_training: Any = True,
    reuse: Any = None,
    variables_collections: Any = None,
    outputs_collections: Any = None,
    trainable: bool = True,
    batch_weights: Any = None,
    fused: Any = None,
    data_format: str = "NHWC",
    zero_debias_moving_mean: bool = False,
    scope: Any = None,
    renorm: bool = False,
    renorm_clipping: Any = None,
    renorm_decay: float = 0.99,
    adjustment: Any = None,
) -> Any:
    """Normalisation by the batch's mean and variance, with moving averages for use after training.

    Their updates are in a collection; with `updates_collections=None` each run of the output makes them.
    """
    del param_regularizers, fused, renorm_clipping, renorm_decay
    if renorm or batch_weights is not None or adjustment or zero_debias_moving_mean or data_format.startswith("NC"):
        raise NotImplementedError("batch_norm: got renorm, weights or NCHW, expected plain batches. Leave them out.")
    with variable_scope(scope, "BatchNorm", [inputs], reuse=reuse):
        tensor = convert_to_tensor(inputs)
        size, dtype = [tensor.shape.as_list()[-1]], tensor.dtype.base_dtype
        options = (param_initializers, trainable, variables_collections)
        beta = _parameter("beta", size, dtype, *options) if center else None
        gamma = _parameter("gamma", size, dtype, *options) if scale else None
        rest = (param_initializers, False, variables_collections)
        averages = [_parameter(name, size, dtype, *rest) for name in ("moving_mean", "moving_variance")]
        outputs, *found = batch_normalized(
            tensor, gamma, beta, averages[0], averages[1], is_training, epsilon, -1, (2, 4)
        )
        if static_flag(is_training) is not False:
            rate = convert_to_tensor(decay)
            updates = [assign_average(each, value, rate) for each, value in zip(averages, found, strict=True)]
            outputs = _after(updates, outputs, updates_collections)
        return finished(outputs, activation_fn, outputs_collections)


def _after(updates: list[Any], outputs: Any, collection: Any) -> Any:
    """The outputs, once the updates are in a collection, or will have run before them."""
    if collection is None:
        with control_dependencies(updates):
            return lookup("identity")(outputs)
    for update in updates:
        get_default_graph().add_to_collections(collection, update)
    return outputs


@add_arg_scope
def layer_norm(
    inputs: Any,
    center: bool = True,
    scale: bool = True,
    activation_fn: Any = None,
    reuse: Any = None,
    variables_collections: Any = None,
    outputs_collections: Any = None,
    trainable: bool = True,
    begin_norm_axis: int = 1,
    begin_params_axis: int = -1,
    scope: Any = None,
) -> Any:
    """Normalisation of each example over its axes from `begin_norm_axis` on."""
    with variable_scope(scope, "LayerNorm", [inputs], reuse=reuse):
        tensor = convert_to_tensor(inputs)
        rank = len(tensor.shape.as_list())
        shape = tensor.shape.as_list()[begin_params_axis:]
        first = begin_norm_axis % rank
        options = (tensor.dtype.base_dtype, None, trainable, variables_collections)
        beta = _parameter("beta", shape, *options) if center else None
        gamma = _parameter("gamma", shape, *options) if scale else None

        def kernel(x: torch.Tensor, *rest: torch.Tensor) -> torch.Tensor:
            variance, mean = torch.var_mean(x, list(range(first, rank)), correction=0, keepdim=True)
            normal = (x - mean) * torch.rsqrt(variance + 1e-12)
            normal = normal * rest[-1] if gamma is not None else normal
            return normal + rest[0] if beta is not None else normal

        parameters = [convert_to_tensor(each) for each in (beta, gamma) if each is not None]
        outputs = create_op("LayerNorm", kernel, [tensor, *parameters], name="add_1").outputs[0]
        outputs.set_shape(tensor.shape)
        return finished(outputs, activation_fn, outputs_collections)


@add_arg_scope
def unit_norm(inputs: Any, dim: int, epsilon: float = 1e-7, scope: Any = None) -> Any:
    """Inputs divided by their length along an axis."""
    with get_default_graph().name_scope(scope or "UnitNorm"):

        def kernel(x: torch.Tensor) -> torch.Tensor:
            return x / (epsilon + x.square().sum(dim, keepdim=True)).sqrt()

        return create_op("UnitNorm", kernel, [convert_to_tensor(inputs)], name="truediv").outputs[0]


for _place in ("contrib.layers", "contrib.slim"):
    export(f"{_place}.batch_norm", batch_norm)
    export(f"{_place}.layer_norm", layer_norm)
    export(f"{_place}.unit_norm", unit_norm)
