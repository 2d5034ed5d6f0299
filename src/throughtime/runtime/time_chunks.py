"""Values of all steps of a walk, and the walk cut into blocks of steps."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from throughtime.backends.torch_codegen import Env
from throughtime.compiler import Value
from throughtime.layout.step_layout import StepLayout
from throughtime.native.caching_allocator import empty


class StepBuffers:
    """Memory for what a loop stores; what somebody outside will see is torch's own."""

    def __init__(self, stored: Sequence[Value], visible: set[Value]) -> None:
        self._stored = stored
        self._shapes = [(value in visible, value.row_shape, value.dtype) for value in stored]
        self._nowhere = [None] * len(stored)
        self._turned = [value for value in stored if value.row_axis]

    def make(
        self, rows: int, device: torch.device, *, hidden: bool = False, places: Sequence[Tensor | None] | None = None
    ) -> list[Tensor]:
        """A stream [rows, ...] for each value; nobody outside will see any of them if they are `hidden`.

        Those that have a place take it.
        """
        return [
            place.view(rows, *shape)
            if place is not None
            else torch.empty(size=(rows, *shape), dtype=dtype, device=device)
            if visible and not hidden
            else empty((rows, *shape), dtype, device)
            for (visible, shape, dtype), place in zip(self._shapes, places or self._nowhere, strict=True)
        ]

    def enter(self, env: Env, streams: Sequence[Tensor]) -> None:
        """Make the streams known as the values they are."""
        env.update(zip(self._stored, streams, strict=True))
        for value in self._turned:
            env[value] = value.rows_placed(env[value])


class Assembled:
    """Values of all steps, put together from those of blocks; a single block is taken as it is."""

    def __init__(self, rows: int, wanted: Sequence[Value], device: torch.device) -> None:
        self.device = device
        self._rows = rows
        # Once each: two parameters may have the same gradient.
        self._wanted = list(dict.fromkeys(wanted))
        self.found: Env = {}

    def __getitem__(self, value: Value) -> Tensor:
        return self.found[value]

    def room(self, value: Value, rows: slice | None, count: int) -> Tensor:
        """Memory [count, ...] for what the loop stores, where possible in its final place."""
        shape = value.row_shape
        if rows is None or value not in self._wanted:
            return torch.empty(count, *shape, dtype=value.dtype, device=self.device)
        if value not in self.found:
            stream = torch.empty(self._rows, *shape, dtype=value.dtype, device=self.device)
            self.found[value] = value.rows_placed(stream)
        return value.rows_first(self.found[value])[rows]

    def collect(self, local: Env, rows: slice | None, *, add: bool) -> None:
        """Take from a block what is wanted: rows go to their places; what has none is added up, or always the same."""
        for value in self._wanted:
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


def first_steps(steps: StepLayout, chunk: int | None) -> Sequence[int]:
    """The first steps of blocks of `chunk` steps; None is all of them."""
    count = len(steps.counts)
    return range(0, count, count if chunk is None else chunk)


def blocks(
    steps: StepLayout, firsts: Sequence[int], *, backwards: bool = False
) -> Iterator[tuple[StepLayout, slice | None, int]]:
    """The steps in blocks, each with its rows (None for all) and its first step."""
    if len(firsts) == 1:
        yield steps, None, 0
        return
    spans = [*itertools.pairwise([*firsts, len(steps.counts)])]
    for first, last in reversed(spans) if backwards else spans:
        yield *steps.block(first, last), first


def rows_of(env: Env, rows: slice | None) -> Env:
    """The values of a block of steps."""
    if rows is None:
        return dict(env)
    return {
        value: tensor[(slice(None),) * (value.row_axis or 0) + (rows,)] if value.has_rows else tensor
        for value, tensor in env.items()
    }
