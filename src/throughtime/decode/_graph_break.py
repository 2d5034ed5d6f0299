"""Decoding beside torch.compile: a graph has a fixed number of steps, and decoding ends when the data says so."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import torch

P = ParamSpec("P")
R = TypeVar("R")


def beside_graphs(function: Callable[P, R]) -> Callable[P, R]:
    """`function`, which no graph contains: one ends before it and another begins after it, with the same results."""

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        if torch.compiler.is_compiling():
            # The message where one graph is required, by `fullgraph=True`.
            torch._dynamo.graph_break(msg=f"tt.decode: {function.__name__} depends on the values of tensors")
            return torch.compiler.disable(function)(*args, **kwargs)  # type: ignore[no-any-return]
        return function(*args, **kwargs)

    return run
