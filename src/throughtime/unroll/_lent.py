"""Unrolls of cells that own nothing: their tensors are lent for one call, by a module that is no cell itself.

Such a module may change, copy, move or replace its weights however it likes: nothing of ours is kept with it, so nothing
has to follow. A call that is known needs the tensors alone; a cell is made of them only when all checks must be passed.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from throughtime.cells._base import RNNCell
from throughtime.unroll._arguments import check_lengths
from throughtime.unroll._dynamic import plan_dynamic
from throughtime.unroll._form import open_inputs
from throughtime.unroll._recall import Known, lent_signature, recall, remember
from throughtime.unroll._traced import call_operator


def unroll_lent(
    kind: type[RNNCell],
    tensors: Sequence[Tensor],
    inputs: Any,
    sequence_length: Any,
    initial_state: Any,
    dtype: torch.dtype,
    *,
    time_major: bool,
    reverse: bool,
) -> tuple[Any, Any]:
    """`dynamic_rnn` of the cell `kind(*tensors)`, or with `reverse` that of the end of each sequence to its start."""
    options = (dtype, None, False, time_major, None, False, None)
    call = lent_signature(kind, tensors, inputs, initial_state, (time_major, reverse, dtype))
    known = None if call is None else recall(call)
    if call is not None and known is not None and (known.form is not None or sequence_length is None):
        lengths = check_lengths(sequence_length, known.batch_size)
        if lengths is None or max(lengths) > 0:
            result = known.run(call, known.stand_in, inputs, lengths, initial_state)
            return result.outputs, result.state
    cell = kind(*_distinct(tensors))
    form, opened = open_inputs(inputs, time_major)
    result = plan_dynamic(cell, form, opened, sequence_length, initial_state, dtype, reverse=reverse)()
    if call is not None and result.choice is not None:
        given = initial_state is not None
        found = Known.of(cell, tensors, result, form, call.device, options, given=given, reverse=reverse)
        remember(call, replace(found, stand_in=kind(*map(_blank, tensors))))
    return result.outputs, result.state


def _distinct(tensors: Sequence[Tensor]) -> list[Tensor]:
    """The same tensors, each an object of its own: a weight that is lent twice counts as two, whose gradients add up."""
    seen: set[int] = set()
    return [tensor.view_as(tensor) if id(tensor) in seen or seen.add(id(tensor)) else tensor for tensor in tensors]


def _blank(tensor: Tensor) -> Tensor:
    """Zeros like a tensor, that take no memory."""
    return blank_tensor(tuple(tensor.shape), tensor.dtype, tensor.device, tensor.requires_grad)


def blank_tensor(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device, requires_grad: bool) -> Tensor:
    with torch.inference_mode(False), torch.no_grad():
        blank = torch.zeros((), dtype=dtype, device=device).expand(shape)
    return blank.requires_grad_(requires_grad)


@functools.cache
def _numbered(kind: type[RNNCell], blanks: tuple[tuple[Any, ...], ...]) -> RNNCell:
    """The cell that stands for all of one kind and size in graphs of torch: it must live as long as any of these."""
    return kind(*(blank_tensor(*blank) for blank in blanks))


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def number_of(kind: type[RNNCell], blanks: tuple[tuple[Any, ...], ...]) -> int:
    """Its number, behind the back of torch.compile."""
    return _numbered(kind, blanks).number
