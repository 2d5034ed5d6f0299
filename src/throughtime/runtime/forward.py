"""The forward pass of a program: the section before the loop, the loop, the section after it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, partial

import torch
from torch import Tensor

from throughtime.backends.loop_backend import BoundCall, ForwardPass, LoopBackend
from throughtime.backends.step_buffers import StepBuffers
from throughtime.backends.torch_codegen import Env, Generators, SectionFunction
from throughtime.compiler import Node, Program
from throughtime.layout.initial_state import begin
from throughtime.layout.step_layout import StepLayout
from throughtime.layout.time_chunks import TimeChunk, first_steps, time_chunks
from throughtime.runtime.backward import Backward
from throughtime.runtime.chunk_values import Assembled, rows_of
from throughtime.runtime.offload.plan import OffloadedChunks, OffloadPlanner

Loops = Sequence[LoopBackend]
"""The compiled loop of the forward program and, if there is one, of the backward program."""


class Executable:
    """A program with its loops compiled by a backend. `backward` is its backward pass, if there is one."""

    def __init__(self, program: Program, loops: Loops) -> None:
        self.program = program
        self.loops = loops
        on_gpu, self.takes_starts = loops[0].on_gpu, loops[0].takes_starts
        wanted = {*program.outputs, *program.saved}
        read = {*loops[0].takes, *program.after.takes, *wanted}
        self._drawn = SectionFunction.of(program.random, read | {*program.before.takes, *program.invariant.takes})
        self._invariant = SectionFunction.of(program.invariant, read | {*program.before.takes}, on_gpu=on_gpu)
        # Values that the caller does not see may be in memory that is reused.
        outputs = set(program.outputs)
        reuse = set(program.before.gives) - outputs
        function = partial(SectionFunction.of, on_gpu=on_gpu, by_kernels=loops[0].by_kernels)
        self._before = function(program.before, read, reuse=reuse)
        self._after = function(program.after, wanted)
        self._streams = StepBuffers(program.loop.stored, visible=outputs)
        # Whether any section but `drawn`, which runs first, draws random numbers.
        self.is_random = any(
            node.is_random
            for section in (program.invariant, program.before, program.loop, program.after)
            for node in section.nodes
        )
        # The values to save for the backward pass, besides the cell's tensors and the inputs. In a fixed order: the
        # custom operator passes them from its forward to its backward call by position.
        given = {*program.tensors, *program.inputs, *program.literals}
        self.kept = [value for value in program.saved if value not in given]
        self.backward = None if program.adjoint is None else Backward(program, program.adjoint, loops[1], self.kept)

    @property
    def in_kernel(self) -> list[Node]:
        """The nodes before the loop that its kernel computes."""
        return self._before.left_of(self.program.before)

    @cached_property
    def keeping(self) -> OffloadPlanner:
        """What each chunk of time saves for the backward pass with `swap_memory`."""
        assert self.backward is not None
        lagged = [index for index, _, _ in self.backward.lagged]
        return OffloadPlanner(self.program, self.loops, self.kept, lagged, is_random=self.is_random)

    @cached_property
    def constant(self) -> list[int]:
        """The indices of results, outputs first and then states, that have no gradient."""
        program, adjoint = self.program, self.program.adjoint
        outputs = program.outputs if adjoint is None else adjoint.output_cotangents
        without = [cotangent is None for cotangent in outputs] + [False] * len(program.state)
        values = [*program.outputs, *program.state]
        return [place for place, none in enumerate(without) if none or not values[place].dtype.is_floating_point]

    @property
    def works_before(self) -> bool:
        """Whether torch computes something before the loop."""
        return bool(self._before.gives)

    def bind(self, steps: StepLayout, tensors: Sequence[Tensor]) -> BoundCall | None:
        """The forward pass as one kernel call; None if it is more than its loop, or the backend cannot be bound."""
        program = self.program
        if program.random.nodes or self.works_before or program.after.nodes:
            return None
        kept = [] if self.backward is None else self.kept
        forward = ForwardPass(program, kept, partial(self._invariant_values, tensors), self.backward)
        return self.loops[0].bind(forward, steps, tensors)

    def _invariant_values(self, tensors: Sequence[Tensor]) -> Env:
        """The cell's tensors, literals, and the values that depend on nothing else."""
        env = {**dict(zip(self.program.tensors, tensors, strict=True)), **self.program.literals}
        with torch.no_grad():
            self._invariant.run(0, env)
        return env

    def draw(self, rows: int, generators: Generators) -> Env:
        """The random numbers that depend on no other value, for all rows."""
        env: Env = {}
        self._drawn.run(rows, env, generators)
        return env

    def forward(
        self,
        env: Env,
        state: Sequence[Tensor],
        steps: StepLayout,
        generators: Generators,
        chunk: int | None,
        kept: OffloadedChunks | None = None,
    ) -> tuple[list[Tensor], list[Tensor], Env]:
        """The outputs [N, ...], the final state [B, ...], and the values saved for the backward pass.

        `env` holds the cell's tensors, the inputs [N, ...] and the random numbers. Sections outside the loop run on
        `chunk` steps at a time; None means all. Values that the chunks of `kept` save are not among the results.
        """
        program = self.program
        self._invariant.run(0, env, generators)
        device = state[0].device
        outside = self.works_before or self._after.gives
        in_one = kept is None and (chunk is None or chunk >= len(steps.counts) or not outside)
        starts, carried = begin(state, state, separate=in_one and self.takes_starts)
        if kept is not None:
            return self._forward_offloading(env, carried, steps, generators, kept)
        if in_one:
            # Packed rows are unpacked into other tensors before the caller sees them.
            stored = self._streams.make(steps.total, device, hidden=steps.is_ragged)
            self._run_forward(env, carried, steps, generators, stored, starts)
            return [env[value] for value in program.outputs], carried, {value: env[value] for value in self.kept}
        whole = Assembled(steps.total, list(dict.fromkeys([*program.outputs, *self.kept])), device)
        for piece in time_chunks(steps, first_steps(steps.counts, most_steps=chunk)):
            self._run_chunk(env, carried, piece, generators, whole)
        return [whole[value] for value in program.outputs], carried, {value: whole[value] for value in self.kept}

    def _forward_offloading(
        self, env: Env, carried: list[Tensor], steps: StepLayout, generators: Generators, kept: OffloadedChunks
    ) -> tuple[list[Tensor], list[Tensor], Env]:
        """The forward pass in chunks of time, each of which sends its saved values to the host."""
        outputs, stays = self.program.outputs, kept.keeping.stays
        required = list(dict.fromkeys([*outputs, *(value for value in stays if value not in env)]))
        whole = Assembled(steps.total, required, carried[0].device)
        with kept.departures() as queue:
            for place, piece in enumerate(time_chunks(steps, kept.firsts)):
                starts = [leaf[: piece.steps.batch_size].clone() for leaf in carried]
                local = self._run_chunk(env, carried, piece, generators, whole)
                kept.add(place, local, starts, queue)
                # Free the values of a chunk before the next one runs.
                del local, starts
        return [whole[value] for value in outputs], carried, {v: env[v] if v in env else whole[v] for v in stays}

    def _run_chunk(
        self, env: Env, carried: list[Tensor], chunk: TimeChunk, generators: Generators, whole: Assembled
    ) -> Env:
        """Run the steps of a chunk, and add its values to the assembled ones."""
        steps, rows, _ = chunk
        local = rows_of(env, rows)
        stored = [whole.buffer(value, rows, steps.total) for value in self.program.loop.stored]
        self._run_forward(local, [leaf[: steps.batch_size] for leaf in carried], steps, generators, stored)
        whole.collect(local, rows, add=False)
        return local

    def _run_forward(
        self,
        env: Env,
        carried: Sequence[Tensor],
        steps: StepLayout,
        generators: Generators,
        stored: Sequence[Tensor],
        starts: Sequence[Tensor] | None = None,
    ) -> None:
        self._before.run(steps.total, env, generators)
        self.loops[0].run(env, {}, carried, stored, steps, generators, starts)
        self._streams.enter(env, stored)
        self._after.run(steps.total, env, generators)

    @cached_property
    def _differentiable(self) -> tuple[SectionFunction, SectionFunction, SectionFunction]:
        """The section before the loop, a step of the loop and the section after it, in differentiable operations."""
        program = self.program
        read = {*program.loop.reads, *program.after.takes, *program.outputs}
        loop = SectionFunction("loop", program.loop.nodes, [*program.loop.stored, *program.new_state])
        return SectionFunction.of(program.before, read), loop, SectionFunction.of(program.after, {*program.outputs})

    def differentiable(
        self, env: Env, state: Sequence[Tensor], steps: StepLayout, generators: Generators
    ) -> tuple[list[Tensor], list[Tensor]]:
        """The forward pass in operations that torch can differentiate, any number of times."""
        program, (before, loop, after) = self.program, self._differentiable
        self._invariant.run(0, env, generators)
        before.run(steps.total, env, generators)
        parts, final = _run_loop(loop, program, env, state, steps, generators)
        order = steps.by_step(final[0].device)
        for value, rows in zip(program.loop.stored, parts, strict=True):
            env[value] = value.rows_placed(torch.cat([value.rows_first(part) for part in rows])[order])
        after.run(steps.total, env, generators)
        return [env[value] for value in program.outputs], final


