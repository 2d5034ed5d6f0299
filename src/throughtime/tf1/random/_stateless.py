"""Random numbers that depend on a seed of two numbers alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from throughtime.tf1.graph._dtypes import as_dtype, float32
from throughtime.tf1.ops._helpers import plain, sizes_of
from throughtime.tf1.ops._table import Static, Tensor, ints, operation
from throughtime.tf1.random import _distributions as distributions
from throughtime.tf1.random._draw import as_tensor
from throughtime.tf1.random._philox import PhiloxStream, philox_blocks

_MIXING_KEY = 0x02461E293EC8F720


def _stream(seed: Any) -> PhiloxStream:
    """The stream of a seed: both numbers are mixed by one block, so that any seed is as good as another."""
    first, second = (int(one) for one in ints(seed))
    position = np.array([first & (1 << 64) - 1], np.uint64)
    mixed = [int(word) for word in philox_blocks(_MIXING_KEY, second, position)[0]]
    return PhiloxStream(mixed[0] | mixed[1] << 32, mixed[2] | mixed[3] << 32)


def _stateless(name: str, scope: str, sample: Callable[..., Any], doc: str) -> None:
    def kernel(
        shape: Static, seed: Static, mean: Static = 0.0, stddev: Static = 1.0, dtype: Static = float32
    ) -> Tensor:
        kind = as_dtype(dtype).as_numpy_dtype
        drawn = sample(_stream(seed), tuple(ints(shape)), as_dtype(dtype).name)
        return as_tensor(drawn * kind(plain(stddev)) + kind(plain(mean)))

    kernel.__doc__ = doc
    operation(
        f"random.stateless_{name}",
        op_name="StatelessRandom",
        scope=scope,
        shape_rule=lambda **given: [sizes_of(given["shape"])],
        dtypes=lambda **given: [given["dtype"]],
        differentiable=False,
    )(kernel)


_stateless("normal", "stateless_random_normal", distributions.normal, "Numbers of a normal distribution.")
_stateless(
    "truncated_normal",
    "stateless_truncated_normal",
    distributions.truncated_normal,
    "Numbers of a normal distribution, none beyond two deviations.",
)


@operation(
    "random.stateless_uniform",
    op_name="stateless_random_uniform",
    shape_rule=lambda **given: [sizes_of(given["shape"])],
    dtypes=lambda **given: [given["dtype"]],
    differentiable=False,
)
def stateless_uniform(
    shape: Static, seed: Static, minval: Static = 0, maxval: Static = None, dtype: Static = float32
) -> Tensor:
    """Numbers in [minval, maxval)."""
    kind, sizes = as_dtype(dtype), tuple(ints(shape))
    low, high = plain(minval), 1 if maxval is None else plain(maxval)
    if kind.is_integer:
        return as_tensor(distributions.integers(_stream(seed), sizes, low, high, kind.name))
    number = kind.as_numpy_dtype
    return as_tensor(
        distributions.uniform(_stream(seed), sizes, kind.name) * (number(high) - number(low)) + number(low)
    )
