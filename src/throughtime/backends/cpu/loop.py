"""A loop of a program on the CPU backend: the tensors of its streams, constants and matrices."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from throughtime.backends.cpu import bound_backward, bound_call, support
from throughtime.backends.cpu import compile as cpu_compile
from throughtime.backends.loop_backend import BackwardPass, BoundBackward, BoundCall, ForwardPass, LoopBackend
from throughtime.backends.torch_codegen import Env, Generators
from throughtime.compiler import Loop, Lowered, Node, Program, Row, Section, Uncompilable, Value, is_lowerable
from throughtime.layout.previous_step import LaggedStreams
from throughtime.layout.step_layout import StepLayout
from throughtime.native.caching_allocator import as_contiguous


def lower(program: Program) -> list[Lowered | str]:
    """The loops of a program lowered for the CPU backend, or why it does not support them.

    Nodes before the loop whose results only the loop reads become part of the kernel, which computes them for a few
    steps at a time.
    """
    adjoint = program.adjoint
    wanted = [*program.outputs, *program.after.takes, *program.saved]
    lowered = [_lower(program.loop, [], program.before, wanted)]
    if adjoint is not None:
        wanted = [*adjoint.gradients, *adjoint.after.takes]
        lowered.append(_lower(adjoint.loop, adjoint.lagged, adjoint.before, wanted))
    return lowered


def _lower(loop: Loop, lagged: Sequence[Value], before: Section, wanted: Iterable[Value]) -> Lowered | str:
    ahead = _read_by_loop_only(before, set(wanted), set(lagged))
    try:
        lowered = Lowered(loop, set(lagged))
    except Uncompilable as refusal:
        return str(refusal)
    return support.unsupported_reason(lowered.program) or (
        _with_ahead(lowered, loop, lagged, ahead) if ahead else lowered
    )


def _read_by_loop_only(before: Section, wanted: set[Value], lagged: set[Value]) -> list[Node]:
    nodes: list[Node] = []
    for node in reversed(before.nodes):
        if is_lowerable(node) and wanted.isdisjoint(node.results) and lagged.isdisjoint(node.values):
            nodes.insert(0, node)
        else:
            wanted.update(node.values)
    return nodes


def _with_ahead(lowered: Lowered, loop: Loop, lagged: Sequence[Value], ahead: Sequence[Node]) -> Lowered:
    """The same loop with the nodes that run ahead of it, if the kernel supports them."""
    rest, views = _without_views(ahead)
    for nodes, outside in (([*views, *loop.nodes], rest), (loop.nodes, ahead)):
        with contextlib.suppress(Uncompilable):
            whole = Lowered(replace(loop, nodes=nodes), set(lagged), outside)
            if support.unsupported_reason(whole.program) is None:
                return whole
    return lowered


def _without_views(ahead: Sequence[Node]) -> tuple[list[Node], list[Node]]:
    """The nodes ahead without the views that they end in, and those views: the loop reads features in place."""
    used: set[Value] = set()
    rest, ends = list[Node](), list[Node]()
    for node in reversed(ahead):
        if node.operation.is_view and used.isdisjoint(node.results):
            ends.insert(0, node)
        else:
            rest.insert(0, node)
            used.update(node.values)
    return rest, ends


class CpuLoop(LoopBackend):
    """A loop as one call of a compiled kernel."""

    by_kernels = True

    def __init__(self, lowered: Lowered) -> None:
        self.kernel = cpu_compile.compile_loop(lowered.program)
        self._stored, self._own = lowered.stored, lowered.rows
        parts = [lowered] if lowered.ahead is None else [lowered, lowered.ahead]
        self.streams = [value for part in parts for value in part.streams]
        self.lagged = lowered.lagged
        self.matrices = [value for part in parts for value in part.matrices]
        self.constants: list[Value | Tensor] = []
        for part in parts:
            self.constants += [*part.constants, *(_filled(*fill) for fill in part.fills)]
        self.takes = [*self.streams, *self.matrices, *(c for c in self.constants if isinstance(c, Value))]

    def overwritten(self, free: Iterable[Value], visible: set[Value]) -> list[Value | None]:
        left = [value for value in free if value in self._own and self.streams.count(value) == 1 and not value.row_axis]
        found: list[Value | None] = []
        for index, stored in enumerate(self._stored):
            fits = (value for value in left if (index, self._own[value].name) in self.kernel.replaceable)
            found.append(None if stored in visible or stored.row_axis else next(fits, None))
            left = [value for value in left if value is not found[-1]]
        return found

    @property
    def source(self) -> str:
        return self.kernel.source

    def bind(self, forward: ForwardPass, steps: StepLayout, tensors: Sequence[Tensor]) -> BoundCall | None:
        return bound_call.bind(self, forward, steps, tensors)

    def bind_backward(
        self, backward: BackwardPass, tensors: Sequence[Tensor], required: tuple[bool, ...]
    ) -> BoundBackward | None:
        return bound_backward.bind(self, backward, tensors, required)

    def run(
        self,
        env: Env,
        lagged: LaggedStreams,
        carried: Sequence[Tensor],
        stored: Sequence[Tensor],
        steps: StepLayout,
        generators: Generators | None,
        starts: Sequence[Tensor] | None = None,
    ) -> None:
        self.kernel.run(
            [as_contiguous(value.rows_first(env[value])) for value in self.streams],
            [
                (as_contiguous(stream), as_contiguous(initial))
                for stream, initial in map(lagged.__getitem__, self.lagged)
            ],
            [as_contiguous(env[given]) if isinstance(given, Value) else given for given in self.constants],
            [env[value].resolve_neg() for value in self.matrices],
            carried,
            stored,
            steps,
            0,
            len(steps.counts),
            torch.get_num_threads(),
        )


def _filled(row: Row, number: float) -> Tensor:
    return torch.full((row.width,), number, dtype=row.dtype, device="cpu")
