"""Sums and products up to each element."""

from __future__ import annotations

from collections.abc import Callable

import torch

from throughtime.tf1.ops._helpers import plain
from throughtime.tf1.ops._table import Static, Tensor, operation


def _cumulative(name: str, op_name: str, function: Callable[[Tensor, int], Tensor], start: float, doc: str) -> None:
    def kernel(x: Tensor, axis: Static = 0, exclusive: Static = False, reverse: Static = False) -> Tensor:
        place = int(plain(axis))
        x = torch.flip(x, [place]) if reverse else x
        if exclusive:
            first = torch.full_like(x.narrow(place, 0, 1), start)
            x = torch.cat([first, x.narrow(place, 0, x.shape[place] - 1)], place)
        result = function(x, place)
        return torch.flip(result, [place]) if reverse else result

    kernel.__doc__ = doc
    kernel.__name__ = name.rpartition(".")[2]
    operation(name, op_name=op_name)(kernel)


_cumulative("cumsum", "Cumsum", lambda x, axis: torch.cumsum(x, axis, dtype=x.dtype), 0, "The sum up to each element.")
_cumulative(
    "cumprod", "Cumprod", lambda x, axis: torch.cumprod(x, axis, dtype=x.dtype), 1, "The product up to each element."
)
_cumulative(
    "math.cumulative_logsumexp",
    "CumulativeLogsumexp",
    torch.logcumsumexp,
    torch.finfo(torch.float32).min,
    "The logarithm of the sum of exponentials up to each element.",
)