def _run_loop(
    function: SectionFunction,
    program: Program,
    env: Env,
    state: Sequence[Tensor],
    steps: StepLayout,
    generators: Generators,
) -> tuple[list[list[Tensor]], list[Tensor]]:
    """The loop in torch operations, out of place."""
    carried = set(program.state)
    streams = {
        value: steps.split(value.rows_first(env[value]))
        for value in function.takes
        if value.has_rows and value not in carried
    }

    def run(number: int, current: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        now = {**env, **dict(zip(program.state, current, strict=True))}
        now |= {value: value.rows_placed(parts[number]) for value, parts in streams.items()}
        made = function(steps.counts[number], generators, *[now[value] for value in function.takes])
        results = dict(zip(function.gives, made, strict=True))
        return [results[value] for value in program.loop.stored], [results[value] for value in program.new_state]

    return step_by_step(run, state, steps)


def step_by_step(
    run: Callable[[int, Sequence[Tensor]], tuple[list[Tensor], list[Tensor]]],
    state: Sequence[Tensor],
    steps: StepLayout,
) -> tuple[list[list[Tensor]], list[Tensor]]:
    """Call `run(step, state)`, which returns results and the next state: the results of all steps, the final state."""
    current = list(state)
    ended: list[list[Tensor]] = [[] for _ in state]
    given = []
    for step, rows in enumerate(steps.counts):
        for index, leaf in enumerate(current):
            ended[index].append(leaf[rows:])
            current[index] = leaf[:rows]
        results, current = run(step, current)
        given.append(results)
    final = [torch.cat([leaf, *reversed(left)]) for leaf, left in zip(current, ended, strict=True)]
    return [list(parts) for parts in zip(*given, strict=True)], final
