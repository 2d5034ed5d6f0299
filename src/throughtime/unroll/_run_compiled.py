"""The walk through time as one operation, or with `checkpoint_every` as one for each block of steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from throughtime.backends.gradient_checkpoint import recomputed
from throughtime.backends.torch_codegen import Env
from throughtime.layout.pack import Packing
from throughtime.layout.step_layout import StepLayout
from throughtime.runtime.autograd import UnrollCall, run
from throughtime.runtime.bound_call import BoundCall
from throughtime.runtime.forward import Executable
from throughtime.runtime.rng import RngState
from throughtime.unroll._schedule import Schedule


def run_compiled(
    executable: Executable,
    tensors: Sequence[Tensor],
    cell: Any,
    schedule: Schedule,
    rows: Sequence[Tensor],
    state: Sequence[Tensor],
    leading: tuple[int, int] | None,
    *,
    all_states: bool,
    parallel_iterations: int | None,
    checkpoint_every: int | None,
    swap_memory: bool,
) -> tuple[list[Tensor], list[Tensor]]:
    """Rows [N, ...] of all steps for each output (then each state, with `all_states`); leaves of the final state.

    With `leading` inputs and outputs have those two axes instead of the one of their rows.
    """
    noise = RngState(cell, rows[0].device, is_random=executable.is_random)
    # What has no rows is given some, all alike, and taken from the first of them, which runs through every step.
    rowless = [place for place, leaf in enumerate(state) if not leaf.ndim]
    steps = schedule.steps
    in_one = parallel_iterations is None and checkpoint_every is None and not swap_memory and not rowless
    order = schedule.order() if in_one and executable.takes_starts and not steps.is_full else None
    if order is not None:
        # What the host knows travels with the table of lengths.
        steps = steps.ordered(order if order.device.type == "cpu" else order.to(rows[0].device))
    drawn = draw(executable, steps, noise)
    call = UnrollCall(executable, steps, noise, drawn, parallel_iterations, swap_memory, leading=leading)
    leaves = schedule.sort(state) if order is None else list(state)
    if rowless:
        leaves = [leaf if leaf.ndim else leaf.expand(steps.batch_size) for leaf in leaves]
    if checkpoint_every is None:
        outputs, final = run(call, tensors, rows, leaves)
    else:
        outputs, final = _run_blocks(call, cell, tensors, rows, leaves, checkpoint_every)
    for place in rowless:
        final[place] = final[place][0]
        if all_states:
            kept = len(outputs) - len(leaves) + place
            outputs[kept] = outputs[kept][steps.offset]
    return outputs, schedule.unsort(final) if order is None else final


def run_padded(
    executable: Executable,
    tensors: Sequence[Tensor],
    cell: Any,
    steps: StepLayout,
    moves: Packing,
    inputs: Sequence[Tensor],
    state: Sequence[Tensor],
    parallel_iterations: int | None,
    swap_memory: bool,
) -> tuple[list[Tensor], list[Tensor]]:
    """The same for padded inputs and outputs [B, T, ...], whose rows the operation itself moves."""
    noise = RngState(cell, inputs[0].device, is_random=executable.is_random)
    call = UnrollCall(executable, steps, noise, draw(executable, steps, noise), parallel_iterations, swap_memory, moves)
    return run(call, tensors, inputs, state)


def run_bound(
    direct: BoundCall,
    executable: Executable,
    tensors: Sequence[Tensor],
    cell: Any,
    steps: StepLayout,
    moves: Packing | None,
    leading: tuple[int, int],
    inputs: Tensor,
    state: Sequence[Tensor],
    *,
    fresh: bool,
) -> tuple[list[Tensor], list[Tensor]]:
    """The same where the forward pass is its kernel; the rows of a `fresh` state are all alike, and nobody has it."""
    if executable.program.adjoint is not None:
        noise = RngState(cell, inputs.device, is_random=False)
        lead = leading if moves is None else None
        return run(
            UnrollCall(executable, steps, noise, {}, None, False, moves, direct, lead, fresh), tensors, [inputs], state
        )
    if moves is None:
        state = state if fresh else [leaf.clone(memory_format=torch.contiguous_format) for leaf in state]
        return direct.forward(tensors, [inputs], state, steps, leading)[0], list(state)
    rows, ordered = moves.enter([inputs], () if fresh else state)
    carried = state if fresh else [leaf.clone(memory_format=torch.contiguous_format) for leaf in ordered]
    return moves.leave(direct.forward(tensors, rows, carried, steps, None)[0], carried)


def draw(executable: Executable, steps: StepLayout, noise: RngState) -> Env:
    """The random numbers of all rows, in the order of time: the same whether sequences lie side by side or steps do."""
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


def _run_blocks(
    call: UnrollCall, cell: Any, tensors: Sequence[Tensor], rows: Sequence[Tensor], state: list[Tensor], size: int
) -> tuple[list[Tensor], list[Tensor]]:
    """Blocks of steps that keep nothing but the state they start from, and run again in the backward pass."""
    steps = call.steps
    pieces: list[tuple[int, list[Tensor]]] = []

    def run_block(block: StepLayout, place: slice, *leaves: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        noise = RngState(cell, rows[0].device, is_random=call.executable.is_random)
        first, second = len(tensors), len(tensors) + len(rows)
        drawn = {value: tensor[place] if value.has_rows else tensor for value, tensor in call.drawn.items()}
        here = call._replace(steps=block, noise=noise, drawn=drawn)
        return run(here, leaves[:first], leaves[first:second], leaves[second:])

    for start in range(0, len(steps.counts), size):
        block, place = steps.block(start, min(start + size, len(steps.counts)))
        front = [leaf[: block.batch_size] for leaf in state]
        outputs, final = recomputed(run_block, cell)(block, place, *tensors, *(leaf[place] for leaf in rows), *front)
        pieces.append((place.start, outputs))
        state = [torch.cat([new, old[block.batch_size :]]) for new, old in zip(final, state, strict=True)]
    ordered = [outputs for _, outputs in sorted(pieces, key=lambda piece: piece[0])]
    return [torch.cat(parts) for parts in zip(*ordered, strict=True)], state
