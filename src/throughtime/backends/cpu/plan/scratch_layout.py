"""How the scratch memory of a shard is divided."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from throughtime.backends.cpu.codegen.pointwise import MEMORY
from throughtime.backends.cpu.plan.kernel_plan import KernelPlan
from throughtime.compiler.ir.loop_ir import Row
from throughtime.native.toolchain.llvm_builder import SIZES

BLOCK_ROWS = 24
"""Rows that are enough for a product at full speed: where a step has fewer, some steps are prepared at a time."""
Sizes = dict[tuple[str, int], int]
"""The bytes of one row of each array. One that is called "local" has one row in all for each cooperative thread."""


@dataclass(frozen=True)
class Region:
    """Arrays with a row for each row of something."""

    sizes: Sizes

    def bytes(self, rows: int, members: int = 1) -> int:
        """The bytes for a number of rows and of cooperative threads."""
        return self._once * members + self._each * rows

    @cached_property
    def _once(self) -> int:
        return sum(size for (kind, _), size in self.sizes.items() if kind == "local")

    @cached_property
    def _each(self) -> int:
        return sum(size for (kind, _), size in self.sizes.items() if kind != "local")


class Layout(NamedTuple):
    """What stays where it is from step to step, for the rows of a shard; and for the rows of a block of steps."""

    step: Region
    block: Region


def make_layout(plan: KernelPlan) -> Layout:
    """The layout for a plan, and for what runs ahead of it."""
    ahead = plan.ahead
    if ahead is None:
        return Layout(Region(_own(plan)), Region({}))
    # What runs ahead reads rows that are gathered; what it stores lives until the steps of the block are done.
    block = _own(ahead) | _sizes("stream", ahead.program.streams) | _sizes("stored", ahead.program.stored)
    return Layout(Region(_own(plan)), Region(block))


def _own(plan: KernelPlan) -> Sizes:
    return _sizes("local", plan.places.local) | _sizes("scratch", plan.places.scratch)


def _sizes(kind: str, rows: Sequence[Row]) -> Sizes:
    return {(kind, index): _padded(row) for index, row in enumerate(rows)}


def _padded(row: Row) -> int:
    """Whole cache lines, and never a page apart, where rows would share cache sets."""
    whole = -(-row.width * SIZES[MEMORY[row.dtype]] // 64) * 64
    return whole + 64 if whole % 2048 == 0 else whole
