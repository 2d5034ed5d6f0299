"""The driver of every unroll with known lengths."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from throughtime import _pytree
from throughtime._errors import problem, type_name
from throughtime._pytree import Nest
from throughtime._tensors import records_gradients
from throughtime.backends import reference
from throughtime.backends.checked_cell import CheckedCell, is_row_leaf
from throughtime.cells._base import RNNCell, begin_sequence, build_for, has_own_checks, is_lazy_cell
from throughtime.cells._cell_types import CellLike
from throughtime.runtime.offload.tensor_pages import swapping
from throughtime.runtime.select import Choice, choose
from throughtime.unroll._batch_format import BatchFormat, Padded
from throughtime.unroll._options import UnrollOptions
from throughtime.unroll._run_compiled import CompiledCell, run_compiled
from throughtime.unroll._schedule import Dense, Ragged, Schedule, make_schedule


class Unrolled(NamedTuple):
    """Outputs in the format of the inputs, the final state, all states if they were required, and the backend."""

    outputs: Nest
    state: Nest
    states: Nest
    choice: Choice | None = None


def unroll(
    cell: CellLike, form: BatchFormat, inputs: Nest, lengths: list[int] | None, state: Nest, options: UnrollOptions
) -> Unrolled:
    """Run `cell` over `inputs` from `state`; every argument has been checked, and `options.dtype` is the outputs'."""
    if form.lengths is not None:
        lengths = form.lengths
    leaves = _pytree.flatten(inputs)
    in_chunks = options.cuts_time(form.rows(leaves[0]).device)
    schedule = make_schedule(form, lengths, reverse=options.reverse, in_chunks=in_chunks)
    step = CheckedCell(cell, state, options.dtype)
    begin_sequence(cell)
    if not schedule.active:
        return _no_steps(step, form, inputs, state, options.all_states)
    if any(not isinstance(leaf, Tensor) for leaf in _pytree.flatten(state)):
        _check_rowless_state(form, options)
        if isinstance(schedule, Ragged):
            assert isinstance(form, Padded)
            assert lengths is not None
            with swapping(options.swap_memory, cell, (inputs, state)):
                return _unroll_masked(step, form, inputs, lengths, state, options.reverse)
    if isinstance(cell, RNNCell) and has_own_checks(cell):
        cell.check_values(_pytree.pack_as(inputs, [schedule.rows(leaf) for leaf in leaves]))
    if is_lazy_cell(cell):
        build_for(cell, blank_step(form, inputs), state)
    choice = choose(step, inputs, [form.rows(leaf) for leaf in leaves], state, keep_states=options.all_states)
    if choice.executable is None:
        return unroll_by_reference(step, schedule, inputs, state, options)._replace(choice=choice)
    assert choice.fingerprint is not None
    compiled = CompiledCell(cell, choice.executable, choice.fingerprint.tensors)
    pack = Packers(_pytree.packer(cell.output_size), _pytree.packer(state))
    result = unroll_compiled(compiled, schedule, leaves, _pytree.flatten(state), options, pack)
    return result._replace(choice=choice)


def unroll_by_reference(
    step: CheckedCell, schedule: Schedule, inputs: Nest, state: Nest, options: UnrollOptions
) -> Unrolled:
    """The unroll as a loop that calls the cell at every step."""
    with swapping(options.swap_memory, step.cell, (inputs, state)):
        loop = reference.run(
            step,
            _steps(schedule, inputs),
            schedule.active,
            schedule.sort(state),
            keep_states=options.all_states,
            checkpoint_every=options.checkpoint_every,
        )
    final = schedule.unsort(loop.state)
    states = None
    if options.all_states:
        by_leaf = [list(steps) for steps in zip(*map(_pytree.flatten, loop.states), strict=True)]
        states = _pytree.pack_as(final, schedule.unpack_states(by_leaf, _pytree.flatten(final)))
    return Unrolled(_join(schedule, loop.outputs), final, states)


class Packers(NamedTuple):
    """From leaves to the nests of the outputs and of the state."""

    outputs: Callable[[Sequence[Any]], Nest]
    state: Callable[[Sequence[Any]], Nest]


def unroll_compiled(
    compiled: CompiledCell,
    schedule: Schedule,
    inputs: Sequence[Nest],
    state: Sequence[Tensor],
    options: UnrollOptions,
    pack: Packers,
) -> Unrolled:
    """The unroll by an executable, on the leaves of the inputs and of the state."""
    outputs, final, states = run_compiled(compiled, schedule, inputs, state, options)
    return Unrolled(pack.outputs(outputs), pack.state(final), None if states is None else pack.state(states))


def _steps(schedule: Schedule, inputs: Nest) -> list[Nest]:
    """The nest of inputs of each step."""
    if not _pytree.is_nest(inputs):
        return list(schedule.take(inputs))
    taken = map(schedule.take, _pytree.flatten(inputs))
    return [_pytree.pack_as(inputs, leaves) for leaves in zip(*taken, strict=True)]


