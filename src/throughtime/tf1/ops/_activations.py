"""Activations, softmax, dropout."""

from __future__ import annotations

from typing import Any

import torch

from throughtime.tf1._namespace import exported
from throughtime.tf1.graph._graph import get_default_graph
from throughtime.tf1.ops._convert import constant_value, convert_to_tensor, is_tensor
from throughtime.tf1.ops._helpers import axes as axes_of
from throughtime.tf1.ops._helpers import plain, unary
from throughtime.tf1.ops._table import Static, Tensor, ints, operation, static_or_tensor
from throughtime.tf1.random import _distributions as distributions
from throughtime.tf1.random._draw import as_tensor, draw

_F = torch.nn.functional

unary("nn.relu", "Relu", torch.relu, "Negative numbers as zero.", argument="features")
unary("nn.relu6", "Relu6", _F.relu6, "Numbers limited to [0, 6].", argument="features")
unary("nn.elu", "Elu", _F.elu, "The exponential less one for negative numbers.", argument="features")
unary("nn.selu", "Selu", torch.selu, "The scaled `elu`.", argument="features")
unary(
    "nn.softplus",
    "Softplus",
    lambda x: torch.logaddexp(x, torch.zeros((), dtype=x.dtype)),
    "`log(exp(x) + 1)`.",
    argument="features",
)
unary("nn.softsign", "Softsign", _F.softsign, "`x / (|x| + 1)`.", argument="features")
unary("nn.swish", "Swish", _F.silu, "`x sigmoid(x)`.", scope="swish_f32", argument="features")


@operation("nn.leaky_relu", op_name="LeakyRelu", scope="LeakyRelu")
def leaky_relu(features: Tensor, alpha: Static = 0.2) -> Tensor:
    """Negative numbers times `alpha`."""
    return _F.leaky_relu(features, plain(alpha))


@operation("nn.crelu", op_name="CRelu", positional=("features", "name", "axis"))
def crelu(features: Tensor, axis: Static = -1) -> Tensor:
    """The `relu` of numbers and of their negatives, joined."""
    return torch.cat([torch.relu(features), torch.relu(-features)], int(axis))


def _softmax(name: str, op_name: str, function: Any, doc: str) -> None:
    def kernel(logits: Tensor, axis: Static = -1) -> Tensor:
        return function(logits, int(plain(axis)))

    kernel.__doc__ = doc
    operation(f"nn.{name}", op_name=op_name, spellings={"dim": "axis"}, positional=("logits", "axis", "name", "dim"))(
        kernel
    )


_softmax("softmax", "Softmax", torch.softmax, "Exponentials that sum to one.")
_softmax("log_softmax", "LogSoftmax", torch.log_softmax, "The logarithm of `softmax`.")


@operation(
    "nn.l2_normalize",
    op_name="l2_normalize",
    spellings={"dim": "axis"},
    positional=("x", "axis", "epsilon", "name", "dim"),
)
def l2_normalize(x: Tensor, axis: Static = None, epsilon: Static = 1e-12) -> Tensor:
    """A tensor divided by its norm along axes."""
    squares = torch.sum(x * x, axes_of(axis, x.ndim), True)
    return x * torch.rsqrt(torch.clamp(squares, min=plain(epsilon)))


@operation("nn.l2_loss", op_name="L2Loss")
def l2_loss(t: Tensor) -> Tensor:
    """Half the sum of squares."""
    return torch.sum(t * t) / 2


@operation(
    "nn.bias_add", op_name="BiasAdd", positional=("value", "bias", "data_format", "name"), same_dtype=("value", "bias")
)
def bias_add(value: Tensor, bias: Tensor, data_format: Static = None) -> Tensor:
    """A vector added to channels."""
    if bias.ndim != 1:
        raise ValueError("bias must be a vector")
    first = data_format is not None and data_format.startswith("NC")
    if value.shape[1 if first else -1] != bias.shape[0]:
        raise ValueError(f"bias has {bias.shape[0]} elements for {value.shape[1 if first else -1]} channels")
    return value + (bias.reshape(-1, *[1] * (value.ndim - 2)) if first else bias)


@operation("nn.dropout", op_name="Dropout", scope="dropout")
def _with_mask(x: Tensor, rate: Tensor, drawn: Tensor) -> Tensor:
    """Elements where a draw in [0, 1) reaches `rate`, scaled by what is left of one."""
    return x * (1 / (1 - rate)) * (drawn >= rate).to(x.dtype)


@exported("nn.dropout")
def dropout(
    x: Any,
    keep_prob: Any = None,
    noise_shape: Any = None,
    seed: int | None = None,
    name: str | None = None,
    rate: Any = None,
) -> Any:
    """Elements set to zero with probability `rate` (or 1 − `keep_prob`), the others scaled up."""
    if (keep_prob is None) == (rate is None):
        raise ValueError("You must provide exactly one of `rate` and `keep_prob`")
    x = convert_to_tensor(x, name="x")
    if not x.dtype.is_floating:
        raise ValueError(
            f"x has to be a floating point tensor since it's going to be scaled. Got a {x.dtype.name} tensor instead."
        )
    if rate is None:
        rate = 1 - keep_prob
    if not is_tensor(rate) and not 0 <= rate < 1:
        raise ValueError(f"rate must be a scalar tensor or a float in the range [0, 1), got {rate}")
    known = constant_value(rate) if is_tensor(rate) else rate
    return x if known is not None and known == 0 else _dropped(x, rate, noise_shape, seed, name)


def _dropped(x: Any, rate: Any, noise_shape: Any, seed: int | None, name: str | None) -> Any:
    graph = get_default_graph()
    dtype, noise = x.dtype.base_dtype, static_or_tensor(noise_shape)
    if isinstance(noise, list | tuple) and None in noise:
        noise = [size if size is not None else x.shape.sizes[place] for place, size in enumerate(noise)]
    with graph.name_scope(name or "dropout") as scope:
        share = convert_to_tensor(rate, dtype, name="rate") if not is_tensor(rate) else convert_to_tensor(rate)
    extra = [convert_to_tensor(noise)] if is_tensor(noise) else []

    def sizes(value: Any, rest: tuple[Any, ...]) -> tuple[int, ...]:
        return tuple(ints(rest[0] if rest else noise)) if noise is not None else tuple(value.shape)

    def kernel(stream: Any, value: Any, limit: Any, *rest: Any) -> Any:
        return as_tensor(distributions.uniform(stream, sizes(value, rest), dtype.name))

    def in_function(value: Any, limit: Any, *rest: Any) -> Any:
        drawn = torch.rand(sizes(value, rest), dtype=value.dtype, device=value.device)
        return value * (1 / (1 - limit)) * (drawn >= limit).to(value.dtype)

    if graph.building_function:
        return draw(
            "Dropout",
            kernel,
            [x, share, *extra],
            seed=seed,
            name=scope,
            dtypes=[dtype],
            shapes=[x.shape],
            in_function=in_function,
        )
    shape = x.shape if noise is None else None if extra else noise
    drawn = draw(
        "RandomUniform",
        kernel,
        [x, share, *extra],
        seed=seed,
        name=f"{scope}random_uniform",
        dtypes=[dtype],
        shapes=[shape],
        ids=(3, 3),
    )
    found = _with_mask(x, share, drawn, name=f"{scope}mul_1")
    found.set_shape(x.shape)
    return found
