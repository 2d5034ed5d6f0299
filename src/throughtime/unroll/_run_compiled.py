"""A compiled unroll: as one operation, or with `checkpoint_every` as one for each chunk of time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from throughtime._pytree import Nest
from throughtime.backends.gradient_checkpoint import recomputed
from throughtime.backends.torch_codegen import Env
from throughtime.cells._cell_types import CellLike
from throughtime.layout.pack import AS_GIVEN, Packing
from throughtime.layout.step_layout import StepLayout
from throughtime.layout.time_chunks import TimeChunk, first_steps, time_chunks
from throughtime.runtime.autograd import UnrollCall, run
from throughtime.runtime.forward import Executable
from throughtime.runtime.rng import RngState
from throughtime.unroll._options import UnrollOptions
from throughtime.unroll._schedule import Schedule


class CompiledCell(NamedTuple):
    """A cell, the executable of its structure, and its tensors in the order of the program."""

    cell: CellLike
    executable: Executable
    tensors: Sequence[Tensor]


class Leaves(NamedTuple):
    """The leaves of outputs, in the format of the inputs; of the final state; of all states, if they were required."""

    outputs: list[Nest]
    state: list[Tensor]
    states: list[Nest] | None = None


def run_compiled(
    compiled: CompiledCell,
    schedule: Schedule,
    inputs: Sequence[Nest],
    state: Sequence[Tensor],
    options: UnrollOptions,
) -> Leaves:
    """The unroll of the leaves of the inputs from those of a state."""
    packing = None
    if not options.all_states and options.checkpoint_every is None and all(leaf.ndim for leaf in state):
        packing = schedule.packing(inputs)
    if packing is None:
        return _run_packed(compiled, schedule, inputs, state, options)
    call = _call(compiled, schedule.steps, inputs[0].device, options, packing)
    return Leaves(*run(call, compiled.tensors, inputs, state))


def _run_packed(
    compiled: CompiledCell,
    schedule: Schedule,
    inputs: Sequence[Nest],
    state: Sequence[Tensor],
    options: UnrollOptions,
) -> Leaves:
    """The same with rows that are packed before the operation and unpacked after it, by torch operations."""
    steps, executable, tensors = schedule.steps, compiled.executable, compiled.tensors
    rows = [schedule.rows(leaf) for leaf in inputs]
    # A state without rows gets some, all equal. Its result is that of the first row, which runs at every step.
    rowless = [place for place, leaf in enumerate(state) if not leaf.ndim]
    cuts_time = options.parallel_iterations is not None or options.checkpoint_every is not None or options.swap_memory
    in_kernel = executable.takes_starts and not cuts_time and not rowless and not steps.is_full
    order = schedule.order() if in_kernel else None
    if order is None:
        start = schedule.sort(list(state))
    else:
        # The kernel reads the state in the order of the batch. An index on the host is copied with the step table.
        start, steps = list(state), steps.ordered(order if order.device.type == "cpu" else order.to(rows[0].device))
    start = [leaf if leaf.ndim else leaf.expand(steps.batch_size) for leaf in start] if rowless else start
    call = _call(compiled, steps, rows[0].device, options, AS_GIVEN)
    if options.checkpoint_every is None:
        outputs, final = run(call, tensors, rows, start)
    else:
        outputs, final = _run_chunks(call, compiled, rows, start, options.checkpoint_every)
    count = len(outputs) - (len(final) if options.all_states else 0)
    outputs, states = outputs[:count], outputs[count:]
    for place in rowless:
        final[place] = final[place][0]
        if options.all_states:
            states[place] = states[place][steps.offset]
    final = schedule.unsort(final) if order is None else final
    every_state = schedule.unpack_states(states, final) if options.all_states else None
    return Leaves([schedule.restore(leaf) for leaf in outputs], final, every_state)


def _call(
    compiled: CompiledCell, steps: StepLayout, device: torch.device, options: UnrollOptions, packing: Packing
) -> UnrollCall:
    executable = compiled.executable
    noise = RngState(compiled.cell, device, is_random=executable.is_random)
    drawn = draw(executable, steps, noise)
    return UnrollCall(executable, steps, packing, noise, drawn, options.parallel_iterations, options.swap_memory)


def draw(executable: Executable, steps: StepLayout, noise: RngState) -> Env:
    """The random numbers of all rows, in the order of time: the same for batch-major and time-major sequences."""
    if not executable.program.random.nodes:
        return {}
    drawn = executable.draw(steps.total, noise.generator)
    if steps.row_stride == 1 or steps.batch_size == 1:
        return drawn
    shape = (steps.row_stride, steps.batch_size)
    return {
        value: tensor.unflatten(0, shape).transpose(0, 1).flatten(0, 1) if value.has_rows else tensor
        for value, tensor in drawn.items()
    }


def _run_chunks(
    call: UnrollCall, compiled: CompiledCell, rows: Sequence[Tensor], state: list[Tensor], size: int
) -> tuple[list[Tensor], list[Tensor]]:
    """Chunks of time that save only their initial state, and are recomputed in the backward pass."""
    cell, tensors = compiled.cell, compiled.tensors
    results: list[tuple[int, list[Tensor]]] = []

    def run_chunk(chunk: TimeChunk, *leaves: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        noise = RngState(cell, rows[0].device, is_random=call.executable.is_random)
        first, second = len(tensors), len(tensors) + len(rows)
        place = chunk.rows or slice(None)
        drawn = {value: tensor[place] if value.has_rows else tensor for value, tensor in call.drawn.items()}
        here = call._replace(steps=chunk.steps, noise=noise, drawn=drawn)
        return run(here, leaves[:first], leaves[first:second], leaves[second:])

    for chunk in time_chunks(call.steps, first_steps(call.steps.counts, most_steps=size)):
        place, count = chunk.rows or slice(None), chunk.steps.batch_size
        front = [leaf[:count] for leaf in state]
        outputs, final = recomputed(run_chunk, cell)(chunk, *tensors, *(leaf[place] for leaf in rows), *front)
        results.append((place.start or 0, outputs))
        state = [torch.cat([new, old[count:]]) for new, old in zip(final, state, strict=True)]
    ordered = [outputs for _, outputs in sorted(results, key=lambda result: result[0])]
    return [torch.cat(parts) for parts in zip(*ordered, strict=True)], state
