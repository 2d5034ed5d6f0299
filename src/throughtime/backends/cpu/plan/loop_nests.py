"""Loops within a row: over its columns, axis within axis, for what is read along axes or reduced in groups.

Most operations take the columns of a row one after another, and one loop serves. One that reads a row along axes, or
reduces groups of columns, divides the columns: 6400 of them are 50 times 128. Operations whose divisions fit into each
other share a loop nest, so that what one makes the next finds in a register.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from throughtime.backends.cpu.plan.graph import PlanGraph, columns_of
from throughtime.compiler.ir.loop_ir import REDUCTIONS, Op
from throughtime.compiler.ir.strided_view import StridedView, contiguous

LoopKey = tuple[int, int]
"""Which operations may share a loop: the number of columns, and which way to divide them."""


@dataclass(frozen=True)
class LoopNest:
    """Loops over columns of `sizes`, the last in vectors; a reduction goes over the axes from `first` to `last`."""

    sizes: tuple[int, ...]
    first: int
    last: int

    @property
    def strides(self) -> tuple[int, ...]:
        """How many columns lie between the steps of each axis."""
        return contiguous(self.sizes)

    @property
    def is_across(self) -> bool:
        """Whether what is reduced lies apart: then every lane of a vector is a sum of its own."""
        return self.last < len(self.sizes)

    @property
    def outer(self) -> list[int]:
        """The axes around the vectors, and around all that is reduced."""
        return [*range(self.first), *range(self.last, len(self.sizes) - 1)]

    @property
    def reduced(self) -> list[int]:
        """The axes that are reduced and are no vectors."""
        return list(range(self.first, min(self.last, len(self.sizes) - 1)))

    def strides_of(self, axes: StridedView) -> tuple[int, ...]:
        """What a row that is read along axes moves by at each axis of the nest."""
        own = [*zip(contiguous(axes.sizes), axes.strides, strict=True)]
        found = []
        for apart in self.strides:
            size, stride = next((size, stride) for size, stride in own if size <= apart)
            found.append(stride * (apart // size))
        return tuple(found)


def nest_of(graph: PlanGraph, ops: Sequence[Op]) -> LoopNest:
    """The loops that all these operations can share."""
    columns = columns_of(ops[0])
    cuts = sorted(set().union(*(graph.cuts(op) for op in ops)), reverse=True)
    ends = [columns, *cuts, 1]
    sizes = tuple(whole // part for whole, part in itertools.pairwise(ends))
    group = next((op.group for op in ops if op.kind in REDUCTIONS), None)
    if group is None:
        return LoopNest(sizes, len(sizes) - 1, len(sizes))
    count, inner = group
    return LoopNest(sizes, ends.index(count * inner), ends.index(inner))


@dataclass
class _ColumnSplit:
    """A way to divide columns that several operations can go: they fit into each other, and reduce the same groups."""

    cuts: set[int] = field(default_factory=set)
    group: tuple[int, int] | None = None

    def takes(self, cuts: set[int], group: tuple[int, int] | None) -> bool:
        # Divisions that fit into each other without being the same ones would make for short loops.
        fits = self.cuts <= cuts or cuts <= self.cuts
        return fits and (self.group is None or group is None or self.group == group)


def share_loops(graph: PlanGraph, readers: dict[str, list[Op]]) -> dict[str, LoopKey]:
    """For every operation but products, by the name of its result, the loops that it can be in."""
    ways: defaultdict[int, list[_ColumnSplit]] = defaultdict(list)
    keys: dict[str, LoopKey] = {}
    for op in reversed(graph.ops):
        if op.kind == "product":
            continue
        columns, cuts = columns_of(op), graph.cuts(op)
        group = op.group if op.kind in REDUCTIONS and columns > 1 else None
        known = ways[columns]
        for number in _candidates(keys, readers.get(op.result.name, ()), columns, len(known)):
            if number == len(known):
                known.append(_ColumnSplit())
            if known[number].takes(cuts, group):
                known[number].cuts |= cuts
                known[number].group = known[number].group or group
                keys[op.result.name] = (columns, number)
                break
    return keys


def _candidates(keys: dict[str, LoopKey], readers: Iterable[Op], columns: int, count: int) -> Iterator[int]:
    """The ways to try: those of its readers first, then any, then a new one."""
    for reader in readers:
        width, number = keys.get(reader.result.name, (0, 0))
        if width == columns:
            yield number
    yield from range(count + 1)


def is_gathered(graph: PlanGraph, nest: LoopNest, ops: Iterable[Op]) -> bool:
    """Whether some row is read in the innermost loop with gaps, a number at a time."""
    found = (graph.axes.get(row.name) for op in ops for row in op.rows)
    return any(axes is not None and nest.strides_of(axes)[-1] not in (0, 1) for axes in found)
