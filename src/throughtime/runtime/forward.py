"""Running a program: what comes before the loop, the loop, what comes after."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor

from throughtime.backends.loop_backend import LoopBackend
from throughtime.backends.torch_codegen import Env, SectionFunction
from throughtime.compiler import Node, Program
from throughtime.layout.step_layout import StepLayout
from throughtime.runtime.backward import Backward
from throughtime.runtime.initial_state import begin
from throughtime.runtime.offload.plan import OffloadedChunks, OffloadPlanner
from throughtime.runtime.time_chunks import Assembled, StepBuffers, blocks, first_steps, rows_of

Loops = Sequence[LoopBackend]
"""The compiled loop of the forward program and, if there is one, of the backward program."""


class Executable:
    """A program with its loops compiled by a backend. `backward` is its way back, if there is one."""

    def __init__(self, program: Program, loops: Loops) -> None:
        self.program = program
        self.loops = loops
        on_gpu, self.takes_starts = loops[0].on_gpu, loops[0].takes_starts
        wanted = {*program.outputs, *program.saved}
        read = {*loops[0].takes, *program.after.takes, *wanted}
        self._drawn = SectionFunction.of(program.random, read | {*program.before.takes, *program.invariant.takes})
        self._invariant = SectionFunction.of(program.invariant, read | {*program.before.takes}, on_gpu=on_gpu)
        # What nobody outside will see may lie in memory that is used again.
        outputs = set(program.outputs)
        reuse = set(program.before.gives) - outputs
        function = partial(SectionFunction.of, on_gpu=on_gpu, by_kernels=loops[0].by_kernels)
        self._before = function(program.before, read, reuse=reuse)
        self._after = function(program.after, wanted)
        self._streams = StepBuffers(program.loop.stored, visible=outputs)
        # Whether anything is drawn besides what is drawn ahead of everything else.
        self.is_random = any(
            node.is_random
            for section in (program.invariant, program.before, program.loop, program.after)
            for node in section.nodes
        )
        # What a backward pass must find again; the cell's own tensors and the inputs are kept anyway. In a fixed order:
        # an operator of torch hands these from its forward to its backward call by place.
        given = {*program.tensors, *program.inputs, *program.literals}
        self.kept = [value for value in program.saved if value not in given]
        self.backward = None if program.adjoint is None else Backward(program, program.adjoint, loops[1], self.kept)

    @property
    def in_kernel(self) -> list[Node]:
        """The nodes before the loop that are left to its kernel."""
        return self._before.left_of(self.program.before)

    @cached_property
    def keeping(self) -> OffloadPlanner:
        """What blocks of steps keep for the backward pass when memory is swapped."""
        assert self.backward is not None
        lagged = [index for index, _, _ in self.backward.lagged]
        return OffloadPlanner(self.program, self.loops, self.kept, lagged, is_random=self.is_random)

    @cached_property
    def constant(self) -> list[int]:
        """The places of those outputs and, after them, states that have no gradient."""
        program, adjoint = self.program, self.program.adjoint
        outputs = program.outputs if adjoint is None else adjoint.output_cotangents
        without = [cotangent is None for cotangent in outputs] + [False] * len(program.state)
        values = [*program.outputs, *program.state]
        return [place for place, none in enumerate(without) if none or not values[place].dtype.is_floating_point]

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
        self,
        env: Env,
        state: Sequence[Tensor],
        steps: StepLayout,
        generators: Any,
        chunk: int | None,
        kept: OffloadedChunks | None = None,
    ) -> tuple[list[Tensor], list[Tensor], Env]:
        """The outputs [N, ...], the final state [B, ...], and the values that a backward pass needs.

        `env` holds the cell's tensors, the inputs [N, ...] and what was drawn. What is computed for many steps at once
        is computed for `chunk` of them; None means all. What the blocks of `kept` keep is not among the values.
        """
        program = self.program
        self._invariant.run(0, env, generators)
        device = state[0].device
        outside = self.works_before or self._after.gives
        in_one = kept is None and (chunk is None or chunk >= len(steps.counts) or not outside)
        starts, carried = begin(state, state, apart=in_one and self.takes_starts)
        if kept is not None:
            return self._forward_keeping(env, carried, steps, generators, kept)
        if in_one:
            # Packed rows are unpacked before anybody sees them.
            stored = self._streams.make(steps.total, device, hidden=steps.is_ragged)
            self._run_forward(env, carried, steps, generators, stored, starts)
            return [env[value] for value in program.outputs], carried, {value: env[value] for value in self.kept}
        whole = Assembled(steps.total, list(dict.fromkeys([*program.outputs, *self.kept])), device)
        for block, rows, _ in blocks(steps, first_steps(steps, chunk)):
            self._run_block(env, carried, block, rows, generators, whole)
        return [whole[value] for value in program.outputs], carried, {value: whole[value] for value in self.kept}

    def _forward_keeping(
        self, env: Env, carried: list[Tensor], steps: StepLayout, generators: Any, kept: OffloadedChunks
    ) -> tuple[list[Tensor], list[Tensor], Env]:
        """The forward pass in blocks, each of which hands on what it keeps."""
        outputs, stays = self.program.outputs, kept.keeping.stays
        wanted = list(dict.fromkeys([*outputs, *(value for value in stays if value not in env)]))
        whole = Assembled(steps.total, wanted, carried[0].device)
        with kept.departures() as departures:
            for place, (block, rows, _) in enumerate(blocks(steps, kept.firsts)):
                starts = [leaf[: block.batch_size].clone() for leaf in carried]
                local = self._run_block(env, carried, block, rows, generators, whole)
                kept.add(place, local, starts, departures)
                # Nothing of a block is left when the next one runs.
                del local, starts
        return [whole[value] for value in outputs], carried, {v: env[v] if v in env else whole[v] for v in stays}

    def _run_block(
        self, env: Env, carried: list[Tensor], block: StepLayout, rows: slice | None, generators: Any, whole: Assembled
    ) -> Env:
        """Run the steps of a block, and add what it has computed to the whole."""
        local = rows_of(env, rows)
        stored = [whole.room(value, rows, block.total) for value in self.program.loop.stored]
        self._run_forward(local, [leaf[: block.batch_size] for leaf in carried], block, generators, stored)
        whole.collect(local, rows, add=False)
        return local

    def _run_forward(
        self,
        env: Env,
        carried: Sequence[Tensor],
        steps: StepLayout,
        generators: Any,
        stored: Sequence[Tensor],
        starts: Sequence[Tensor] | None = None,
    ) -> None:
        self._before.run(steps.total, env, generators)
        self.loops[0].run(env, {}, carried, stored, steps, generators, starts)
        self._streams.enter(env, stored)
        self._after.run(steps.total, env, generators)

    @cached_property
    def _differentiable(self) -> tuple[SectionFunction, SectionFunction, SectionFunction]:
        """What comes before the loop, a step of it and what comes after it, in operations that torch differentiates."""
        program = self.program
        read = {*program.loop.reads, *program.after.takes, *program.outputs}
        loop = SectionFunction("loop", program.loop.nodes, [*program.loop.stored, *program.new_state])
        return SectionFunction.of(program.before, read), loop, SectionFunction.of(program.after, {*program.outputs})

    def differentiable(
        self, env: Env, state: Sequence[Tensor], steps: StepLayout, generators: Any
    ) -> tuple[list[Tensor], list[Tensor]]:
        """The forward pass in operations that torch itself can differentiate, as often as it likes."""
        program, (before, loop, after) = self.program, self._differentiable
        self._invariant.run(0, env, generators)
        before.run(steps.total, env, generators)
        pieces, final = _run_loop(loop, program, env, state, steps, generators)
        order = steps.by_step(final[0].device)
        for value, parts in zip(program.loop.stored, pieces, strict=True):
            env[value] = value.rows_placed(torch.cat([value.rows_first(part) for part in parts])[order])
        after.run(steps.total, env, generators)
        return [env[value] for value in program.outputs], final


def _run_loop(
    function: SectionFunction, program: Program, env: Env, state: Sequence[Tensor], steps: StepLayout, generators: Any
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
    """The rows of every step for everything that `run(step, state)` gives besides the next state; the final state."""
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
