"""Activations by function or by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from throughtime._errors import problem

Activation = Callable[[Tensor], Tensor]


def linear(x: Tensor) -> Tensor:
    """Nothing at all."""
    return x


def hard_sigmoid(x: Tensor) -> Tensor:
    """TensorFlow's, which is steeper in the middle than torch's."""
    return (0.2 * x + 0.5).clamp(0, 1)


def leaky_relu(x: Tensor) -> Tensor:
    """TensorFlow's slope for what is negative, 0.2; torch's is 0.01."""
    return functional.leaky_relu(x, 0.2)


def softmax(x: Tensor) -> Tensor:
    """Over the features."""
    return functional.softmax(x, -1)


def log_softmax(x: Tensor) -> Tensor:
    """Over the features."""
    return functional.log_softmax(x, -1)


# Names that torch does not have, or has for something else.
_BY_NAME: dict[str, Activation] = {
    "linear": linear,
    "exponential": torch.exp,
    "swish": functional.silu,
    "hard_sigmoid": hard_sigmoid,
    "leaky_relu": leaky_relu,
    "softmax": softmax,
    "log_softmax": log_softmax,
}


def resolve_activation(activation: Activation | str | None) -> Activation:
    """A function from a function, from a name such as `"relu"`, or tanh from None; names mean what TensorFlow does."""
    if activation is None:
        return torch.tanh
    if callable(activation):
        return activation
    if isinstance(activation, str):
        if activation in _BY_NAME:
            return _BY_NAME[activation]
        for home in (torch, functional):
            function: Activation | None = getattr(home, activation, None)
            if function is not None and _is_pointwise(function):
                return function
    raise ValueError(
        problem(
            "`activation` is unknown",
            got=repr(activation),
            expected="a function, or a name such as 'tanh' or 'relu'",
            fix="Pass a function of one tensor, for example `torch.relu`.",
        )
    )


def _is_pointwise(function: Any) -> bool:
    """Whether a function found by name is an activation: torch has many others, such as `stack` and `randn`."""
    if not callable(function) or isinstance(function, type):
        return False
    sample = torch.linspace(-1, 1, 6, device="cpu").view(2, 3)
    try:
        # Some of them draw random numbers.
        with torch.random.fork_rng(devices=[]):
            values = [function(sample), function(sample)]
    except (TypeError, ValueError, RuntimeError, AttributeError):
        return False
    same = isinstance(values[0], Tensor) and values[0].shape == sample.shape and values[0].dtype == sample.dtype
    return same and torch.equal(*values)
