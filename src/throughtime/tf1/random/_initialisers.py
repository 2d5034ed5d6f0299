"""Initialisers of variables: classes that are called with a shape."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from throughtime.tf1._namespace import export, exported, lookup
from throughtime.tf1.graph._dtypes import as_dtype, float32
from throughtime.tf1.graph._graph import create_op
from throughtime.tf1.ops._convert import constant
from throughtime.tf1.ops._table import ints
from throughtime.tf1.random._operations import random_normal, random_uniform, truncated_normal

# The deviation of a normal distribution that is truncated at two deviations.
_TRUNCATED_DEVIATION = 0.87962566103423978


class Initializer:
    """What all initialisers share: arguments as attributes, the dtype of the call before that of the constructor."""

    def __init__(self, dtype: Any = float32):
        self.dtype = as_dtype(dtype)

    def __call__(self, shape: Any, dtype: Any = None, partition_info: Any = None) -> Any:
        """A tensor of this shape."""
        return self.make(_sizes(shape), self.dtype if dtype is None else as_dtype(dtype))

    def make(self, shape: list[int], dtype: Any) -> Any:
        """A tensor of this shape and dtype."""
        raise NotImplementedError

    def get_config(self) -> dict[str, Any]:
        """The arguments of the constructor."""
        return {name: value.name if name == "dtype" else value for name, value in vars(self).items()}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Any:
        """An initialiser of the arguments that `get_config` gave."""
        return cls(**config)


def _sizes(shape: Any) -> list[int]:
    found = ints(shape.as_list() if hasattr(shape, "as_list") else shape)
    return found if isinstance(found, list) else [found]


@exported("zeros_initializer")
class Zeros(Initializer):
    """Zeros."""

    def make(self, shape: list[int], dtype: Any) -> Any:
        return lookup("zeros")(shape, dtype)


@exported("ones_initializer")
class Ones(Initializer):
    """Ones."""

    def make(self, shape: list[int], dtype: Any) -> Any:
        return lookup("ones")(shape, dtype)


@exported("constant_initializer")
class Constant(Initializer):
    """A constant: a number, or as many numbers as the shape has elements."""

    def __init__(self, value: Any = 0, dtype: Any = float32, verify_shape: bool = False):
        if not (np.isscalar(value) or isinstance(value, list | tuple | np.ndarray)):
            raise TypeError(
                f"Invalid type for initial value: {type(value)} (expected Python scalar, list or tuple, or array)"
            )
        super().__init__(dtype)
        self.value = value
        self.verify_shape = verify_shape

    def make(self, shape: list[int], dtype: Any) -> Any:
        value = np.asarray(self.value) if isinstance(self.value, list | tuple) else self.value
        value = value.astype(dtype.as_numpy_dtype) if isinstance(value, np.ndarray) else value
        return constant(value, dtype, shape, verify_shape=self.verify_shape)


@exported("random_uniform_initializer")
class RandomUniform(Initializer):
    """Numbers in [minval, maxval), equally likely."""

    def __init__(self, minval: Any = 0, maxval: Any = None, seed: int | None = None, dtype: Any = float32):
        super().__init__(dtype)
        self.minval, self.maxval, self.seed = minval, maxval, seed

    def make(self, shape: list[int], dtype: Any) -> Any:
        return random_uniform(shape, self.minval, self.maxval, dtype, seed=self.seed)


class _Normal(Initializer):
    def __init__(self, mean: float = 0.0, stddev: float = 1.0, seed: int | None = None, dtype: Any = float32):
        super().__init__(dtype)
        self.mean, self.stddev, self.seed = mean, stddev, seed


@exported("random_normal_initializer")
class RandomNormal(_Normal):
    """Numbers of a normal distribution."""

    def make(self, shape: list[int], dtype: Any) -> Any:
        return random_normal(shape, self.mean, self.stddev, dtype, seed=self.seed)


@exported("truncated_normal_initializer")
class TruncatedNormal(_Normal):
    """Numbers of a normal distribution, none beyond two deviations."""

    def make(self, shape: list[int], dtype: Any) -> Any:
        return truncated_normal(shape, self.mean, self.stddev, dtype, seed=self.seed)


@exported("uniform_unit_scaling_initializer")
class UniformUnitScaling(Initializer):
    """Uniform numbers that keep the scale of inputs."""

    def __init__(self, factor: float = 1.0, seed: int | None = None, dtype: Any = float32):
        super().__init__(dtype)
        self.factor, self.seed = factor, seed

    def make(self, shape: list[int], dtype: Any) -> Any:
        size = 1.0
        for one in shape[:-1]:
            size *= float(one)
        limit = math.sqrt(3 / max(size, 1.0)) * self.factor
        return random_uniform(shape, -limit, limit, dtype, seed=self.seed)


def fans(shape: list[int]) -> tuple[float, float]:
    """The number of inputs and of outputs of a unit, for a kernel of this shape."""
    if len(shape) < 1:
        return 1, 1
    if len(shape) == 1:
        return shape[0], shape[0]
    field = math.prod(shape[:-2])
    return shape[-2] * field, shape[-1] * field


@exported("variance_scaling_initializer", "keras.initializers.VarianceScaling")
class VarianceScaling(Initializer):
    """Numbers with a variance that depends on the number of inputs or outputs."""

    def __init__(
        self,
        scale: float = 1.0,
        mode: str = "fan_in",
        distribution: str = "truncated_normal",
        seed: int | None = None,
        dtype: Any = float32,
    ):
        if scale <= 0.0:
            raise ValueError("`scale` must be positive float.")
        if mode not in {"fan_in", "fan_out", "fan_avg"}:
            raise ValueError(f"Invalid `mode` argument: {mode}; use fan_in, fan_out or fan_avg")
        distribution = distribution.lower()
        if distribution not in {"normal", "uniform", "truncated_normal", "untruncated_normal"}:
            raise ValueError(f"Invalid `distribution` argument: {distribution}")
        super().__init__(dtype)
        self.scale, self.mode, self.distribution, self.seed = scale, mode, distribution, seed

    def make(self, shape: list[int], dtype: Any) -> Any:
        fan_in, fan_out = fans(shape)
        count = {"fan_in": fan_in, "fan_out": fan_out, "fan_avg": (fan_in + fan_out) / 2}[self.mode]
        scale = self.scale / max(1.0, count)
        if self.distribution == "uniform":
            limit = math.sqrt(3.0 * scale)
            return random_uniform(shape, -limit, limit, dtype, seed=self.seed)
        if self.distribution == "untruncated_normal":
            return random_normal(shape, 0.0, math.sqrt(scale), dtype, seed=self.seed)
        return truncated_normal(shape, 0.0, math.sqrt(scale) / _TRUNCATED_DEVIATION, dtype, seed=self.seed)


@exported("orthogonal_initializer")
class Orthogonal(Initializer):
    """Orthogonal matrices: the Q factor of random normal numbers."""

    def __init__(self, gain: float = 1.0, seed: int | None = None, dtype: Any = float32):
        super().__init__(dtype)
        self.gain, self.seed = gain, seed

    def make(self, shape: list[int], dtype: Any) -> Any:
        if len(shape) < 2:
            raise ValueError("The tensor to initialize must be at least two-dimensional")
        rows, columns = math.prod(shape[:-1]), shape[-1]
        drawn = random_normal([max(rows, columns), min(rows, columns)], dtype=dtype, seed=self.seed)

        def kernel(a: torch.Tensor) -> torch.Tensor:
            q, r = torch.linalg.qr(a)
            q = q * torch.sign(torch.diagonal(r))
            return self.gain * (q.mT if rows < columns else q).reshape(shape)

        return create_op("Orthogonal", kernel, [drawn], name="mul").outputs[0]


@exported("initializers.identity", "keras.initializers.Identity", "keras.initializers.identity")
class Identity(Initializer):
    """Unit matrices."""

    def __init__(self, gain: float = 1.0, dtype: Any = float32):
        super().__init__(dtype)
        self.gain = gain

    def make(self, shape: list[int], dtype: Any) -> Any:
        if len(shape) != 2:
            raise ValueError("Identity matrix initializer can only be used for 2D matrices.")
        found = lookup("eye")(shape[0], shape[1], dtype=dtype)
        return found if self.gain == 1.0 else self.gain * found


def _scaled(name: str, scale: float, mode: str, distribution: str, doc: str, *names: str) -> type:
    def initialise(self: Any, seed: int | None = None, dtype: Any = float32) -> None:
        VarianceScaling.__init__(self, scale, mode, distribution, seed, dtype)

    def config(self: Any) -> dict[str, Any]:
        return {"seed": self.seed, "dtype": self.dtype.name}

    made = type(name, (VarianceScaling,), {"__init__": initialise, "get_config": config, "__doc__": doc})
    for one in names:
        export(one, made)
    return made


GlorotUniform = _scaled(
    "GlorotUniform",
    1.0,
    "fan_avg",
    "uniform",
    "Uniform numbers, scaled by inputs and outputs.",
    "glorot_uniform_initializer",
    "keras.initializers.glorot_uniform",
)
GlorotNormal = _scaled(
    "GlorotNormal",
    1.0,
    "fan_avg",
    "truncated_normal",
    "Normal numbers, scaled by inputs and outputs.",
    "glorot_normal_initializer",
    "keras.initializers.glorot_normal",
)
for _name, _scale, _distribution in (
    ("he_normal", 2.0, "truncated_normal"),
    ("he_uniform", 2.0, "uniform"),
    ("lecun_normal", 1.0, "truncated_normal"),
    ("lecun_uniform", 1.0, "uniform"),
):
    _scaled(
        _name,
        _scale,
        "fan_in",
        _distribution,
        "Numbers scaled by inputs.",
        f"initializers.{_name}",
        f"keras.initializers.{_name}",
    )


@exported("contrib.layers.variance_scaling_initializer")
def contrib_variance_scaling(
    factor: float = 2.0, mode: str = "FAN_IN", uniform: bool = False, seed: int | None = None, dtype: Any = float32
) -> Any:
    """An initialiser with a variance of `factor` divided by inputs, outputs or their mean."""
    if mode not in {"FAN_IN", "FAN_OUT", "FAN_AVG"}:
        raise TypeError(f"Unknown mode {mode} [FAN_IN, FAN_OUT, FAN_AVG]")

    def initialise(shape: Any, dtype: Any = dtype, partition_info: Any = None) -> Any:
        sizes = _sizes(shape)
        fan_in, fan_out = (
            (float(sizes[-2]) if len(sizes) > 1 else float(sizes[-1]), float(sizes[-1])) if sizes else (1.0, 1.0)
        )
        for size in sizes[:-2]:
            fan_in, fan_out = fan_in * float(size), fan_out * float(size)
        count = {"FAN_IN": fan_in, "FAN_OUT": fan_out, "FAN_AVG": (fan_in + fan_out) / 2.0}[mode]
        if uniform:
            limit = math.sqrt(3.0 * factor / count)
            return random_uniform(sizes, -limit, limit, dtype, seed=seed)
        return truncated_normal(sizes, 0.0, math.sqrt(1.3 * factor / count), dtype, seed=seed)

    return initialise


@exported("contrib.layers.xavier_initializer", "contrib.layers.xavier_initializer_conv2d")
def xavier_initializer(uniform: bool = True, seed: int | None = None, dtype: Any = float32) -> Any:
    """An initialiser scaled by inputs and outputs (Glorot and Bengio, 2010)."""
    return contrib_variance_scaling(1.0, "FAN_AVG", uniform, seed, dtype)
