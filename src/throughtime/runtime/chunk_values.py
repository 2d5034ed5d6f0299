"""Values of all steps, put together from those of chunks of time."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from throughtime.backends.torch_codegen import Env
from throughtime.compiler import Value


class Assembled:
    """Values of all steps, assembled from chunks; a single chunk is taken as it is."""

    def __init__(self, rows: int, required: Sequence[Value], device: torch.device) -> None:
        self.device = device
        self._rows = rows
        # Each value once: two parameters may have the same gradient.
        self._required = list(dict.fromkeys(required))
        self.found: Env = {}

    def __getitem__(self, value: Value) -> Tensor:
        return self.found[value]

    def buffer(self, value: Value, rows: slice | None, count: int) -> Tensor:
        """A buffer [count, ...] for a value that the loop stores: where possible a slice of the assembled one."""
        shape = value.row_shape
        if rows is None or value not in self._required:
            return torch.empty(count, *shape, dtype=value.dtype, device=self.device)
        if value not in self.found:
            stream = torch.empty(self._rows, *shape, dtype=value.dtype, device=self.device)
            self.found[value] = value.rows_placed(stream)
        return value.rows_first(self.found[value])[rows]

    def collect(self, local: Env, rows: slice | None, *, add: bool) -> None:
        """Take the required values of a chunk: rows are copied to their slice; values without rows are summed if `add`.

        Without `add`, a value without rows is the same in all chunks.
        """
        for value in self._required:
            part = local[value]
            if rows is None:
                self.found[value] = part
            elif not value.has_rows:
                self.found[value] = self.found[value] + part if add and value in self.found else part
            else:
                if value not in self.found:
                    self.found[value] = part.new_empty(value.sized(self._rows))
                place = value.rows_first(self.found[value])[rows]
                if place.data_ptr() != part.data_ptr():
                    place.copy_(value.rows_first(part))


def rows_of(env: Env, rows: slice | None) -> Env:
    """The values of a chunk."""
    if rows is None:
        return dict(env)
    return {
        value: tensor[(slice(None),) * (value.row_axis or 0) + (rows,)] if value.has_rows else tensor
        for value, tensor in env.items()
    }
