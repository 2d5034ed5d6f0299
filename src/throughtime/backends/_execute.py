"""Running a program: what comes before the loop, the loop, what comes after; forward and backward."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from throughtime.backends._memory import empty as _reused
from throughtime.backends._moves import shifted
from throughtime.backends._steps import Steps
from throughtime.backends._torch_code import Env, TorchFunction
from throughtime.compiler import Graph, Node, Program, Section, Value

Loops = Sequence[Any]
"""The compiled loop of the forward program and, if there is one, of the backward program."""


class Executable:
    """A program with its loops compiled by a backend."""

    def __init__(self, program: Program, loops: Loops) -> None:
        self.program = program
        self.loops = loops
        adjoint = program.adjoint
        # In a fixed order: an operator of torch hands these from its forward to its backward call by place.
        kept = [] if adjoint is None else adjoint.saved
        wanted = {*program.outputs, *kept}
        read = {*loops[0].takes, *program.after.takes, *wanted}
        self._drawn = _function(program.drawn, read | {*program.before.takes, *program.invariant.takes})
        self._invariant = _function(program.invariant, read | {*program.before.takes})
        # What nobody outside will see may lie in memory that is used again.
        outputs = set(program.outputs)
        self._before = _function(program.before, read, reuse=set(program.before.gives) - outputs)
        self._after = _function(program.after, wanted)
        self._streams = _Streams(program.loop.stored, visible=outputs)
        # Whether anything is drawn besides what is drawn ahead of everything else.
        self.is_random = any(
            node.is_random
            for section in (program.invariant, program.before, program.loop, program.after)
            for node in section.nodes
        )
        # What a backward pass must find again; the cell's own tensors and the inputs are kept anyway.
        given = {*program.tensors, *program.inputs, *program.literals}
        lagged = [] if adjoint is None else [new for old, new in program.states if old in set(adjoint.lagged)]
        self.kept = [value for value in dict.fromkeys([*kept, *lagged]) if value not in given]
        if adjoint is not None:
            gradients = set(adjoint.gradients)
            read = {*loops[1].takes, *adjoint.after.takes, *gradients}
            self._adjoint_invariant = _function(adjoint.invariant, read | {*adjoint.before.takes})
            self._adjoint_before = _function(adjoint.before, read, reuse=set(adjoint.before.gives) - gradients)
            self._adjoint_streams = _Streams(adjoint.loop.stored, visible=gradients)
            self._lagged = [index for index, (old, _) in enumerate(program.states) if old in set(adjoint.lagged)]
        self._afterwards: dict[tuple[bool, ...], TorchFunction] = {}

    def in_kernels(self, before: Section) -> list[Node]:
        """The nodes of a section before a loop that are left to the kernel of the loop."""
        adjoint = self.program.adjoint
        own = self._before if before is self.program.before or adjoint is None else self._adjoint_before
        kept = set(map(id, Graph(before.nodes).needed_for(own.gives)))
        return [node for node in before.nodes if id(node) not in kept]

    @property
    def works_before(self) -> bool:
        """Whether torch has something to do before the loop, from inputs."""
        return bool(self._before.gives)

    def run_invariant(self, env: Env) -> None:
        """Add what depends on the cell's tensors alone to them."""
        self._invariant.run(0, env, None)

    def draw(self, rows: int, generators: Any) -> Env:
        """The random numbers that depend on nothing, for all rows of all steps."""
        env: Env = {}
        self._drawn.run(rows, env, generators)
        return env

    def forward(
        self, env: Env, state: Sequence[Tensor], steps: Steps, generators: Any, chunk: int | None
    ) -> tuple[list[Tensor], list[Tensor], Env]:
        """The outputs [N, ...], the final state [B, ...], and the values that a backward pass needs.

        `env` holds the cell's tensors, the inputs [N, ...] and what was drawn. What is computed for many steps at once
        is computed for `chunk` of them; None means all.
        """
        program = self.program
        self._invariant.run(0, env, generators)
        carried = [leaf.clone(memory_format=torch.contiguous_format) for leaf in state]
        device = carried[0].device
        outside = self.works_before or self._after.gives
        if chunk is None or chunk >= len(steps.active) or not outside:
            # Packed rows are unpacked before anybody sees them.
            stored = self._streams.make(steps.total, device, hidden=steps.is_ragged)
            self._run_forward(env, carried, steps, generators, stored)
            return [env[value] for value in program.outputs], carried, {value: env[value] for value in self.kept}
        wanted = list(dict.fromkeys([*program.outputs, *self.kept]))
        whole = _Whole(steps.total, wanted)
        for block, rows, _ in _blocks(steps, chunk):
            local = {value: tensor[rows] if value.has_rows else tensor for value, tensor in env.items()}
            stored = [whole.room(value, rows, block.total, device) for value in program.loop.stored]
            self._run_forward(local, [leaf[: block.batch_size] for leaf in carried], block, generators, stored)
            whole.collect(local, rows, add=False)
        return [whole[value] for value in program.outputs], carried, {value: whole[value] for value in self.kept}

    def _run_forward(
        self, env: Env, carried: Sequence[Tensor], steps: Steps, generators: Any, stored: Sequence[Tensor]
    ) -> None:
        self._before.run(steps.total, env, generators)
        self.loops[0].run(env, {}, carried, stored, steps, generators)
        self._streams.enter(env, stored)
        self._after.run(steps.total, env, generators)

    def backward(
        self,
        env: Env,
        initial: Sequence[Tensor],
        output_tangents: Sequence[Tensor | None],
        state_tangents: Sequence[Tensor | None],
        steps: Steps,
        wanted: tuple[bool, ...],
        chunk: int | None,
    ) -> tuple[list[Tensor | None], list[Tensor | None]]:
        """Gradients of tensors and inputs as far as they are `wanted`, and of the initial state."""
        adjoint = self.program.adjoint
        assert adjoint is not None
        device = initial[0].device
        carried = [_tangent(initial[index], state_tangents[index]) for index in adjoint.carries]
        for value, tangent in zip(adjoint.output_tangents, output_tangents, strict=True):
            if value is not None:
                env[value] = _zeros(value, steps.total, device) if tangent is None else tangent
        self._adjoint_invariant.run(0, env)
        pairs = zip((*adjoint.tensor_gradients, *adjoint.input_gradients), wanted, strict=True)
        gradients = [value if want else None for value, want in pairs]
        whole = _Whole(steps.total, [value for value in gradients if value is not None])
        after = self._after_backward(wanted, gradients)
        for block, rows, first in _blocks(steps, chunk, backwards=True):
            local = env if rows is None else {v: t[rows] if v.has_rows else t for v, t in env.items()}
            lagged = self._lagged_streams(env, initial, steps, block, rows, first)
            for value, (stream, start) in lagged.items():
                if value in after.takes or value in self._adjoint_before.takes:
                    local[value] = _previous(block, stream, start)
            self._adjoint_before.run(block.total, local)
            if rows is None:
                front, stored = carried, self._adjoint_streams.make(block.total, device)
            else:
                front = [leaf[: block.batch_size] for leaf in carried]
                stored = [whole.room(value, rows, block.total, device) for value in adjoint.loop.stored]
            self.loops[1].run(local, lagged, front, stored, block, None)
            self._adjoint_streams.enter(local, stored)
            after.run(block.total, local)
            whole.collect(local, rows, add=True)
        states: list[Tensor | None] = [None] * len(initial)
        for index, gradient in zip(adjoint.carries, carried, strict=True):
            states[index] = gradient
        return [None if value is None else whole[value] for value in gradients], states

    def _lagged_streams(
        self, env: Env, initial: Sequence[Tensor], steps: Steps, block: Steps, rows: slice | None, first: int
    ) -> dict[Value, tuple[Tensor, Tensor]]:
        """For each state that is needed as it was: the stream of new states, and what the first step found."""
        found = {}
        for index in self._lagged:
            old, new = self.program.states[index]
            stream, start = env[new], initial[index]
            if rows is not None:
                start = steps.rows(stream, first - 1)[: block.batch_size] if first else start
                stream = stream[rows]
            found[old] = (stream, start)
        return found

    def _after_backward(self, wanted: tuple[bool, ...], gradients: Sequence[Value | None]) -> TorchFunction:
        """The last section, as far as the gradients that are wanted need it."""
        found = self._afterwards.get(wanted)
        if found is None:
            assert self.program.adjoint is not None
            results = [value for value in gradients if value is not None]
            nodes = Graph(self.program.adjoint.after.nodes).needed_for(results)
            found = self._afterwards[wanted] = _function(Section("after", nodes), set(results), reuse=())
        return found

    def differentiable(
        self, env: Env, state: Sequence[Tensor], steps: Steps, generators: Any
    ) -> tuple[list[Tensor], list[Tensor]]:
        """The forward pass in operations that torch itself can differentiate, as often as it likes."""
        program = self.program
        self._invariant.run(0, env, generators)
        read = {*program.loop.reads, *program.after.takes, *program.outputs}
        _function(program.before, read).run(steps.total, env, generators)
        function = TorchFunction("loop", program.loop.nodes, [*program.loop.stored, *program.new_state])
        pieces, final = _walk(function, program, env, state, steps, generators)
        order = torch.argsort(torch.cat([steps.positions(step) for step in range(len(steps.counts))]))
        order = order.to(final[0].device)
        for value, parts in zip(program.loop.stored, pieces, strict=True):
            axis = value.row_axis or 0
            env[value] = torch.cat([part.movedim(axis, 0) for part in parts])[order].movedim(0, axis)
        self._after.run(steps.total, env, generators)
        return [env[value] for value in program.outputs], final


