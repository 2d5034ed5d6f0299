"""An unroll under torch.export: all steps with masks, in plain torch operations that run anywhere.

The custom operator would be one node, but it finds its cell by a number that is valid in this process only; an exported
program may be loaded in another one. So every row runs at every step, and rows that have ended keep their state. That
is correct only if rows are independent, which the compiler proves first.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.overrides import _pop_mode, _push_mode

from throughtime import _pytree
from throughtime._errors import problem
from throughtime._pytree import Nest
from throughtime._torch_internals import num_function_modes
from throughtime.backends.checked_cell import CheckedCell
from throughtime.backends.reference import select
from throughtime.cells._base import begin_sequence
from throughtime.cells._cell_types import CellLike
from throughtime.compiler.trace.stand_in import with_tensors
from throughtime.runtime.select import choose
from throughtime.unroll._arguments import check_output_dtype, check_state
from throughtime.unroll._options import UnrollOptions
from throughtime.unroll.torch_compile._custom_op import blank_row, without_modes


def unroll_exported(
    cell: CellLike, inputs: Nest, lengths: Tensor | None, initial_state: Nest, options: UnrollOptions
) -> tuple[Nest, ...]:
    """What `dynamic_rnn` returns; `lengths` may be known only when the exported program runs."""
    leaves, reverse = _pytree.flatten(inputs), options.reverse
    time_axis = 0 if options.time_major else 1
    batch, time = leaves[0].shape[1 - time_axis], leaves[0].shape[time_axis]
    if isinstance(time, torch.SymInt):
        what = "torch.export cannot write out this unroll"
        fix = "Leave the time axis out of `dynamic_shapes`, pad sequences to one length and pass `sequence_length`."
        raise ValueError(problem(what, got="an open number of steps", expected="one known number", fix=fix))
    state = check_state(cell, initial_state, batch, options.dtype, leaves[0].device)
    step = CheckedCell(cell, state, check_output_dtype(options.dtype, state))
    if lengths is not None:
        _check_rows_independent(step, inputs, state)
        lengths = lengths.to(leaves[0].device, torch.int64)
    begin_sequence(cell)
    ordered = [_reversed(leaf, lengths, time_axis) if reverse else leaf for leaf in leaves]
    outputs, states = [], []
    for now in range(time):
        rows = _pytree.pack_as(inputs, [leaf.select(time_axis, now) for leaf in ordered])
        ended = None if lengths is None else lengths <= now
        # Nothing in the padding may reach a result, not even NaN.
        output, new_state = step(rows if ended is None else select(ended, None, rows), state)
        outputs.append(output if ended is None else select(ended, None, output))
        state = new_state if ended is None else select(ended, state, new_state)
        states.append(state)
    joined = _joined(outputs, lengths, time_axis, reverse=reverse)
    if not options.all_states:
        return joined, state
    # Past the end of a sequence its final state is copied through, in either direction.
    return joined, state, _joined(states, None, time_axis, reverse=False)


def _joined(steps: list[Nest], lengths: Tensor | None, time_axis: int, *, reverse: bool) -> Nest:
    """The nest of sequences of the nests of all steps."""
    leaves = [torch.stack(leaf, time_axis) for leaf in zip(*map(_pytree.flatten, steps), strict=True)]
    return _pytree.pack_as(steps[0], [_reversed(leaf, lengths, time_axis) if reverse else leaf for leaf in leaves])


def _reversed(leaf: Tensor, lengths: Tensor | None, time_axis: int) -> Tensor:
    """Every sequence reversed within its length, and zeros after it."""
    if lengths is None:
        return leaf.flip(time_axis)
    time = leaf.shape[time_axis]
    steps = torch.arange(time, device=leaf.device).unsqueeze(1 - time_axis)
    back = lengths.clamp(0, time).unsqueeze(time_axis) - 1 - steps
    back = back.view([*back.shape, *[1] * (leaf.ndim - 2)]).expand_as(leaf)
    return torch.where(back >= 0, leaf.gather(time_axis, back.clamp(min=0)), torch.zeros_like(leaf))


def _check_rows_independent(step: CheckedCell, inputs: Nest, state: Nest) -> None:
    """Raise unless rows are proven to be independent: those that have ended still run."""
    what, fix = (
        "torch.export cannot take `sequence_length` here",
        "Export without lengths, for sequences of one length.",
    )
    if torch.compiler.is_dynamo_compiling():
        raise ValueError(problem(what, got="strict=True", expected="strict=False", fix="Export with `strict=False`."))
    with without_modes(), _no_function_modes(), torch.no_grad():
        stand_in = with_tensors(step.cell, lambda leaf: blank_row(leaf, leaf.shape[1:], rows=leaf.shape[:1]))
        blanks = _pytree.map_leaves(lambda leaf: blank_row(leaf, leaf.shape[2:]), inputs)
        start = _pytree.map_leaves(lambda leaf: blank_row(leaf, leaf.shape[1:]), state)
        standing = CheckedCell(stand_in, start, step.dtype)
        choice = choose(standing, blanks, _pytree.flatten(blanks), start, differentiate=False)
    if choice.executable is None:
        reasons = "; ".join(dict.fromkeys(choice.reasons.values()))
        raise ValueError(problem(what, got=reasons, expected="a cell that can be compiled", fix=fix))


@contextlib.contextmanager
def _no_function_modes() -> Iterator[None]:
    """torch.export also traces the functions that Python calls."""
    modes = [_pop_mode() for _ in range(num_function_modes())]
    try:
        yield
    finally:
        for mode in reversed(modes):
            _push_mode(mode)
