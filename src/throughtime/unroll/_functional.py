"""Unrolls of cells that own nothing: their tensors are lent for one call, by a module that is no cell itself.

Such a module may change, copy, move or replace its weights however it likes: nothing of ours is kept with it, so
nothing has to follow. A call that is known needs the tensors alone; a cell is made of them only for all the checks.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from throughtime._torch_internals import constant_in_graphs
from throughtime.cells._base import RNNCell
from throughtime.unroll._arguments import check_lengths
from throughtime.unroll._batch_format import open_inputs
from throughtime.unroll._call_cache import CachedCall, functional_cache_key, insert, lookup
from throughtime.unroll._dynamic import plan_dynamic
from throughtime.unroll.torch_compile._export import unroll_exported

Kind = Callable[..., RNNCell]
"""A class of cells that are nothing but the tensors they are made with: `kind(*tensors)`."""


def functional_unroll(
    kind: Kind,
    tensors: Sequence[Tensor],
    inputs: Any,
    sequence_length: Any,
    initial_state: Any,
    dtype: torch.dtype,
    *,
    time_major: bool,
    reverse: bool,
) -> tuple[Any, Any]:
    """`dynamic_rnn` of the cell `kind(*tensors)`; with `reverse` from the end of each sequence to its start."""
    if torch.compiler.is_compiling():
        cell = kind(*_distinct(tensors))
        order = {"reverse": reverse, "all_states": False}
        outputs, state = unroll_exported(cell, inputs, sequence_length, initial_state, dtype, time_major, **order)
        return outputs, state
    options = (dtype, None, False, time_major, None, False, None)
    call = functional_cache_key(kind, tensors, inputs, initial_state, (time_major, reverse, dtype))
    known = None if call is None else lookup(call)
    if call is not None and known is not None and (known.form is not None or sequence_length is None):
        lengths = check_lengths(sequence_length, known.batch_size)
        if lengths is None or max(lengths) > 0:
            result = known.run(call, known.stand_in, inputs, lengths, initial_state)
            return result.outputs, result.state
    cell = kind(*_distinct(tensors))
    form, opened = open_inputs(inputs, time_major)
    result = plan_dynamic(cell, form, opened, sequence_length, initial_state, dtype, reverse=reverse)()
    if call is not None and result.choice is not None and result.choice.executable is not None:
        given = initial_state is not None
        found = CachedCall.of(cell, tensors, result, form, call.device, options, given=given, reverse=reverse)
        insert(call, replace(found, stand_in=_stand_in(kind, tuple(map(tensor_spec, tensors)))))
    return result.outputs, result.state


def _distinct(tensors: Sequence[Tensor]) -> list[Tensor]:
    """The same tensors, each an object of its own: one that is lent twice counts as two, whose gradients add up."""
    first = {id(tensor): place for place, tensor in reversed([*enumerate(tensors)])}
    return [tensor if first[id(tensor)] == place else tensor.view_as(tensor) for place, tensor in enumerate(tensors)]


Looks = tuple[tuple[int, ...], torch.dtype, torch.device, bool]
"""A tensor as far as programs depend on it: its shape, dtype, device, and whether it wants gradients."""


def tensor_spec(tensor: Tensor) -> Looks:
    """How a tensor looks."""
    return tuple(tensor.shape), tensor.dtype, tensor.device, tensor.requires_grad


def _blank(looks: Looks) -> Tensor:
    """Zeros that look so, and take no memory."""
    shape, dtype, device, requires_grad = looks
    with torch.inference_mode(False), torch.no_grad():
        return torch.zeros((), dtype=dtype, device=device).expand(shape).requires_grad_(requires_grad)


@functools.cache
def _stand_in(kind: Kind, looks: tuple[Looks, ...]) -> RNNCell:
    """The cell that stands for all whose tensors look so; graphs that torch has compiled may know it for ever."""
    return kind(*map(_blank, looks))


@constant_in_graphs
def number_of(kind: Kind, looks: tuple[Looks, ...]) -> int:
    """Its number, by which the operator of an unroll knows it; found behind the back of torch.compile."""
    return _stand_in(kind, looks).number