class _Streams:
    """Memory for what a loop stores; what somebody outside will see is torch's own."""

    def __init__(self, stored: Sequence[Value], visible: set[Value]) -> None:
        self._stored = stored
        self._shapes = [
            (
                torch.empty if value in visible else _reused,
                [size for size in value.shape if isinstance(size, int)],
                value.dtype,
            )
            for value in stored
        ]
        self._turned = [value for value in stored if value.row_axis]

    def make(self, rows: int, device: torch.device, *, hidden: bool = False) -> list[Tensor]:
        """A stream [rows, ...] for each value; nobody outside will see any of them if they are `hidden`."""
        return [
            (_reused if hidden else make)((rows, *shape), dtype=dtype, device=device)
            for make, shape, dtype in self._shapes
        ]

    def enter(self, env: Env, streams: Sequence[Tensor]) -> None:
        """Make the streams known as the values they are."""
        env.update(zip(self._stored, streams, strict=True))
        for value in self._turned:
            env[value] = turned(value, env[value])


class _Whole:
    """Values of all steps, put together from those of blocks; a single block is taken as it is."""

    def __init__(self, rows: int, wanted: Sequence[Value]) -> None:
        self._rows = rows
        self._wanted = wanted
        self._found: Env = {}

    def __getitem__(self, value: Value) -> Tensor:
        return self._found[value]

    def room(self, value: Value, rows: slice | None, count: int, device: torch.device) -> Tensor:
        """Memory [count, ...] for what the loop stores, where possible in its final place."""
        shape = [size for size in value.shape if isinstance(size, int)]
        if rows is None or value not in self._wanted:
            return torch.empty(count, *shape, dtype=value.dtype, device=device)
        if value not in self._found:
            stream = torch.empty(self._rows, *shape, dtype=value.dtype, device=device)
            self._found[value] = turned(value, stream)
        return self._found[value].movedim(value.row_axis or 0, 0)[rows]

    def collect(self, local: Env, rows: slice | None, *, add: bool) -> None:
        """Take from a block what is wanted: rows go to their places; what has none is added up, or always the same."""
        for value in self._wanted:
            part = local[value]
            if rows is None:
                self._found[value] = part
            elif not value.has_rows:
                self._found[value] = self._found[value] + part if add and value in self._found else part
            else:
                axis = value.row_axis or 0
                if value not in self._found:
                    shape = [size if isinstance(size, int) else self._rows for size in value.shape]
                    self._found[value] = part.new_empty(shape)
                place = self._found[value].movedim(axis, 0)[rows]
                if place.data_ptr() != part.data_ptr():
                    place.copy_(part.movedim(axis, 0))


