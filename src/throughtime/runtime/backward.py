"""The way back of a program: its gradient, with what comes before the loop, the loop, and what comes after."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import torch
from torch import Tensor

from throughtime.backends.loop_backend import LoopBackend
from throughtime.backends.torch_codegen import Env, SectionFunction
from throughtime.compiler import Adjoint, Graph, Node, Program, Section, Value
from throughtime.compiler.passes.pack_saved_values import spendable
from throughtime.compiler.pipeline import optimize_section
from throughtime.layout.previous_step import PreviousStep, previous
from throughtime.layout.shared_zeros import zero_rows
from throughtime.layout.step_layout import StepLayout
from throughtime.native.caching_allocator import as_contiguous
from throughtime.runtime.initial_state import begin
from throughtime.runtime.offload.plan import Prefetcher
from throughtime.runtime.time_chunks import Assembled, StepBuffers, blocks, first_steps, rows_of

Starts = Sequence[Tensor] | Mapping[int, Tensor]
"""States by their place: all of them, or those that are asked for."""


class Backward:
    """The backward part of a program with its loop compiled by a backend. `kept` is what it must find again.

    `lagged` are the states that it needs as they were before each step: their place, and the values before and after.
    `overwritten` has for each value that the loop stores a kept one whose place it can take, or None; it is empty if
    there is none at all.
    """

    def __init__(self, program: Program, adjoint: Adjoint, loop: LoopBackend, kept: list[Value]) -> None:
        self.program, self.adjoint, self.loop, self.kept = program, adjoint, loop, kept
        gradients = set(adjoint.gradients)
        self._function = partial(SectionFunction.of, on_gpu=loop.on_gpu, by_kernels=loop.by_kernels)
        read = {*loop.takes, *adjoint.after.takes, *gradients}
        self._invariant = SectionFunction.of(adjoint.invariant, read | {*adjoint.before.takes}, on_gpu=loop.on_gpu)
        self._before = self._function(adjoint.before, read, reuse=set(adjoint.before.gives) - gradients)
        self.streams = StepBuffers(adjoint.loop.stored, visible=gradients)
        # Gradients that only a kernel reads: what torch sees, a user may come to own.
        seen = {*adjoint.before.takes, *adjoint.after.takes, *gradients}
        self._unseen = set(adjoint.output_cotangents) - seen if loop.by_kernels else set()
        places = loop.overwritten(spendable(program), gradients)
        self.overwritten: list[Value | None] = places if any(places) else []
        lagged = set(adjoint.lagged)
        self.lagged = [(index, old, new) for index, (old, new) in enumerate(program.states) if old in lagged]
        self._afterwards: dict[tuple[bool, ...], tuple[SectionFunction, SectionFunction, list[Value]]] = {}

    @property
    def in_kernel(self) -> list[Node]:
        """The nodes before the loop that are left to its kernel."""
        return self._before.left_of(self.adjoint.before)

    @property
    def works_before(self) -> bool:
        """Whether torch has something to do before the loop."""
        return bool(self._before.gives)

    def run_invariant(self, env: Env) -> None:
        """Add what depends on the cell's tensors alone to them."""
        self._invariant.run(0, env)

    def run(
        self,
        env: Env,
        initial: Sequence[Tensor],
        output_cotangents: Sequence[Tensor | None],
        state_cotangents: Sequence[Tensor | None],
        steps: StepLayout,
        wanted: tuple[bool, ...],
        chunk: int | None,
        returned: Prefetcher | None = None,
        *,
        overwrite: Callable[[], bool] | None = None,
    ) -> tuple[list[Tensor | None], list[Tensor | None]]:
        """Gradients of tensors and inputs as far as they are `wanted`, and of the initial state.

        What is not in `env` because blocks have kept it is `returned`. What was kept for the loop alone is lost
        in it if `overwrite`, which is asked at the last moment, says so.
        """
        adjoint, device = self.adjoint, initial[0].device
        for value, cotangent in zip(adjoint.output_cotangents, output_cotangents, strict=True):
            if value is not None:
                env[value] = self.no_cotangent(value, steps.total, device) if cotangent is None else cotangent
        self.run_invariant(env)
        gradients = self._wanted(wanted)
        firsts = first_steps(steps, chunk) if returned is None else returned.firsts
        after, last, summed = self._after_loop(wanted, gradients, in_blocks=len(firsts) > 1)
        likes = [initial[index] for index in (*adjoint.carries, *adjoint.standing)]
        given = [*(state_cotangents[index] for index in adjoint.carries), *likes[len(adjoint.carries) :]]
        ends, carried = begin(likes, given, apart=len(firsts) == 1 and self.loop.takes_starts)
        whole = Assembled(steps.total, summed, device)
        if returned is not None:
            returned.begin(env)
        for block, rows, first in blocks(steps, firsts, backwards=True):
            local = env if rows is None else rows_of(env, rows)
            if returned is None:
                starts = self._starts(env, initial, steps, block, first)
            else:
                starts = returned.enter_next(local, block)
            front = carried if rows is None else [leaf[: block.batch_size] for leaf in carried]
            self._run_block(local, starts, front, block, rows, after, whole, ends, overwrite=overwrite)
            # Nothing of a block is left when the next one comes in.
            del local, starts
        env.update(whole.found)
        last.run(0, env)
        states: list[Tensor | None] = [None] * len(initial)
        for index, gradient in zip(adjoint.carries, carried[: len(adjoint.carries)], strict=True):
            states[index] = gradient
        return [None if value is None else env[value] for value in gradients], states

    def _run_block(
        self,
        env: Env,
        starts: Starts,
        carried: Sequence[Tensor],
        steps: StepLayout,
        rows: slice | None,
        after: SectionFunction,
        whole: Assembled,
        ends: Sequence[Tensor] | None,
        *,
        overwrite: Callable[[], bool] | None,
    ) -> None:
        lagged = {old: (env[new], starts[index]) for index, old, new in self.lagged}
        for value, (stream, start) in lagged.items():
            taken_before = value in self._before.takes
            if value in env or not (taken_before or value in after.takes):
                continue
            if value in after.takes_lagged and not taken_before:
                # Nobody reads it but an operation of ours, which takes it for a tensor.
                env[value] = PreviousStep.of(stream, steps.sorted(start), steps)  # type: ignore[assignment]
            else:
                env[value] = previous(steps, stream, steps.sorted(start))
        self._before.run(steps.total, env)
        if rows is None:
            env.update((value, as_contiguous(env[value])) for value in self.overwritten if value is not None)
            is_mine = overwrite is not None and overwrite()
            places = [None if value is None else env[value] for value in self.overwritten] if is_mine else None
            stored = self.streams.make(steps.total, whole.device, places=places)
        else:
            stored = [whole.room(value, rows, steps.total) for value in self.adjoint.loop.stored]
        self.loop.run(env, lagged, carried, stored, steps, None, ends)
        self.streams.enter(env, stored)
        after.run(steps.total, env)
        whole.collect(env, rows, add=True)

    def no_cotangent(self, value: Value, rows: int, device: torch.device) -> Tensor:
        """Zeros for a gradient that nobody gave."""
        # `sized`, without the call: small networks come here at every call of theirs.
        shape = [size if isinstance(size, int) else rows for size in value.shape]
        if value in self._unseen:
            return zero_rows(shape, value.dtype)
        # They take no memory until somebody needs them side by side.
        return torch.zeros((), dtype=value.dtype, device=device).expand(shape)

    def _starts(self, env: Env, initial: Sequence[Tensor], steps: StepLayout, block: StepLayout, first: int) -> Starts:
        """For each state that is needed as it was, by its place, what the first step of a block found."""
        if not first:
            return initial
        return {index: steps.rows(env[new], first - 1)[: block.batch_size] for index, _, new in self.lagged}

    def _wanted(self, wanted: tuple[bool, ...]) -> list[Value | None]:
        """The gradients of tensors and inputs that are wanted."""
        pairs = zip((*self.adjoint.tensor_gradients, *self.adjoint.input_gradients), wanted, strict=True)
        return [value if want else None for value, want in pairs]

    def after_loop(self, wanted: tuple[bool, ...]) -> tuple[SectionFunction, list[Value | None]]:
        """What follows the loop in one go, and the gradients of tensors and inputs that are wanted."""
        gradients = self._wanted(wanted)
        return self._after_loop(wanted, gradients, in_blocks=False)[0], gradients

    def _after_loop(
        self, wanted: tuple[bool, ...], gradients: Sequence[Value | None], *, in_blocks: bool
    ) -> tuple[SectionFunction, SectionFunction, list[Value]]:
        """The last section, as far as the gradients that are wanted need it: for each block, and for the sums of all.

        The third is what is to be put together or summed up.
        """
        found = self._afterwards.get((*wanted, in_blocks))
        if found is None:
            results = [value for value in gradients if value is not None]
            nodes = Graph(self.adjoint.after.nodes).needed_for(results)
            last: list[Node] = []
            if in_blocks:
                nodes, last = _until_sums(optimize_section(nodes, results, on_gpu=self.loop.on_gpu))
            wanted_here = {*results, *(value for node in last for value in node.values)}
            for_block = self._function(Section("after", nodes), wanted_here, reuse=())
            for_all = SectionFunction.of(Section("last", last), set(results), on_gpu=self.loop.on_gpu)
            summed = dict.fromkeys([*for_block.gives, *(value for value in results if value not in for_all.gives)])
            found = self._afterwards[*wanted, in_blocks] = (for_block, for_all, list(summed))
        return found


def _until_sums(nodes: Sequence[Node]) -> tuple[list[Node], list[Node]]:
    """Nodes that see rows, and what is made of sums over them: a gradient is as good a sum of all blocks before that.

    Gradients are linear in what they are made of.
    """
    first: list[Node] = []
    last: list[Node] = []
    sums: set[Value] = set()
    for node in nodes:
        if any(value.has_rows for value in (*node.values, *node.results)):
            if any(value in one.results for one in last for value in node.values):
                return list(nodes), []
            first.append(node)
            sums.update(value for value in node.results if not value.has_rows)
        elif sums.isdisjoint(node.values):
            first.append(node)
        else:
            last.append(node)
            sums.update(node.results)
    return first, last
