"""The backward pass of a program: the section before its loop, the loop, the section after it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from throughtime.backends.loop_backend import Cotangents, Gradients, LoopBackend
from throughtime.backends.step_buffers import StepBuffers
from throughtime.backends.torch_codegen import Env, SectionFunction
from throughtime.compiler import Adjoint, Graph, Node, Program, Section, Value
from throughtime.compiler.passes.pack_saved_values import spendable
from throughtime.compiler.pipeline import optimize_section
from throughtime.layout.initial_state import begin
from throughtime.layout.previous_step import LaggedStreams, PreviousStep, previous
from throughtime.layout.shared_zeros import zero_rows
from throughtime.layout.step_layout import StepLayout
from throughtime.layout.time_chunks import TimeChunk, first_steps, time_chunks
from throughtime.native.caching_allocator import as_contiguous
from throughtime.runtime.chunk_values import Assembled, rows_of
from throughtime.runtime.offload.plan import Prefetcher

Starts = Sequence[Tensor] | Mapping[int, Tensor]
"""States by index: all of them, or those that are read."""


@dataclass
class _Chunks:
    """The part of a backward pass that its chunks share.

    The section `after` the loop, the `whole` that its values go to, the carried gradients, their initial values `ends`
    if these are stored elsewhere, and whether saved values may be overwritten.
    """

    after: SectionFunction
    whole: Assembled
    carried: Sequence[Tensor]
    ends: Sequence[Tensor] | None
    donate: Callable[[], bool] | None


class Backward:
    """The adjoint of a program with its loop compiled by a backend. `kept` are the values saved for it.

    `lagged` are the states that it reads as of the previous step: their index, and the values before and after a step.
    `overwritten` has for each value that the loop stores a saved one whose buffer it can overwrite, or None; it is
    empty if there is none at all.
    """

    def __init__(self, program: Program, adjoint: Adjoint, loop: LoopBackend, kept: list[Value]) -> None:
        self.program, self.adjoint, self.loop, self.kept = program, adjoint, loop, kept
        gradients = set(adjoint.gradients)
        self._function = partial(SectionFunction.of, on_gpu=loop.on_gpu, by_kernels=loop.by_kernels)
        read = {*loop.takes, *adjoint.after.takes, *gradients}
        self._invariant = SectionFunction.of(adjoint.invariant, read | {*adjoint.before.takes}, on_gpu=loop.on_gpu)
        self._before = self._function(adjoint.before, read, reuse=set(adjoint.before.gives) - gradients)
        self.streams = StepBuffers(adjoint.loop.stored, visible=gradients)
        # Gradients that only a kernel reads: torch may return others to the caller.
        seen = {*adjoint.before.takes, *adjoint.after.takes, *gradients}
        self._unseen = set(adjoint.output_cotangents) - seen if loop.by_kernels else set()
        places = loop.overwritten(spendable(program), gradients)
        self.overwritten: list[Value | None] = places if any(places) else []
        lagged = set(adjoint.lagged)
        self.lagged = [(index, old, new) for index, (old, new) in enumerate(program.states) if old in lagged]
        self._afterwards: dict[tuple[bool, ...], tuple[SectionFunction, SectionFunction, list[Value]]] = {}

    @property
    def in_kernel(self) -> list[Node]:
        """The nodes before the loop that its kernel computes."""
        return self._before.left_of(self.adjoint.before)

    @property
    def works_before(self) -> bool:
        """Whether torch computes something before the loop."""
        return bool(self._before.gives)

    def run_invariant(self, env: Env) -> None:
        """Add the values that depend on the cell's tensors alone."""
        self._invariant.run(0, env)

    def run(
        self,
        env: Env,
        cotangents: Cotangents,
        steps: StepLayout,
        chunk: int | None,
        returned: Prefetcher | None = None,
    ) -> Gradients:
        """The required gradients of tensors and inputs, and those of the initial state.

        `env` holds the cell's tensors, the inputs and the saved values; values that were offloaded are `returned`.
        """
        adjoint, initial = self.adjoint, cotangents.initial
        device = initial[0].device
        for value, cotangent in zip(adjoint.output_cotangents, cotangents.outputs, strict=True):
            if value is not None:
                env[value] = self.no_cotangent(value, steps.total, device) if cotangent is None else cotangent
        self.run_invariant(env)
        gradients = self._required(cotangents.required)
        firsts = first_steps(steps.counts, most_steps=chunk) if returned is None else returned.firsts
        after, last, summed = self._after_loop(cotangents.required, gradients, in_chunks=len(firsts) > 1)
        likes = [initial[index] for index in (*adjoint.carries, *adjoint.standing)]
        given = [*(cotangents.state[index] for index in adjoint.carries), *likes[len(adjoint.carries) :]]
        ends, carried = begin(likes, given, separate=len(firsts) == 1 and self.loop.takes_starts)
        chunks = _Chunks(after, Assembled(steps.total, summed, device), carried, ends, cotangents.donate)
        if returned is not None:
            returned.begin(env)
        for piece in time_chunks(steps, firsts, backwards=True):
            local = env if piece.rows is None else rows_of(env, piece.rows)
            if returned is None:
                starts = self._starts(env, initial, steps, piece)
            else:
                starts = returned.enter_next(local, piece.steps)
            self._run_chunk(local, starts, piece, chunks)
            # Free the values of a chunk before those of the next one are fetched.
            del local, starts
        env.update(chunks.whole.found)
        last.run(0, env)
        states: list[Tensor | None] = [None] * len(initial)
        for index, gradient in zip(adjoint.carries, carried[: len(adjoint.carries)], strict=True):
            states[index] = gradient
        return [None if value is None else env[value] for value in gradients], states

    def _run_chunk(self, env: Env, starts: Starts, chunk: TimeChunk, chunks: _Chunks) -> None:
        """The steps of a chunk: the section before the loop, the loop, the section after it."""
        (steps, rows, _), after, whole = chunk, chunks.after, chunks.whole
        lagged = {old: (env[new], starts[index]) for index, old, new in self.lagged}
        self._add_previous_steps(env, lagged, steps, after)
        self._before.run(steps.total, env)
        carried = chunks.carried
        if rows is None:
            env.update((value, as_contiguous(env[value])) for value in self.overwritten if value is not None)
            donated = None
            if chunks.donate is not None and chunks.donate():
                donated = [None if value is None else env[value] for value in self.overwritten]
            stored = self.streams.make(steps.total, whole.device, donated=donated)
        else:
            carried = [leaf[: steps.batch_size] for leaf in carried]
            stored = [whole.buffer(value, rows, steps.total) for value in self.adjoint.loop.stored]
        self.loop.run(env, lagged, carried, stored, steps, None, chunks.ends)
        self.streams.enter(env, stored)
        after.run(steps.total, env)
        whole.collect(env, rows, add=True)

    def _add_previous_steps(self, env: Env, lagged: LaggedStreams, steps: StepLayout, after: SectionFunction) -> None:
        """Add the states of the previous step that sections outside the loop read."""
        for value, (stream, start) in lagged.items():
            read_before = value in self._before.takes
            if value in env or not (read_before or value in after.takes):
                continue
            if value in after.takes_lagged and not read_before:
                # Only our own GEMM reads it, which accepts it in place of a tensor.
                env[value] = PreviousStep.of(stream, steps.sorted(start), steps)  # type: ignore[assignment]
            else:
                env[value] = previous(steps, stream, steps.sorted(start))

    def no_cotangent(self, value: Value, rows: int, device: torch.device) -> Tensor:
        """Zeros for a missing gradient."""
        # `value.sized(rows)` inlined: every call of a small network runs this.
        shape = [size if isinstance(size, int) else rows for size in value.shape]
        if value in self._unseen:
            return zero_rows(shape, value.dtype)
        # They take no memory until they have to be contiguous.
        return torch.zeros((), dtype=value.dtype, device=device).expand(shape)

    def _starts(self, env: Env, initial: Sequence[Tensor], steps: StepLayout, chunk: TimeChunk) -> Starts:
        """The states, by index, that the first step of a chunk started from, as far as they are read."""
        if not chunk.first:
            return initial
        rows = chunk.steps.batch_size
        return {index: steps.rows(env[new], chunk.first - 1)[:rows] for index, _, new in self.lagged}

    def _required(self, required: tuple[bool, ...]) -> list[Value | None]:
        """The required gradients of tensors and inputs, None for the others."""
        pairs = zip((*self.adjoint.tensor_gradients, *self.adjoint.input_gradients), required, strict=True)
        return [value if is_required else None for value, is_required in pairs]

    def after_loop(self, required: tuple[bool, ...]) -> tuple[SectionFunction, list[Value | None]]:
        """The section after the loop for all steps together, and the required gradients of tensors and inputs."""
        gradients = self._required(required)
        return self._after_loop(required, gradients, in_chunks=False)[0], gradients

    def _after_loop(
        self, required: tuple[bool, ...], gradients: Sequence[Value | None], *, in_chunks: bool
    ) -> tuple[SectionFunction, SectionFunction, list[Value]]:
        """The section after the loop, reduced to what the required gradients need.

        One function runs on each chunk, one on the sums over all chunks; the third result are the values to be
        assembled or summed in between.
        """
        found = self._afterwards.get((*required, in_chunks))
        if found is None:
            results = [value for value in gradients if value is not None]
            nodes = Graph(self.adjoint.after.nodes).needed_for(results)
            last: list[Node] = []
            if in_chunks:
                nodes, last = _until_sums(optimize_section(nodes, results, on_gpu=self.loop.on_gpu))
            read_later = {*results, *(value for node in last for value in node.values)}
            for_chunk = self._function(Section("after", nodes), read_later, reuse=())
            for_all = SectionFunction.of(Section("last", last), set(results), on_gpu=self.loop.on_gpu)
            summed = dict.fromkeys([*for_chunk.gives, *(value for value in results if value not in for_all.gives)])
            found = self._afterwards[*required, in_chunks] = (for_chunk, for_all, list(summed))
        return found


def _until_sums(nodes: Sequence[Node]) -> tuple[list[Node], list[Node]]:
    """Split at the first reduction over rows: the rest is linear, so it can run once on the sums over all chunks."""
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