def _blocks(steps: Steps, chunk: int | None, *, backwards: bool = False) -> Iterator[tuple[Steps, slice | None, int]]:
    """The steps in blocks of `chunk`, each with its rows (None for all) and its first step."""
    count = len(steps.counts)
    if chunk is None or chunk >= count:
        yield steps, None, 0
        return
    starts = range(0, count, chunk)
    for first in reversed(starts) if backwards else starts:
        yield *steps.block(first, min(first + chunk, count)), first


def _walk(
    function: TorchFunction, program: Program, env: Env, state: Sequence[Tensor], steps: Steps, generators: Any
) -> tuple[list[list[Tensor]], list[Tensor]]:
    """The loop in torch operations, out of place."""
    current = list(state)
    ended: list[list[Tensor]] = [[] for _ in state]
    pieces: list[list[Tensor]] = [[] for _ in program.loop.stored]
    carried = set(program.state)
    streams = {
        value: steps.split(env[value].movedim(value.row_axis or 0, 0))
        for value in function.takes
        if value.has_rows and value not in carried
    }
    for step, rows in enumerate(steps.counts):
        for index, leaf in enumerate(current):
            ended[index].append(leaf[rows:])
            current[index] = leaf[:rows]
        now = {**env, **dict(zip(program.state, current, strict=True))}
        now |= {value: parts[step].movedim(0, value.row_axis or 0) for value, parts in streams.items()}
        results = dict(
            zip(function.gives, function(rows, generators, *[now[value] for value in function.takes]), strict=True)
        )
        for parts, value in zip(pieces, program.loop.stored, strict=True):
            parts.append(results[value])
        current = [results[value] for value in program.new_state]
    final = [torch.cat([leaf, *reversed(left)]) for leaf, left in zip(current, ended, strict=True)]
    return pieces, final


