"""Functional unrolls: the tensors of the cell are arguments of the call, as `tt.nn` needs it.

The caller may change, copy, move or replace its weights as it likes: no cell is attached to it, so nothing has to be
updated. A cached call needs the tensors alone; a cell is made of them only for a call that has to pass all checks.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from throughtime._pytree import Nest
from throughtime._torch_internals import constant_in_graphs
from throughtime.cells._base import RNNCell
from throughtime.unroll._arguments import Lengths
from throughtime.unroll._batch_format import open_inputs
from throughtime.unroll._call_cache import CachedCall, functional_call_key, insert, run_cached
from throughtime.unroll._dynamic import plan_dynamic
from throughtime.unroll._options import UnrollOptions
from throughtime.unroll.torch_compile._export import unroll_exported

MakeCell = Callable[..., RNNCell]
"""A class of cells that consist of the tensors they are made of: `make_cell(*tensors)`."""


def functional_unroll(
    make_cell: MakeCell,
    tensors: Sequence[Tensor],
    inputs: Nest,
    sequence_length: Lengths = None,
    initial_state: Nest = None,
    options: UnrollOptions = UnrollOptions(),  # noqa: B008 (immutable)
) -> tuple[Nest, ...]:
    """What `dynamic_rnn` returns for the cell `make_cell(*tensors)`.

    Args:
        make_cell: Makes a cell of the tensors. Calls are cached by its identity, so it must be the same object at every
            call, as a class is, and must depend on nothing but the number, shapes and dtypes of the tensors.
        tensors: The weights of the cell. A tensor that is passed twice counts as two; its gradients add up.
        inputs: As for `dynamic_rnn`.
        sequence_length: As for `dynamic_rnn`.
        initial_state: As for `dynamic_rnn`; None is the zero state of `options.dtype`.
        options: Checked options. Reuse one object for equal options: its cache key is computed once.
    """
    if torch.compiler.is_compiling():
        lengths = None if sequence_length is None else torch.as_tensor(sequence_length)
        return unroll_exported(make_cell(*_distinct(tensors)), inputs, lengths, initial_state, options)
    key = functional_call_key(make_cell, tensors, inputs, initial_state, options)
    result = run_cached(key, None, inputs, sequence_length, initial_state)
    if result is None:
        cell = make_cell(*_distinct(tensors))
        form, opened = open_inputs(inputs, options.time_major)
        result = plan_dynamic(cell, form, opened, sequence_length, initial_state, options)()
        if key is not None and result.choice is not None and result.choice.executable is not None:
            cached = CachedCall.of(cell, key, result, form, options, has_state=initial_state is not None)
            insert(key, replace(cached, stand_in=_stand_in(make_cell, tuple(map(tensor_spec, tensors)))))
    return result[:3] if options.all_states else result[:2]


def _distinct(tensors: Sequence[Tensor]) -> list[Tensor]:
    """The same tensors, each as an object of its own: the gradients of one that is passed twice add up."""
    first = {id(tensor): place for place, tensor in reversed([*enumerate(tensors)])}
    return [tensor if first[id(tensor)] == place else tensor.view_as(tensor) for place, tensor in enumerate(tensors)]


TensorSpec = tuple[tuple[int, ...], torch.dtype, torch.device, bool]
"""The properties of a tensor that programs depend on: shape, dtype, device, whether it requires a gradient."""


def tensor_spec(tensor: Tensor) -> TensorSpec:
    """The properties of a tensor that programs depend on."""
    return tuple(tensor.shape), tensor.dtype, tensor.device, tensor.requires_grad


def _blank(spec: TensorSpec) -> Tensor:
    """Zeros with these properties, which take no memory."""
    shape, dtype, device, requires_grad = spec
    with torch.inference_mode(False), torch.no_grad():
        return torch.zeros((), dtype=dtype, device=device).expand(shape).requires_grad_(requires_grad)


@functools.cache
def _stand_in(make_cell: MakeCell, specs: tuple[TensorSpec, ...]) -> RNNCell:
    """The cell that represents all cells with tensors like these. Not evicted: compiled graphs use its number."""
    return make_cell(*map(_blank, specs))


@constant_in_graphs
def number_of(make_cell: MakeCell, specs: tuple[TensorSpec, ...]) -> int:
    """Its number, by which the custom operator finds it; torch.compile does not trace this function."""
    return _stand_in(make_cell, specs).number
