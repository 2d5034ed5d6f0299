"""Running a program: what comes before the loop, the loop, what comes after; forward and backward."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor

from throughtime.backends._blocks import Streams, Whole, blocks, first_steps, rows_of
from throughtime.backends._compiled_loop import CompiledLoop
from throughtime.backends._keep_together import spendable
from throughtime.backends._keeping import Keeping, Kept, Returned
from throughtime.backends._lagged import Lagged, previous
from throughtime.backends._memory import side_by_side
from throughtime.backends._rephrase import rephrase
from throughtime.backends._steps import Steps
from throughtime.backends._torch_code import Env, TorchFunction
from throughtime.backends._zeros import shared_zeros, zero_rows
from throughtime.compiler import Graph, Node, Program, Section, Value

Loops = Sequence[CompiledLoop]
"""The compiled loop of the forward program and, if there is one, of the backward program."""

Starts = Sequence[Tensor] | Mapping[int, Tensor]
"""States by their place: all of them, or those that are asked for."""


class Executable:
    """A program with its loops compiled by a backend."""

    def __init__(self, program: Program, loops: Loops) -> None:
        self.program = program
        self.loops = loops
        adjoint = program.adjoint
        self._on_gpu = on_gpu = all(loop.on_gpu for loop in loops)
        self.takes_starts = all(loop.takes_starts for loop in loops)
        wanted = {*program.outputs, *program.kept}
        read = {*loops[0].takes, *program.after.takes, *wanted}
        self._drawn = _function(program.drawn, read | {*program.before.takes, *program.invariant.takes})
        self._invariant = _function(program.invariant, read | {*program.before.takes}, on_gpu=on_gpu)
        # What nobody outside will see may lie in memory that is used again.
        outputs = set(program.outputs)
        reuse = set(program.before.gives) - outputs
        self._by_kernels = by_kernels = loops[-1].by_kernels
        function = partial(_function, on_gpu=on_gpu, by_kernels=by_kernels)
        self._before = function(program.before, read, reuse=reuse)
        self._after = function(program.after, wanted)
        self._streams = Streams(program.loop.stored, visible=outputs)
        # Whether anything is drawn besides what is drawn ahead of everything else.
        self.is_random = any(
            node.is_random
            for section in (program.invariant, program.before, program.loop, program.after)
            for node in section.nodes
        )
        # What a backward pass must find again; the cell's own tensors and the inputs are kept anyway. In a fixed order:
        # an operator of torch hands these from its forward to its backward call by place.
        given = {*program.tensors, *program.inputs, *program.literals}
        self.kept = [value for value in program.kept if value not in given]
        if adjoint is not None:
            gradients = set(adjoint.gradients)
            read = {*loops[1].takes, *adjoint.after.takes, *gradients}
            self._adjoint_invariant = _function(adjoint.invariant, read | {*adjoint.before.takes}, on_gpu=on_gpu)
            reuse = set(adjoint.before.gives) - gradients
            self._adjoint_before = function(adjoint.before, read, reuse=reuse)
            self.adjoint_streams = Streams(adjoint.loop.stored, visible=gradients)
            # Gradients that only a kernel reads: what torch sees, a user may come to own.
            seen = {*adjoint.before.takes, *adjoint.after.takes, *gradients}
            self._unseen = set(adjoint.output_tangents) - seen if by_kernels else set()
            # For each value that the loop of the way back stores, a kept one whose place it can take, if any can.
            places = loops[1].overwritten(spendable(program), gradients)
            self.overwritten: list[Value | None] = places if any(places) else []
            self.lagged = [
                (index, old, new) for index, (old, new) in enumerate(program.states) if old in set(adjoint.lagged)
            ]
        self._afterwards: dict[tuple[bool, ...], tuple[TorchFunction, TorchFunction, list[Value]]] = {}

    def in_kernels(self, before: Section) -> list[Node]:
        """The nodes of a section before a loop that are left to the kernel of the loop."""
        adjoint = self.program.adjoint
        own = self._before if before is self.program.before or adjoint is None else self._adjoint_before
        kept = set(map(id, Graph(before.nodes).needed_for(own.gives)))
        return [node for node in before.nodes if id(node) not in kept]

    @cached_property
    def keeping(self) -> Keeping:
        """What blocks of steps keep for the backward pass when memory is swapped."""
        lagged = [index for index, _, _ in self.lagged]
        return Keeping(self.program, self.loops, self.kept, lagged, is_random=self.is_random)

    @cached_property
    def constant(self) -> list[int]:
        """The places of those outputs and, after them, states that have no gradient."""
        program, adjoint = self.program, self.program.adjoint
        outputs = program.outputs if adjoint is None else adjoint.output_tangents
        without = [tangent is None for tangent in outputs] + [False] * len(program.state)
        values = [*program.outputs, *program.state]
        return [place for place, none in enumerate(without) if none or not values[place].dtype.is_floating_point]

    @property
    def works_before(self) -> bool:
        """Whether torch has something to do before the loop, from inputs."""
        return bool(self._before.gives)

    @property
    def works_before_adjoint(self) -> bool:
        """The same for the way back."""
        return bool(self._adjoint_before.gives)

    def run_invariant(self, env: Env) -> None:
        """Add what depends on the cell's tensors alone to them."""
        self._invariant.run(0, env, None)

    def run_adjoint_invariant(self, env: Env) -> None:
        """The same for the way back."""
        self._adjoint_invariant.run(0, env)

    def draw(self, rows: int, generators: Any) -> Env:
        """The random numbers that depend on nothing, for all rows of all steps."""
        env: Env = {}
        self._drawn.run(rows, env, generators)
        return env

    def forward(
        self,
        env: Env,
        state: Sequence[Tensor],
        steps: Steps,
        generators: Any,
        chunk: int | None,
        kept: Kept | None = None,
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
        starts, carried = self._begin(state, state, in_one=in_one)
        if kept is not None:
            return self._forward_keeping(env, carried, steps, generators, kept)
        if in_one:
            # Packed rows are unpacked before anybody sees them.
            stored = self._streams.make(steps.total, device, hidden=steps.is_ragged)
            self._run_forward(env, carried, steps, generators, stored, starts)
            return [env[value] for value in program.outputs], carried, {value: env[value] for value in self.kept}
        whole = Whole(steps.total, list(dict.fromkeys([*program.outputs, *self.kept])), device)
        for block, rows, _ in blocks(steps, first_steps(steps, chunk)):
            self._run_block(env, carried, block, rows, generators, whole)
        return [whole[value] for value in program.outputs], carried, {value: whole[value] for value in self.kept}

    def _begin(
        self, likes: Sequence[Tensor], given: Sequence[Tensor | None], *, in_one: bool
    ) -> tuple[list[Tensor] | None, list[Tensor]]:
        """What a loop begins with, zeros where nothing is given, and where it leaves what it ends with.

        A loop that does not read the first where that lies finds it in the second.
        """
        pairs = list(zip(likes, given, strict=True))
        if in_one and self.takes_starts:
            starts = [shared_zeros(like.shape, like.dtype, like.device) if one is None else one for like, one in pairs]
            return starts, [torch.empty_like(like, memory_format=torch.contiguous_format) for like in likes]
        return None, [own_state(like, one) for like, one in pairs]

    def _forward_keeping(
        self, env: Env, carried: list[Tensor], steps: Steps, generators: Any, kept: Kept
    ) -> tuple[list[Tensor], list[Tensor], Env]:
        """The forward pass in blocks, each of which hands on what it keeps."""
        outputs, stays = self.program.outputs, kept.keeping.stays
        wanted = list(dict.fromkeys([*outputs, *(value for value in stays if value not in env)]))
        whole = Whole(steps.total, wanted, carried[0].device)
        with kept.departures() as departures:
            for place, (block, rows, _) in enumerate(blocks(steps, kept.firsts)):
                starts = [leaf[: block.batch_size].clone() for leaf in carried]
                local = self._run_block(env, carried, block, rows, generators, whole)
                kept.add(place, local, starts, departures)
                # Nothing of a block is left when the next one runs.
                del local, starts
        return [whole[value] for value in outputs], carried, {v: env[v] if v in env else whole[v] for v in stays}

    def _run_block(
        self, env: Env, carried: list[Tensor], block: Steps, rows: slice | None, generators: Any, whole: Whole
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
        steps: Steps,
        generators: Any,
        stored: Sequence[Tensor],
        starts: Sequence[Tensor] | None = None,
    ) -> None:
        self._before.run(steps.total, env, generators)
        self.loops[0].run(env, {}, carried, stored, steps, generators, starts)
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
        returned: Returned | None = None,
        *,
        overwrite: Callable[[], bool] | None = None,
    ) -> tuple[list[Tensor | None], list[Tensor | None]]:
        """Gradients of tensors and inputs as far as they are `wanted`, and of the initial state.

        What is not in `env` because blocks have kept it is `returned`. What was kept for the loop alone is lost
        in it if `overwrite`, which is asked at the last moment, says so.
        """
        adjoint = self.program.adjoint
        assert adjoint is not None
        device = initial[0].device
        for value, tangent in zip(adjoint.output_tangents, output_tangents, strict=True):
            if value is not None:
                env[value] = self.no_tangent(value, steps.total, device) if tangent is None else tangent
        self.run_adjoint_invariant(env)
        gradients = self._wanted(wanted)
        firsts = first_steps(steps, chunk) if returned is None else returned.firsts
        after, last, summed = self._after_backward(wanted, gradients, in_blocks=len(firsts) > 1)
        likes, given = (
            [initial[index] for index in adjoint.carries],
            [state_tangents[index] for index in adjoint.carries],
        )
        ends, carried = self._begin(likes, given, in_one=len(firsts) == 1)
        whole = Whole(steps.total, summed, device)
        if returned is not None:
            returned.begin(env)
        for block, rows, first in blocks(steps, firsts, backwards=True):
            local = env if rows is None else rows_of(env, rows)
            if returned is None:
                starts = self._starts(env, initial, steps, block, first)
            else:
                starts = returned.enter_next(local, block)
            front = carried if rows is None else [leaf[: block.batch_size] for leaf in carried]
            self._run_backward(local, starts, front, block, rows, after, whole, ends, overwrite=overwrite)
            # Nothing of a block is left when the next one comes in.
            del local, starts
        env.update(whole.found)
        last.run(0, env)
        states: list[Tensor | None] = [None] * len(initial)
        for index, gradient in zip(adjoint.carries, carried, strict=True):
            states[index] = gradient
        return [None if value is None else env[value] for value in gradients], states

    def _run_backward(
        self,
        env: Env,
        starts: Starts,
        carried: Sequence[Tensor],
        steps: Steps,
        rows: slice | None,
        after: TorchFunction,
        whole: Whole,
        ends: Sequence[Tensor] | None,
        *,
        overwrite: Callable[[], bool] | None,
    ) -> None:
        adjoint = self.program.adjoint
        assert adjoint is not None
        lagged = {old: (env[new], starts[index]) for index, old, new in self.lagged}
        for value, (stream, start) in lagged.items():
            taken_before = value in self._adjoint_before.takes
            if value in env or not (taken_before or value in after.takes):
                continue
            if value in after.takes_lagged and not taken_before:
                # Nobody reads it but an operation of ours, which takes it for a tensor.
                env[value] = Lagged.of(stream, steps.sorted(start), steps)  # type: ignore[assignment]
            else:
                env[value] = previous(steps, stream, steps.sorted(start))
        self._adjoint_before.run(steps.total, env)
        if rows is None:
            env.update((value, side_by_side(env[value])) for value in self.overwritten if value is not None)
            is_mine = overwrite is not None and overwrite()
            places = [None if value is None else env[value] for value in self.overwritten] if is_mine else None
            stored = self.adjoint_streams.make(steps.total, whole.device, places=places)
        else:
            stored = [whole.room(value, rows, steps.total) for value in adjoint.loop.stored]
        self.loops[1].run(env, lagged, carried, stored, steps, None, ends)
        self.adjoint_streams.enter(env, stored)
        after.run(steps.total, env)
        whole.collect(env, rows, add=True)

    def no_tangent(self, value: Value, rows: int, device: torch.device) -> Tensor:
        """Zeros for a gradient that nobody gave."""
        # `sized`, without the call: small networks come here at every call of theirs.
        shape = [size if isinstance(size, int) else rows for size in value.shape]
        if value in self._unseen:
            return zero_rows(shape, value.dtype)
        # They take no memory until somebody needs them side by side.
        return torch.zeros((), dtype=value.dtype, device=device).expand(shape)

    def _starts(self, env: Env, initial: Sequence[Tensor], steps: Steps, block: Steps, first: int) -> Starts:
        """For each state that is needed as it was, by its place, what the first step of a block found."""
        if not first:
            return initial
        return {index: steps.rows(env[new], first - 1)[: block.batch_size] for index, _, new in self.lagged}

    def _wanted(self, wanted: tuple[bool, ...]) -> list[Value | None]:
        """The gradients of tensors and inputs that are wanted."""
        adjoint = self.program.adjoint
        assert adjoint is not None
        pairs = zip((*adjoint.tensor_gradients, *adjoint.input_gradients), wanted, strict=True)
        return [value if want else None for value, want in pairs]

    def after_backward(self, wanted: tuple[bool, ...]) -> tuple[TorchFunction, list[Value | None]]:
        """What follows the loop of the way back in one go, and the gradients of tensors and inputs that are wanted."""
        gradients = self._wanted(wanted)
        return self._after_backward(wanted, gradients, in_blocks=False)[0], gradients

    def _after_backward(
        self, wanted: tuple[bool, ...], gradients: Sequence[Value | None], *, in_blocks: bool
    ) -> tuple[TorchFunction, TorchFunction, list[Value]]:
        """The last section, as far as the gradients that are wanted need it: for each block, and for the sums of all.

        The third is what is to be put together or summed up.
        """
        found = self._afterwards.get((*wanted, in_blocks))
        if found is None:
            assert self.program.adjoint is not None
            results = [value for value in gradients if value is not None]
            nodes = Graph(self.program.adjoint.after.nodes).needed_for(results)
            last: list[Node] = []
            if in_blocks:
                nodes, last = _until_sums(rephrase(nodes, results, on_gpu=self._on_gpu))
            wanted_here = {*results, *(value for node in last for value in node.values)}
            section, by_kernels = Section("after", nodes), self._by_kernels
            for_block = _function(section, wanted_here, reuse=(), on_gpu=self._on_gpu, by_kernels=by_kernels)
            for_all = _function(Section("last", last), set(results), on_gpu=self._on_gpu)
            summed = dict.fromkeys([*for_block.gives, *(value for value in results if value not in for_all.gives)])
            found = self._afterwards[*wanted, in_blocks] = (for_block, for_all, list(summed))
        return found

    @cached_property
    def _differentiable(self) -> tuple[TorchFunction, TorchFunction, TorchFunction]:
        """What comes before the loop, a step of it and what comes after it, in operations that torch differentiates."""
        program = self.program
        read = {*program.loop.reads, *program.after.takes, *program.outputs}
        loop = TorchFunction("loop", program.loop.nodes, [*program.loop.stored, *program.new_state])
        return _function(program.before, read), loop, _function(program.after, {*program.outputs})

    def differentiable(
        self, env: Env, state: Sequence[Tensor], steps: Steps, generators: Any
    ) -> tuple[list[Tensor], list[Tensor]]:
        """The forward pass in operations that torch itself can differentiate, as often as it likes."""
        program, (before, loop, after) = self.program, self._differentiable
        self._invariant.run(0, env, generators)
        before.run(steps.total, env, generators)
        pieces, final = _walk(loop, program, env, state, steps, generators)
        order = steps.by_step(final[0].device)
        for value, parts in zip(program.loop.stored, pieces, strict=True):
            env[value] = value.rows_placed(torch.cat([value.rows_first(part) for part in parts])[order])
        after.run(steps.total, env, generators)
        return [env[value] for value in program.outputs], final


def _walk(
    function: TorchFunction, program: Program, env: Env, state: Sequence[Tensor], steps: Steps, generators: Any
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
    run: Callable[[int, Sequence[Tensor]], tuple[list[Tensor], list[Tensor]]], state: Sequence[Tensor], steps: Steps
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


def _function(
    section: Section,
    wanted: set[Value],
    reuse: Iterable[Value] | None = None,
    *,
    on_gpu: bool = False,
    by_kernels: bool = False,
) -> TorchFunction:
    """The section, as far as it is wanted; torch itself keeps the memory of a GPU to use it again."""
    nodes = Graph(section.nodes).needed_for(wanted)
    gives = [value for value in section.gives if value in wanted]
    return TorchFunction(section.name, nodes, gives, None if on_gpu else reuse, on_gpu=on_gpu, by_kernels=by_kernels)


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


def own_state(like: Tensor, given: Tensor | None) -> Tensor:
    """A state that may be changed in place: what is given, or zeros."""
    if given is None:
        return torch.zeros_like(like, memory_format=torch.contiguous_format)
    return given.clone(memory_format=torch.contiguous_format)
