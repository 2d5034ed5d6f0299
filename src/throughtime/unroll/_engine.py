"""The one way through time: every unroll with known lengths comes here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from throughtime import _pytree
from throughtime._errors import problem, type_name
from throughtime._tensors import records_gradients
from throughtime.backends import reference
from throughtime.backends.checked_cell import CheckedCell, is_row_leaf
from throughtime.cells._base import RNNCell, begin_sequence, build_for, has_own_checks, is_lazy_cell
from throughtime.runtime.offload.tensor_pages import is_swapped, swapping
from throughtime.runtime.select import Choice, choose
from throughtime.unroll._batch_format import BatchFormat, Padded
from throughtime.unroll._run_compiled import run_compiled, run_padded
from throughtime.unroll._schedule import Dense, Ragged, Schedule, make_schedule


class Unrolled(NamedTuple):
    """Outputs in the form of the inputs, the final state, all states if they were asked for, and what ran them."""

    outputs: Any
    state: Any
    states: Any
    choice: Choice | None = None


def unroll(
    cell: Any,
    form: BatchFormat,
    inputs: Any,
    lengths: list[int] | None,
    state: Any,
    dtype: torch.dtype | None,
    *,
    reverse: bool = False,
    all_states: bool = False,
    parallel_iterations: int | None = None,
    swap_memory: bool = False,
    checkpoint_every: int | None = None,
) -> Unrolled:
    """Run `cell` over `inputs` from `state`; every argument has been checked."""
    if form.lengths is not None:
        lengths = form.lengths
    blocks = parallel_iterations is not None or checkpoint_every is not None
    if swap_memory and is_swapped(form.rows(_pytree.flatten(inputs)[0]).device):
        blocks = True
    schedule = make_schedule(form, lengths, reverse=reverse, blocks=blocks)
    step = CheckedCell(cell, state, dtype)
    begin_sequence(cell)
    if not schedule.active:
        return _no_steps(step, form, inputs, state, all_states)
    if any(not isinstance(leaf, Tensor) for leaf in _pytree.flatten(state)):
        _check_rowless_state(form, all_states, checkpoint_every)
        if isinstance(schedule, Ragged):
            assert isinstance(form, Padded)
            assert lengths is not None
            with swapping(swap_memory, cell, (inputs, state)):
                return _unroll_masked(step, form, inputs, lengths, state, reverse)
    leaves = _pytree.flatten(inputs)
    if has_own_checks(cell):
        cell.check_values(_pytree.pack_as(inputs, [schedule.rows(leaf) for leaf in leaves]))
    if is_lazy_cell(cell):
        build_for(cell, blank_step(form, inputs), state)
    choice = choose(step, inputs, [form.rows(leaf) for leaf in leaves], state, keep_states=all_states)
    if choice.executable is not None:
        assert choice.fingerprint is not None
        tensors = choice.fingerprint.tensors
        pack = Packers(_pytree.packer(cell.output_size), _pytree.packer(state))
        result = unroll_compiled(
            choice,
            tensors,
            cell,
            form,
            schedule,
            leaves,
            _pytree.flatten(state),
            pack,
            all_states=all_states,
            parallel_iterations=parallel_iterations,
            checkpoint_every=checkpoint_every,
            swap_memory=swap_memory,
        )
        return result._replace(choice=choice)
    result = unroll_by_reference(
        step,
        form,
        schedule,
        inputs,
        state,
        all_states=all_states,
        checkpoint_every=checkpoint_every,
        swap_memory=swap_memory,
    )
    return result._replace(choice=choice)


def unroll_by_reference(
    step: CheckedCell,
    form: BatchFormat,
    schedule: Schedule,
    inputs: Any,
    state: Any,
    *,
    all_states: bool,
    checkpoint_every: int | None,
    swap_memory: bool,
) -> Unrolled:
    """The walk step by step, by the cell itself."""
    with swapping(swap_memory, step.cell, (inputs, state)):
        walk = reference.run(
            step,
            _steps(schedule, inputs),
            schedule.active,
            schedule.sort(state),
            keep_states=all_states,
            checkpoint_every=checkpoint_every,
        )
    final = schedule.unsort(walk.state)
    kept = _all_states(form, schedule, walk.states, final) if all_states else None
    return Unrolled(_join(schedule, walk.outputs), final, kept)


class Packers(NamedTuple):
    """Leaves back into the nests of the outputs and of the state."""

    outputs: Callable[[Sequence[Any]], Any]
    state: Callable[[Sequence[Any]], Any]


def unroll_compiled(
    choice: Choice,
    tensors: Sequence[Tensor],
    cell: Any,
    form: BatchFormat,
    schedule: Schedule,
    inputs: Sequence[Any],
    state: Sequence[Tensor],
    pack: Packers,
    *,
    all_states: bool,
    parallel_iterations: int | None,
    checkpoint_every: int | None,
    swap_memory: bool,
) -> Unrolled:
    """The walk as one operation, on the leaves of the inputs and of the state."""
    assert choice.executable is not None
    in_one = not all_states and checkpoint_every is None and all(leaf.ndim for leaf in state)
    if isinstance(schedule, Ragged) and in_one:
        moves = schedule.moves(inputs)
        if moves is not None:
            outputs, final = run_padded(
                choice.executable, tensors, cell, schedule.steps, moves, inputs, state, parallel_iterations, swap_memory
            )
            return Unrolled(pack.outputs(outputs), pack.state(final), None)
    # Then the operation itself takes inputs apart into rows and puts outputs together.
    leading = schedule.leading if in_one and parallel_iterations is None and not swap_memory else None
    rows_of_outputs, final = run_compiled(
        choice.executable,
        tensors,
        cell,
        schedule,
        [schedule.rows(leaf) if leading is None else leaf for leaf in inputs],
        state,
        leading,
        all_states=all_states,
        parallel_iterations=parallel_iterations,
        checkpoint_every=checkpoint_every,
        swap_memory=swap_memory,
    )
    kept = None
    if all_states:
        count = len(rows_of_outputs) - len(final)
        rows_of_outputs, states = rows_of_outputs[:count], rows_of_outputs[count:]
        kept = pack.state(_restored_states(form, schedule, states, final))
    outputs = [schedule.restore(leaf) if leading is None else leaf for leaf in rows_of_outputs]
    return Unrolled(pack.outputs(outputs), pack.state(final), kept)


def _restored_states(
    form: BatchFormat, schedule: Schedule, states: Sequence[Tensor], final: Sequence[Tensor]
) -> list[Tensor]:
    """The state after every step, from rows of all steps; what has no rows has one value for each step."""

    def restore(leaf: Tensor, last: Tensor) -> Any:
        if is_row_leaf(last):
            return schedule.restore(leaf, fill=last)
        return torch.cat([leaf, last.expand(form.max_time - len(leaf))])

    return [restore(leaf, last) for leaf, last in zip(states, final, strict=True)]


def _steps(schedule: Schedule, inputs: Any) -> list[Any]:
    """The nest of inputs of each step."""
    if not _pytree.is_nest(inputs):
        return list(schedule.take(inputs))
    taken = map(schedule.take, _pytree.flatten(inputs))
    return [_pytree.pack_as(inputs, leaves) for leaves in zip(*taken, strict=True)]


def _join(schedule: Schedule, steps: list[Any]) -> Any:
    """The reverse: a nest of sequences from the nest of outputs of each step."""
    if not _pytree.is_nest(steps[0]):
        return schedule.put(steps)
    leaves = zip(*map(_pytree.flatten, steps), strict=True)
    return _pytree.pack_as(steps[0], [schedule.put(leaf) for leaf in leaves])


def _all_states(form: BatchFormat, schedule: Schedule, states: list[Any], final: Any) -> Any:
    """The state after every step. Past the end of a sequence that is its final state, copied through."""
    leaves = []
    for steps, last in zip(zip(*map(_pytree.flatten, states), strict=True), _pytree.flatten(final), strict=True):
        if is_row_leaf(last):
            leaves.append(schedule.put(steps, fill=last))
        else:
            idle = last.expand(form.max_time - len(steps))
            leaves.append(torch.cat([torch.stack(steps), idle]))
    return _pytree.pack_as(final, leaves)


def _no_steps(step: CheckedCell, form: BatchFormat, inputs: Any, state: Any, all_states: bool) -> Unrolled:
    """Nothing to run (T = 0, or every length 0): blank outputs, the state as it came, a cell built all the same."""
    blank = blank_step(form, inputs)
    build_for(step.cell, blank, state)
    device = next(leaf.device for leaf in _pytree.flatten([state, blank]) if isinstance(leaf, Tensor))
    outputs = _pytree.map_leaves(lambda leaf: _blank(form, leaf, None), step.blank_output(0, device))
    states = None
    if all_states:
        states = _pytree.map_leaves(
            lambda leaf: _blank(form, leaf, leaf) if is_row_leaf(leaf) else leaf.expand(form.max_time), state
        )
    # A state of its own, as after any other unroll.
    final = _pytree.map_leaves(lambda leaf: leaf.clone() if isinstance(leaf, Tensor) else leaf, state)
    parameters = step.cell.parameters() if isinstance(step.cell, nn.Module) else ()
    sources = [form.rows(leaf) for leaf in _pytree.flatten(inputs)] + list(parameters)
    return Unrolled(*(_as_if_of(sources, results) for results in (outputs, final, states)))


def _as_if_of(sources: Sequence[Tensor], results: Any) -> Any:
    """Results that ask for gradients as if a step had made them of these sources, whose gradients are zeros."""
    wanted = [source for source in sources if source.requires_grad] if records_gradients() else []

    def connected(leaf: Any) -> Any:
        if not wanted or not isinstance(leaf, Tensor) or not leaf.is_floating_point():
            return leaf
        return _AsIfOf.apply(leaf, *wanted)  # type: ignore[no-untyped-call]

    return None if results is None else _pytree.map_leaves(connected, results)


class _AsIfOf(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, result: Tensor, *sources: Tensor) -> Tensor:
        ctx.save_for_backward(*sources)
        return result.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, ...]:
        return (gradient, *map(torch.zeros_like, ctx.saved_tensors))


def check_fits(cell: Any, form: BatchFormat, inputs: Any, state: Any) -> None:
    """Let a cell say before any work is done that it cannot take these inputs or this state."""
    if isinstance(cell, RNNCell):
        cell.check_step(blank_step(form, inputs), state)


def blank_step(form: BatchFormat, inputs: Any) -> Any:
    """The inputs of a step as far as shape, dtype and device go; the values are zeros that take no memory."""

    def blank(leaf: Any) -> Tensor:
        rows = form.rows(leaf)
        return rows.new_zeros(()).expand(form.batch_size, *rows.shape[1:])

    return _pytree.map_leaves(blank, inputs)


def _blank(form: BatchFormat, like: Tensor, fill: Tensor | None) -> Any:
    blank = form.blank(like, fill)
    return form.restore(like[:0] if blank is None else blank)


def _check_rowless_state(form: BatchFormat, all_states: bool, checkpoint_every: int | None) -> None:
    """A TensorArray is not made of rows: what needs rows cannot have one."""
    refusals = {
        "all_states=True": all_states,
        "checkpoint_every": checkpoint_every is not None,
        f"{type_name(form).lower()} inputs": not isinstance(form, Padded),
    }
    for what, refused in refusals.items():
        if refused:
            raise ValueError(
                problem(
                    f"a state that is no tensor cannot be used with {what}",
                    got="a TensorArray in the state",
                    expected="tensors only",
                    fix="Stack the array after the loop instead, over padded inputs.",
                )
            )


def _unroll_masked(
    step: CheckedCell, form: Padded, inputs: Any, lengths: list[int], state: Any, reverse: bool
) -> Unrolled:
    """The unroll of lengths for a state without rows: all rows run, in the order of the batch, with masks."""
    forward, walked = (make_schedule(form, lengths, reverse=way) for way in (False, reverse))
    count = len(forward.active)
    # Taking and putting back zeroes the padding and, in reverse, brings every sequence's end to the front.
    aligned = _pytree.map_leaves(lambda leaf: forward.put(walked.take(leaf)), inputs)
    dense = Dense(form, reverse=False)
    device = next(leaf.device for leaf in _pytree.flatten(aligned))
    length = torch.tensor(lengths, device=device)
    finished = [length <= time for time in range(count)]
    walk = reference.run_masked(step, _steps(dense, aligned)[:count], finished, state)
    idle = _pytree.map_leaves(torch.zeros_like, walk.outputs[0])
    padded = _join(dense, walk.outputs + [idle] * (form.max_time - count))
    # The same once more for the outputs: back to the end, and zeros past it.
    outputs = _pytree.map_leaves(lambda leaf: walked.put(forward.take(leaf)), padded)
    return Unrolled(outputs, walk.state, None)
