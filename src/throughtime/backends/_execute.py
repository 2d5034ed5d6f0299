"""Running a program: what comes before the loop, the loop, what comes after; forward and backward."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from throughtime.backends._steps import Steps
from throughtime.backends._torch_code import Env, TorchFunction
from throughtime.compiler import Graph, Program, Value


class Executable:
    """A program with its loops compiled by a backend; the second is the backward one, if there is one."""

    def __init__(self, program: Program, loops: Sequence[Any]) -> None:
        self.program = program
        adjoint = program.adjoint
        self.forward_loop = loops[0]
        self.backward_loop = None if adjoint is None else loops[1]
        kept = [] if adjoint is None else adjoint.saved
        wanted = {*program.outputs, *kept}
        read = {*program.loop.reads, *program.after.takes}
        self._invariant = TorchFunction(
            "invariant", program.invariant.nodes, _given(program.invariant.gives, wanted | read | set(program.before.takes))
        )
        self._before = TorchFunction("before", program.before.nodes, _given(program.before.gives, wanted | read))
        self._after = TorchFunction("after", program.after.nodes, _given(program.after.gives, wanted))
        if adjoint is not None:
            self._prepare_adjoint()
        # Which of the gradients are wanted decides how much of the last section must run.
        self._afterwards: dict[tuple[bool, ...], TorchFunction] = {}
        self.is_random = any(
            node.is_random
            for section in (program.invariant, program.before, program.loop, program.after)
            for node in section.nodes
        )

    def _prepare_adjoint(self) -> None:
        adjoint = self.program.adjoint
        assert adjoint is not None
        gradients = [value for value in (*adjoint.tensor_gradients, *adjoint.input_gradients) if value is not None]
        read = {*adjoint.loop.reads, *adjoint.after.takes, *gradients}
        self._adjoint_invariant = TorchFunction(
            "invariant", adjoint.invariant.nodes, _given(adjoint.invariant.gives, read | set(adjoint.before.takes))
        )
        self._adjoint_before = TorchFunction("before", adjoint.before.nodes, _given(adjoint.before.gives, read))

    def forward(
        self, tensors: Sequence[Tensor], inputs: Sequence[Tensor], state: Sequence[Tensor], steps: Steps, generators: Any
    ) -> tuple[list[Tensor], list[Tensor], Env]:
        """The outputs [N, ...], the final state [B, ...], and everything that was computed on the way."""
        program = self.program
        env: Env = dict(zip(program.tensors, tensors, strict=True))
        env.update(zip(program.inputs, inputs, strict=True))
        env.update(program.literals)
        rows = steps.total
        self._invariant.run(rows, env, generators)
        self._before.run(rows, env, generators)
        carried = [leaf.clone(memory_format=torch.contiguous_format) for leaf in state]
        stored = [_stream(value, rows, carried[0].device) for value in program.loop.stored]
        self.forward_loop.run(env, {}, carried, stored, steps, generators, 0, len(steps.counts))
        env.update(zip(program.loop.stored, map(_turned, program.loop.stored, stored), strict=True))
        self._after.run(rows, env, generators)
        return [env[value] for value in program.outputs], carried, env

    def backward(
        self,
        env: Env,
        initial: Sequence[Tensor],
        output_tangents: Sequence[Tensor | None],
        state_tangents: Sequence[Tensor | None],
        steps: Steps,
        wanted: tuple[bool, ...],
    ) -> tuple[list[Tensor | None], list[Tensor | None]]:
        """Gradients of tensors and inputs as far as they are `wanted`, and of the whole initial state."""
        program, adjoint = self.program, self.program.adjoint
        assert adjoint is not None
        assert self.backward_loop is not None
        rows, device = steps.total, initial[0].device
        for value, tangent in zip(adjoint.output_tangents, output_tangents, strict=True):
            if value is not None:
                env[value] = _filled(value, rows, device) if tangent is None else tangent
        self._adjoint_invariant.run(rows, env)
        self._adjoint_before.run(rows, env)
        carried = [
            torch.zeros_like(initial[index]) if (tangent := state_tangents[index]) is None
            else tangent.clone(memory_format=torch.contiguous_format)
            for index in adjoint.carries
        ]
        lagged = {program.state[i]: (env[program.new_state[i]], initial[i]) for i in self._lagged_states}
        stored = [_stream(value, rows, device) for value in adjoint.loop.stored]
        self.backward_loop.run(env, lagged, carried, stored, steps, None, 0, len(steps.counts))
        env.update(zip(adjoint.loop.stored, map(_turned, adjoint.loop.stored, stored), strict=True))
        after = self._afterward(wanted)
        for state, (stream, start) in lagged.items():
            if state in after.takes:
                env[state] = steps.previous(stream, start)
        after.run(rows, env)
        gradients = [
            env[value] if value is not None and want else None
            for value, want in zip((*adjoint.tensor_gradients, *adjoint.input_gradients), wanted, strict=True)
        ]
        by_place: list[Tensor | None] = [None] * len(program.state)
        for index, gradient in zip(adjoint.carries, carried, strict=True):
            by_place[index] = gradient
        return gradients, by_place

    @property
    def _lagged_states(self) -> list[int]:
        assert self.program.adjoint is not None
        lagged = set(self.program.adjoint.lagged)
        return [index for index, value in enumerate(self.program.state) if value in lagged]

    def _afterward(self, wanted: tuple[bool, ...]) -> TorchFunction:
        found = self._afterwards.get(wanted)
        if found is None:
            adjoint = self.program.adjoint
            assert adjoint is not None
            pairs = zip((*adjoint.tensor_gradients, *adjoint.input_gradients), wanted, strict=True)
            results = [value for value, want in pairs if want and value is not None]
            nodes = Graph(adjoint.after.nodes).needed_for(results)
            made = {value for node in nodes for value in node.results}
            found = TorchFunction("after", nodes, [value for value in results if value in made])
            self._afterwards[wanted] = found
        return found

    def differentiable(
        self, tensors: Sequence[Tensor], inputs: Sequence[Tensor], state: Sequence[Tensor], steps: Steps, generators: Any
    ) -> tuple[list[Tensor], list[Tensor]]:
        """The forward pass once more, in operations that torch itself can differentiate, as often as it likes."""
        program = self.program
        env: Env = dict(zip(program.tensors, tensors, strict=True))
        env.update(zip(program.inputs, inputs, strict=True))
        env.update(program.literals)
        rows = steps.total
        self._invariant.run(rows, env, generators)
        self._before.run(rows, env, generators)
        function = TorchFunction("loop", program.loop.nodes, [*program.loop.stored, *program.new_state])
        pieces, final = _walk(function, program, env, state, steps, generators)
        order = torch.argsort(torch.cat([_positions(steps, step) for step in range(len(steps.counts))]))
        for value, parts in zip(program.loop.stored, pieces, strict=True):
            axis = value.row_axis or 0
            env[value] = torch.cat([part.movedim(axis, 0) for part in parts])[order].movedim(0, axis)
        self._after.run(rows, env, generators)
        return [env[value] for value in program.outputs], final


def _walk(
    function: TorchFunction, program: Program, env: Env, state: Sequence[Tensor], steps: Steps, generators: Any
) -> tuple[list[list[Tensor]], list[Tensor]]:
    """The loop in torch operations, out of place."""
    current = list(state)
    ended: list[list[Tensor]] = [[] for _ in state]
    pieces: list[list[Tensor]] = [[] for _ in program.loop.stored]
    streams = {
        value: steps.split(env[value].movedim(value.row_axis or 0, 0))
        for value in function.takes
        if value.has_rows and value not in program.state
    }
    for step, rows in enumerate(steps.counts):
        for index, leaf in enumerate(current):
            ended[index].append(leaf[rows:])
            current[index] = leaf[:rows]
        now = dict(zip(program.state, current, strict=True))
        arguments = [
            now[value] if value in now else
            streams[value][step].movedim(0, value.row_axis or 0) if value in streams else env[value]
            for value in function.takes
        ]
        results = dict(zip(function.gives, function(rows, generators, *arguments), strict=True))
        for parts, value in zip(pieces, program.loop.stored, strict=True):
            parts.append(results[value])
        current = [results[value] for value in program.new_state]
    final = [torch.cat([leaf, *reversed(left)]) for leaf, left in zip(current, ended, strict=True)]
    return pieces, final


def _positions(steps: Steps, step: int) -> Tensor:
    return steps.starts[step] + steps.row_stride * torch.arange(steps.counts[step])


def _given(gives: list[Value], wanted: set[Value]) -> list[Value]:
    return [value for value in gives if value in wanted]


def _row_shape(value: Value) -> list[int]:
    return [size for size in value.shape if isinstance(size, int)]


def _stream(value: Value, rows: int, device: torch.device) -> Tensor:
    """Memory for a value of all steps, with the rows first."""
    return torch.empty(rows, *_row_shape(value), dtype=value.dtype, device=device)


def _turned(value: Value, stream: Tensor) -> Tensor:
    """A stream with the rows where the value has them."""
    return stream if not value.row_axis else stream.movedim(0, value.row_axis)


def _filled(value: Value, rows: int, device: torch.device) -> Tensor:
    """Zeros for a gradient that nobody asked for; they take no memory until somebody needs them side by side."""
    zero = torch.zeros((), dtype=value.dtype, device=device)
    return zero.expand([size if isinstance(size, int) else rows for size in value.shape])
