"""How the scratch memory of a shard is divided."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from throughtime.backends.numba._ir import SIZES
from throughtime.backends.numba._llvm import Host
from throughtime.backends.numba._plan import Plan, ProductStage
from throughtime.backends.numba._pointwise import MEMORY
from throughtime.backends.numba._products import PANEL_VECTORS
from throughtime.compiler._loop import Row

BLOCK_ROWS = 24
"""Rows that are enough for a product at full speed: where a step has fewer, some steps are prepared at a time."""
Sizes = dict[tuple[str, int], int]
"""The bytes of one row of each array."""


@dataclass(frozen=True)
class Layout:
    """`step` has the arrays with a row for each row of the shard, `block` those for the rows of a block of steps.

    An array called "local" has one row in all. At the end there are `edge` bytes for each row of the larger of both.
    """

    step: Sizes
    block: Sizes
    edge: int

    def bytes(self, rows: int, block_rows: int) -> int:
        """What a shard of so many rows needs."""
        fixed, each, prepared = self._sums
        return fixed + each * rows + prepared * block_rows + self.edge * max(rows, block_rows)

    @cached_property
    def _sums(self) -> tuple[int, int, int]:
        """Bytes in all, for each row, and for each row of a block."""
        single = [size for sizes in (self.step, self.block) for (kind, _), size in sizes.items() if kind == "local"]
        each, prepared = (
            sum(size for (kind, _), size in sizes.items() if kind != "local") for sizes in (self.step, self.block)
        )
        return sum(single), each, prepared


def make_layout(plan: Plan, host: Host) -> Layout:
    """The layout for a plan, and for what runs ahead of it."""
    step, block = _own(plan), {} if plan.ahead is None else _own(plan.ahead)
    if plan.ahead is not None:
        # What it reads is gathered, what it stores is kept until the steps of the block are done.
        block |= _sizes("stream", plan.ahead.program.streams) | _sizes("stored", plan.ahead.program.stored)
    stages = [*plan.stages, *(plan.ahead.stages if plan.ahead is not None else ())]
    products = any(isinstance(stage, ProductStage) for stage in stages)
    return Layout(step, block, PANEL_VECTORS * host.vector_bytes if products else 0)


def _own(plan: Plan) -> Sizes:
    return _sizes("local", plan.places.local) | _sizes("scratch", plan.places.scratch)


def _sizes(kind: str, rows: Sequence[Row]) -> Sizes:
    return {(kind, index): _padded(row) for index, row in enumerate(rows)}


def _padded(row: Row) -> int:
    """Whole cache lines, and never a page apart, where rows would share cache sets."""
    whole = -(-row.width * SIZES[MEMORY[row.dtype]] // 64) * 64
    return whole + 64 if whole % 2048 == 0 else whole