def _function(section: Section, wanted: set[Value], reuse: Iterable[Value] | None = None) -> TorchFunction:
    """The section, as far as it is wanted."""
    nodes = Graph(section.nodes).needed_for(wanted)
    return TorchFunction(section.name, nodes, [value for value in section.gives if value in wanted], reuse)


def _previous(steps: Steps, stream: Tensor, initial: Tensor) -> Tensor:
    """For every row of every step the row of the step before it."""
    found = shifted(stream, initial, steps.active, steps.offset) if steps.is_ragged else None
    return steps.previous(stream, initial) if found is None else found


def turned(value: Value, stream: Tensor) -> Tensor:
    """A stream, whose rows come first, with the rows where the value has them."""
    return stream if not value.row_axis else stream.movedim(0, value.row_axis)


def _tangent(like: Tensor, tangent: Tensor | None) -> Tensor:
    if tangent is None:
        return torch.zeros_like(like, memory_format=torch.contiguous_format)
    return tangent.clone(memory_format=torch.contiguous_format)


def _zeros(value: Value, rows: int, device: torch.device) -> Tensor:
    """Zeros for a gradient that nobody asked for; they take no memory until somebody needs them side by side."""
    zero = torch.zeros((), dtype=value.dtype, device=device)
    return zero.expand([size if isinstance(size, int) else rows for size in value.shape])
