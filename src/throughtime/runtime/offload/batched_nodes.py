"""Nodes of a step, run for all rows of a chunk: matmuls by torch, pointwise nodes in fused kernels.

`BatchedNodes` are independent of the recurrence. `ElementwiseScan` is a recurrence without matmuls: one kernel runs all
steps.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from throughtime.backends import triton
from throughtime.backends.aten.fuse_pointwise import FusionGroup, Part, grouped
from throughtime.backends.torch_codegen import Env, SectionFunction
from throughtime.compiler import Graph, Loop, Lowered, Node, Uncompilable, Value, taken_by
from throughtime.layout.step_layout import StepLayout
from throughtime.native.caching_allocator import as_contiguous


class BatchedNodes:
    """Nodes that run for all rows together. They read `takes` from an environment and add `gives` to it."""

    def __init__(self, nodes: Sequence[Node], gives: Sequence[Value], *, on_gpu: bool) -> None:
        self.gives = list(dict.fromkeys(gives))
        nodes = Graph(list(nodes)).needed_for(self.gives)
        made = {value for node in nodes for value in node.results}
        self.takes = taken_by(nodes, self.gives)
        if not on_gpu or all(value in self.takes for value in self.gives):
            self._parts: list[_Kernel | SectionFunction] = [SectionFunction("again", nodes, self.gives, ())]
            self._dead: list[list[Value]] = [[]]
            return
        parts = grouped(nodes, set(self.gives))
        taken = [set(part.takes) for part in parts]
        self._parts, self._dead = [], []
        for index, part in enumerate(parts):
            later = {*self.gives, *(value for values in taken[index + 1 :] for value in values)}
            results = [value for node in part.nodes for value in node.results]
            self._parts.append(_part(part, [value for value in results if value in later]))
            self._dead.append([value for value in taken[index] if value in made and value not in later])

    @property
    def source(self) -> str:
        """The generated code of all parts."""
        return "\n\n".join(part.source for part in self._parts)

    def run(self, rows: int, env: Env) -> None:
        """Run on values from `env`, and add the results."""
        local = dict(env)
        for part, dead in zip(self._parts, self._dead, strict=True):
            part.run(rows, local)
            for value in dead:
                local.pop(value, None)
        env.update({value: local[value] for value in self.gives})


def _part(part: Part, gives: list[Value]) -> _Kernel | SectionFunction:
    if isinstance(part, FusionGroup):
        part.gives = gives
        return _Kernel(part)
    return SectionFunction("again", part.nodes, gives, ())


class _Kernel:
    """A fusion group as a kernel over all rows."""

    def __init__(self, group: FusionGroup) -> None:
        lowered = group.lowered()
        written = [triton.Written(tensor=True, column=None) for _ in group.gives]
        fills = {row.name: number for row, number in lowered.fills}
        self._kernel = triton.ElementwiseKernel(lowered.program, fills, {}, written)
        self._takes, self._gives = [*lowered.streams, *lowered.constants], group.gives
        self.source = self._kernel.source

    def run(self, rows: int, env: Env) -> None:
        """Run on values from `env`, and add the results."""
        given = [_buffer(value, rows, device_of(env)) for value in self._gives]
        self._kernel(given[0], [as_contiguous(env[value]) for value in self._takes], given, rows)
        env.update(zip(self._gives, given, strict=True))


class ElementwiseScan:
    """Nodes of a recurrence without matmuls; `carried` pairs the state before a step with the state after it."""

    def __init__(self, nodes: Sequence[Node], carried: Sequence[tuple[Value, Value]], gives: Sequence[Value]) -> None:
        self.gives = list(dict.fromkeys(gives))
        lowered = _lowered(nodes, carried, self.gives)
        self.takes = [*lowered.streams, *lowered.constants]
        self._streams, self._constants = lowered.streams, lowered.constants
        self._kernel = triton.ElementwiseScanKernel(
            lowered.program, {row.name: number for row, number in lowered.fills}
        )
        self.source = self._kernel.source

    @staticmethod
    def unsupported_reason(
        nodes: Sequence[Node], carried: Sequence[tuple[Value, Value]], gives: Sequence[Value]
    ) -> str | None:
        """Why there is no such kernel, or None."""
        values = {*(value for node in nodes for value in node.results), *(value for pair in carried for value in pair)}
        if any(value.row_axis != 0 for value in values) or any(value.row_axis for value in (*taken_by(nodes), *gives)):
            return "rows do not come first"
        try:
            lowered = _lowered(nodes, carried, gives)
        except Uncompilable as reason:
            return str(reason)
        return triton.elementwise_unsupported_reason(lowered.program)

    def run(self, env: Env, starts: Sequence[Tensor], steps: StepLayout) -> None:
        """Run on values from `env` and the initial states, and add the results."""
        streams, constants = (
            [as_contiguous(env[value]) for value in values] for values in (self._streams, self._constants)
        )
        given = [_buffer(value, steps.total, starts[0].device) for value in self.gives]
        self._kernel.run(streams, constants, [as_contiguous(start) for start in starts], given, steps)
        env.update(zip(self.gives, given, strict=True))


def _lowered(nodes: Sequence[Node], carried: Sequence[tuple[Value, Value]], gives: Sequence[Value]) -> Lowered:
    return Lowered(Loop("walk", list(nodes), False, list(carried), list(gives)), set())


def _buffer(value: Value, rows: int, device: torch.device) -> Tensor:
    """A buffer for a value with `rows` rows."""
    return torch.empty(value.sized(rows), dtype=value.dtype, device=device)


def device_of(env: Env) -> torch.device:
    """The device of the rows. A tensor without dimensions may be on a CPU while the others are not."""
    return next(tensor.device for tensor in env.values() if tensor.ndim)