def _join(schedule: Schedule, steps: list[Nest]) -> Nest:
    """The nest of sequences of the nests of all steps."""
    if not _pytree.is_nest(steps[0]):
        return schedule.put(steps)
    leaves = zip(*map(_pytree.flatten, steps), strict=True)
    return _pytree.pack_as(steps[0], [schedule.put(leaf) for leaf in leaves])


def _no_steps(step: CheckedCell, form: BatchFormat, inputs: Nest, state: Nest, all_states: bool) -> Unrolled:
    """No step to run (T = 0, or every length 0): zero outputs, the initial state; a lazy cell is built all the same."""
    blank = blank_step(form, inputs)
    build_for(step.cell, blank, state)
    device = next(leaf.device for leaf in _pytree.flatten([state, blank]) if isinstance(leaf, Tensor))
    outputs = _pytree.map_leaves(lambda leaf: _blank(form, leaf, None), step.blank_output(0, device))
    states = None
    if all_states:
        states = _pytree.map_leaves(
            lambda leaf: _blank(form, leaf, leaf) if is_row_leaf(leaf) else leaf.expand(form.max_time), state
        )
    # A copy of the state, as after any other unroll.
    final = _pytree.map_leaves(lambda leaf: leaf.clone() if isinstance(leaf, Tensor) else leaf, state)
    parameters = step.cell.parameters() if isinstance(step.cell, nn.Module) else ()
    sources = [form.rows(leaf) for leaf in _pytree.flatten(inputs)] + list(parameters)
    return Unrolled(*(_as_if_of(sources, results) for results in (outputs, final, states)))


def _as_if_of(sources: Sequence[Tensor], results: Nest) -> Nest:
    """Results that require gradients as if a step had computed them from these sources; those gradients are zeros."""
    differentiable = [source for source in sources if source.requires_grad] if records_gradients() else []

    def connected(leaf: Any) -> Any:
        if not differentiable or not isinstance(leaf, Tensor) or not leaf.is_floating_point():
            return leaf
        return _AsIfOf.apply(leaf, *differentiable)  # type: ignore[no-untyped-call]

    return None if results is None else _pytree.map_leaves(connected, results)


class _AsIfOf(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, result: Tensor, *sources: Tensor) -> Tensor:
        ctx.save_for_backward(*sources)
        return result.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, ...]:
        return (gradient, *map(torch.zeros_like, ctx.saved_tensors))


def check_fits(cell: CellLike, form: BatchFormat, inputs: Nest, state: Nest) -> None:
    """Let a cell raise, before any work is done, if these inputs or this state do not fit it."""
    if isinstance(cell, RNNCell):
        cell.check_step(blank_step(form, inputs), state)


def blank_step(form: BatchFormat, inputs: Nest) -> Nest:
    """Zeros with the shapes, dtypes and devices of the inputs of a step; they take no memory."""

    def blank(leaf: Any) -> Tensor:
        rows = form.rows(leaf)
        return rows.new_zeros(()).expand(form.batch_size, *rows.shape[1:])

    return _pytree.map_leaves(blank, inputs)


def _blank(form: BatchFormat, like: Tensor, fill: Tensor | None) -> Any:
    blank = form.blank(like, fill)
    return form.restore(like[:0] if blank is None else blank)


def _check_rowless_state(form: BatchFormat, options: UnrollOptions) -> None:
    """Raise if an option needs a state with rows: a TensorArray has none."""
    unsupported = {
        "all_states=True": options.all_states,
        "checkpoint_every": options.checkpoint_every is not None,
        f"{type_name(form).lower()} inputs": not isinstance(form, Padded),
    }
    for what, is_given in unsupported.items():
        if is_given:
            raise ValueError(
                problem(
                    f"a state that is no tensor cannot be used with {what}",
                    got="a TensorArray in the state",
                    expected="tensors only",
                    fix="Stack the array after the loop instead, over padded inputs.",
                )
            )


def _unroll_masked(
    step: CheckedCell, form: Padded, inputs: Nest, lengths: list[int], state: Nest, reverse: bool
) -> Unrolled:
    """The unroll of a state without rows: all rows run at every step, in the order of the batch, with masks."""
    forward, actual = (make_schedule(form, lengths, reverse=reversed_) for reversed_ in (False, reverse))
    count = len(forward.active)
    # This zeroes the padding and, in reverse, aligns the ends of all sequences at the first step.
    aligned = _pytree.map_leaves(lambda leaf: forward.put(actual.take(leaf)), inputs)
    dense = Dense(form, reverse=False)
    device = next(leaf.device for leaf in _pytree.flatten(aligned))
    length = torch.tensor(lengths, device=device)
    finished = [length <= time for time in range(count)]
    loop = reference.run_masked(step, _steps(dense, aligned)[:count], finished, state)
    idle = _pytree.map_leaves(torch.zeros_like, loop.outputs[0])
    padded = _join(dense, loop.outputs + [idle] * (form.max_time - count))
    # The same for the outputs, in the opposite direction.
    outputs = _pytree.map_leaves(lambda leaf: actual.put(forward.take(leaf)), padded)
    return Unrolled(outputs, loop.state, None)
