"""Activations by function or by name."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from throughtime._errors import problem

Activation = Callable[[Tensor], Tensor]


def resolve_activation(activation: Activation | str | None) -> Activation:
    """A function from a function, from a name such as `"relu"`, or tanh from None."""
    if activation is None:
        return torch.tanh
    if callable(activation):
        return activation
    if isinstance(activation, str):
        for home in (torch, functional):
            function = getattr(home, activation, None)
            if callable(function):
                return function  # type: ignore[no-any-return]
    raise ValueError(
        problem(
            "`activation` is unknown",
            got=repr(activation),
            expected="a function, or a name such as 'tanh' or 'relu'",
            fix="Pass a function of one tensor, for example `torch.relu`.",
        )
    )
