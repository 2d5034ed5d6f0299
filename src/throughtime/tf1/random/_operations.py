"""`tf.random_uniform` and its kin."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from throughtime.tf1._namespace import exported
from throughtime.tf1.graph._dtypes import as_dtype, float32, int64
from throughtime.tf1.graph._graph import get_default_graph
from throughtime.tf1.ops._convert import convert_to_tensor, is_tensor
from throughtime.tf1.ops._helpers import sizes_of, torch_dtype
from throughtime.tf1.ops._table import ints, static_or_tensor
from throughtime.tf1.random import _distributions as distributions
from throughtime.tf1.random._draw import as_tensor, draw
from throughtime.tf1.random._philox import PhiloxStream

# Operations that TensorFlow makes before the seeds are derived, and after: constants, and the arithmetic on the draw.
_UNIFORM_IDS, _NORMAL_IDS = (3, 3), (3, 2)


class _Shape:
    """The shape of a draw: static, or the value of the first input."""

    def __init__(self, shape: Any):
        given = static_or_tensor([shape] if isinstance(shape, int) else shape)
        self.static = sizes_of(given)
        self.inputs = [convert_to_tensor(given)] if is_tensor(given) else []

    def of(self, values: tuple[Any, ...]) -> tuple[tuple[int, ...], tuple[Any, ...]]:
        """The shape in a run, and the values of the other inputs."""
        if self.inputs:
            return tuple(ints(values[0])), values[1:]
        return tuple(self.static or ()), values  # type: ignore[arg-type]


def _affine(
    op_type: str,
    scope: str,
    sample: Callable[..., Any],
    in_function: Callable[..., torch.Tensor],
    shape: Any,
    scale_and_shift: tuple[Any, Any],
    combine: Callable[..., Any],
    options: tuple[Any, int | None, str | None],
    ids: tuple[int, int],
) -> Any:
    """A draw in [0, 1) or of the standard normal distribution, scaled and moved."""
    dtype, seed, name = as_dtype(options[0]), options[1], options[2]
    wanted = _Shape(shape)
    with get_default_graph().name_scope(name or scope) as full:
        first, second = (convert_to_tensor(one, dtype) if is_tensor(one) else one for one in scale_and_shift)
    tensors = [one for one in (first, second) if is_tensor(one)]

    def numbers(values: tuple[Any, ...]) -> tuple[Any, Any]:
        given = iter(values)
        constant = as_tensor
        pair = [
            next(given) if is_tensor(one) else constant(np.array(one, dtype.as_numpy_dtype)) for one in (first, second)
        ]
        return pair[0], pair[1]

    def kernel(stream: PhiloxStream, *values: Any) -> Any:
        sizes, rest = wanted.of(values)
        return combine(as_tensor(sample(stream, sizes, dtype.name)), *numbers(rest))

    def plain(*values: Any) -> Any:
        sizes, rest = wanted.of(values)
        return combine(in_function(sizes, dtype=torch_dtype(dtype)), *numbers(rest))

    made = len(wanted.inputs) + len(tensors)
    return draw(
        op_type,
        kernel,
        [*wanted.inputs, *tensors],
        seed=seed,
        name=full,
        dtypes=[dtype],
        shapes=[wanted.static],
        in_function=plain,
        ids=(ids[0] - made, ids[1]),
    )


@exported("random_uniform", "random.uniform")
def random_uniform(
    shape: Any,
    minval: Any = 0,
    maxval: Any = None,
    dtype: Any = float32,
    seed: int | None = None,
    name: str | None = None,
) -> Any:
    """Numbers in [minval, maxval), equally likely."""
    kind = as_dtype(dtype)
    if kind.is_integer:
        return _integers(shape, minval, maxval, kind, seed, name)
    return _affine(
        "RandomUniform",
        "random_uniform",
        distributions.uniform,
        torch.rand,
        shape,
        (minval, 1 if maxval is None else maxval),
        lambda drawn, low, high: drawn * (high - low) + low,
        (kind, seed, name),
        _UNIFORM_IDS,
    )


def _integers(shape: Any, minval: Any, maxval: Any, kind: Any, seed: int | None, name: str | None) -> Any:
    if maxval is None:
        raise ValueError(f"Must specify maxval for integer dtype {kind.name}")
    wanted = _Shape(shape)
    with get_default_graph().name_scope(name or "random_uniform") as full:
        limits = [convert_to_tensor(one, kind) for one in (minval, maxval)]

    def kernel(stream: PhiloxStream, *values: Any) -> Any:
        sizes, (low, high) = wanted.of(values)
        return as_tensor(distributions.integers(stream, sizes, int(low), int(high), kind.name))

    def in_function(*values: Any) -> Any:
        sizes, (low, high) = wanted.of(values)
        span = (high - low).to(torch.float64)
        return low + torch.floor(torch.rand(sizes, dtype=torch.float64) * span).to(low.dtype)

    return draw(
        "RandomUniformInt",
        kernel,
        [*wanted.inputs, *limits],
        seed=seed,
        name=full,
        dtypes=[kind],
        shapes=[wanted.static],
        in_function=in_function,
        ids=(1 - len(wanted.inputs), 0),
    )


@exported("random_normal", "random.normal")
def random_normal(
    shape: Any,
    mean: Any = 0.0,
    stddev: Any = 1.0,
    dtype: Any = float32,
    seed: int | None = None,
    name: str | None = None,
) -> Any:
    """Numbers of a normal distribution."""
    return _affine(
        "RandomStandardNormal",
        "random_normal",
        distributions.normal,
        torch.randn,
        shape,
        (mean, stddev),
        lambda drawn, mean, deviation: drawn * deviation + mean,
        (dtype, seed, name),
        _NORMAL_IDS,
    )


@exported("truncated_normal", "random.truncated_normal")
def truncated_normal(
    shape: Any,
    mean: Any = 0.0,
    stddev: Any = 1.0,
    dtype: Any = float32,
    seed: int | None = None,
    name: str | None = None,
) -> Any:
    """Numbers of a normal distribution, those beyond two deviations drawn once more."""
    return _affine(
        "TruncatedNormal",
        "truncated_normal",
        distributions.truncated_normal,
        _torch_truncated,
        shape,
        (mean, stddev),
        lambda drawn, mean, deviation: drawn * deviation + mean,
        (dtype, seed, name),
        _NORMAL_IDS,
    )


def _torch_truncated(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """By inversion: a uniform number between the probabilities of -2 and 2."""
    low, high = 0.022750131948179195, 0.9772498680518208
    return torch.special.ndtri(low + (high - low) * torch.rand(shape, dtype=dtype))


@exported("random_shuffle", "random.shuffle")
def random_shuffle(value: Any, seed: int | None = None, name: str | None = None) -> Any:
    """Rows in random order."""
    tensor = convert_to_tensor(value)

    def kernel(stream: PhiloxStream, rows: Any) -> Any:
        order = distributions.permutation(stream, len(rows) if rows.ndim else 1)
        return (rows[order] if isinstance(rows, np.ndarray) else rows[as_tensor(order)]) if rows.ndim else rows

    return draw(
        "RandomShuffle",
        kernel,
        [tensor],
        seed=seed,
        name=name or "RandomShuffle",
        dtypes=[tensor.dtype.base_dtype],
        shapes=[tensor.shape],
        in_function=lambda rows: rows[torch.randperm(rows.shape[0])],
    )


@exported("multinomial", "random.multinomial")
def multinomial(
    logits: Any, num_samples: Any, seed: int | None = None, name: str | None = None, output_dtype: Any = None
) -> Any:
    """Classes `[batch, num_samples]` drawn with probabilities `softmax(logits)`."""
    return _categorical(logits, num_samples, output_dtype, seed, name, "multinomial")


@exported("random.categorical")
def categorical(
    logits: Any, num_samples: Any, dtype: Any = None, seed: int | None = None, name: str | None = None
) -> Any:
    """Classes `[batch, num_samples]` drawn with probabilities `softmax(logits)`."""
    return _categorical(logits, num_samples, dtype, seed, name, "categorical")


def _categorical(logits: Any, num_samples: Any, dtype: Any, seed: int | None, name: str | None, scope: str) -> Any:
    tensor, kind = convert_to_tensor(logits), as_dtype(dtype or int64)
    count = static_or_tensor(num_samples)
    extra = [convert_to_tensor(count)] if is_tensor(count) else []
    with get_default_graph().name_scope(name or scope) as full:
        node_name = f"{full}Multinomial"

    def samples_of(rest: tuple[Any, ...]) -> int:
        return int(rest[0]) if rest else int(count)

    def kernel(stream: PhiloxStream, values: torch.Tensor, *rest: Any) -> Any:
        drawn = distributions.categorical(stream, values.detach().numpy(), samples_of(rest))
        return as_tensor(drawn).to(torch_dtype(kind))

    def in_function(values: torch.Tensor, *rest: Any) -> Any:
        noise = torch.rand(values.shape[0], samples_of(rest), values.shape[1])
        scores = values.unsqueeze(1) - torch.log(-torch.log(noise))
        return torch.argmax(scores, -1).to(torch_dtype(kind))

    sizes = tensor.shape.sizes
    rows = None if sizes is None else sizes[0]
    return draw(
        "Multinomial",
        kernel,
        [tensor, *extra],
        seed=seed,
        name=node_name,
        dtypes=[kind],
        shapes=[(rows, None if extra else int(count))],
        in_function=in_function,
        ids=(0, 1 - len(extra)),
    )


@exported("random_gamma", "random.gamma")
def random_gamma(
    shape: Any, alpha: Any, beta: Any = None, dtype: Any = float32, seed: int | None = None, name: str | None = None
) -> Any:
    """Numbers `shape + alpha.shape` of gamma distributions."""
    kind = as_dtype(dtype)
    wanted = _Shape(shape)
    with get_default_graph().name_scope(name or "random_gamma") as full:
        first = convert_to_tensor(alpha, kind, name="alpha")
        second = convert_to_tensor(1 if beta is None else beta, kind, name="beta")

    def kernel(stream: PhiloxStream, *values: Any) -> Any:
        sizes, (shapes, rates) = wanted.of(values)
        together = torch.broadcast_shapes(shapes.shape, rates.shape)
        own = shapes.expand(together).numpy()
        drawn = as_tensor(distributions.gamma(stream, int(np.prod(sizes)), own)).to(torch_dtype(kind))
        return torch.clamp(drawn.reshape(*sizes, *together) / rates, min=torch.finfo(torch_dtype(kind)).tiny)

    return draw(
        "RandomGamma",
        kernel,
        [*wanted.inputs, first, second],
        seed=seed,
        name=f"{full}RandomGamma" if beta is None else full,
        dtypes=[kind],
        shapes=[_joined(wanted.static, first)],
        ids=(1, 3),
    )


def _joined(first: list[int | None] | None, second: Any) -> Any:
    inner = second.shape.sizes
    return None if first is None or inner is None else [*first, *inner]


@exported("random_poisson", "random.poisson")
def random_poisson(lam: Any, shape: Any, dtype: Any = float32, seed: int | None = None, name: str | None = None) -> Any:
    """Numbers `shape + lam.shape` of Poisson distributions."""
    kind = as_dtype(dtype)
    wanted = _Shape(shape)
    rate = convert_to_tensor(lam, name="lam")

    def kernel(stream: PhiloxStream, *values: Any) -> Any:
        sizes, (rates,) = wanted.of(values)
        drawn = as_tensor(distributions.poisson(stream, int(np.prod(sizes)), rates.numpy()))
        return drawn.reshape(*sizes, *rates.shape).to(torch_dtype(kind))

    return draw(
        "RandomPoissonV2",
        kernel,
        [*wanted.inputs, rate],
        seed=seed,
        name=name or "random_poisson/RandomPoissonV2",
        dtypes=[kind],
        shapes=[_joined(wanted.static, rate)],
        in_function=lambda *values: torch.poisson(values[-1].expand(*wanted.of(values)[0], *values[-1].shape)),
    )
