"""The call cache: a call that equals an earlier one skips the checks and the compilation.

A small network is called many times with tensors of the same shapes. The result of the checks holds as long as what
they read has not changed: the structure of the cell (guarded by `compiler/guards`), shapes, dtypes, devices, options.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from throughtime import _pytree
from throughtime._active_modes import intercepting_mode
from throughtime._lru import LruCache
from throughtime._pytree import Nest
from throughtime._tensors import records_gradients
from throughtime.backends.checked_cell import CheckedCell
from throughtime.backends.loop_backend import BoundCall
from throughtime.cells._base import RNNCell, has_own_checks, initial_state, is_lazy_cell, starts_from_zeros
from throughtime.compiler import GuardCache
from throughtime.layout.shared_zeros import shared_zeros
from throughtime.runtime.autograd import UnrollCall, run
from throughtime.runtime.backend_context import wanted_backend
from throughtime.runtime.rng import RngState
from throughtime.runtime.select import Choice
from throughtime.unroll._arguments import Lengths, check_lengths, check_output_dtype, fit_state
from throughtime.unroll._batch_format import BatchFormat, Packed, Padded
from throughtime.unroll._engine import Packers, Unrolled, unroll_by_reference, unroll_compiled
from throughtime.unroll._options import UnrollOptions
from throughtime.unroll._run_compiled import CompiledCell
from throughtime.unroll._schedule import Dense, Schedule, make_schedule

_CALLS: LruCache[Hashable, CachedCall] = LruCache(512)
_PLAIN = frozenset({type(None), bool, int, str, torch.dtype})
_STRIDED = torch.strided
_ORDINARY = (Tensor, nn.Parameter)

Inputs = Tensor | PackedSequence


class CallKey(NamedTuple):
    """The key of a call, and what a call with it brings: the cell's tensors, the modules inside it, the device."""

    key: Hashable
    tensors: Sequence[Tensor]
    modules: Sequence[nn.Module]
    device: torch.device


def run_cached(
    key: CallKey | None, cell: Any, inputs: Inputs, sequence_length: Lengths, initial_state: Nest
) -> Unrolled | None:
    """The result of a cached call; None for a call that has to pass all checks.

    `cell` is None for a functional call, which brings only tensors: the cached call has a cell of their sizes.
    """
    if key is None:
        return None
    cached = _CALLS.lookup(key.key)
    if cached is None or (cached.form is None and sequence_length is not None):
        return None
    lengths = check_lengths(sequence_length, cached.batch_size)
    # A call without any step is not cached.
    if lengths is not None and max(lengths) <= 0:
        return None
    return cached.run(key, cached.stand_in if cell is None else cell, inputs, lengths, initial_state)


def insert(key: CallKey, cached: CachedCall) -> None:
    """Cache a call."""
    _CALLS.insert(key.key, cached)


def is_cacheable(result: Unrolled) -> bool:
    """Whether a call with the same key would run in the same way."""
    settled = result.choice is not None and result.choice.is_settled
    return settled and all(isinstance(leaf, Tensor) for leaf in _pytree.flatten(result.state))


@dataclass(frozen=True)
class CachedCall:
    """The results of the checks of a call. `options.dtype` is the dtype of the outputs."""

    choice: Choice
    batch_size: int
    # The format of padded inputs, and the schedule of sequences of full length; None for packed inputs, which have one
    # of their own each.
    form: Padded | None
    schedule: Schedule | None
    options: UnrollOptions
    in_chunks: bool
    pack: Packers
    # Factories of the leaves of the zero state; None if the cell has a `zero_state` of its own.
    zeros: list[Callable[[], Tensor]] | None
    make_state: Callable[[Any], Nest]
    checks_values: bool
    bound: BoundCall | None
    # For functional calls: a cell with tensors of the same sizes, which take no memory.
    stand_in: RNNCell | None = None

    @classmethod
    def of(
        cls, cell: Any, key: CallKey, result: Unrolled, form: BatchFormat, options: UnrollOptions, *, has_state: bool
    ) -> CachedCall:
        """The cached form of a call that has just run; `has_state`: its initial state was given."""
        assert result.choice is not None
        device, dtype, batch_size = key.device, options.dtype, form.batch_size
        in_chunks = options.cuts_time(device)
        zeros: list[Callable[[], Tensor]] | None = None
        if not has_state and starts_from_zeros(cell):
            make = shared_zeros if device.type == "cuda" else torch.zeros
            final = _pytree.flatten(result.state)
            zeros = [partial(make, size=leaf.shape, dtype=leaf.dtype, device=device) for leaf in final]

        def make_state(cell: Any) -> Nest:
            assert dtype is not None
            with torch.device(device):
                return initial_state(cell, batch_size, dtype)

        # Packed inputs are not held: they belong to the caller.
        padded = form if isinstance(form, Padded) else None
        schedule = None
        if padded is not None:
            schedule = make_schedule(padded, None, reverse=options.reverse, in_chunks=in_chunks)
        choice, bound = replace(result.choice, fingerprint=None), None
        if choice.executable is not None and schedule is not None and not options.all_states and not in_chunks:
            bound = choice.executable.bind(schedule.steps, key.tensors)
        # A state of size `()` may be any nest.
        like_state = _pytree.map_leaves(lambda _: None, result.state)
        return cls(
            choice=choice,
            batch_size=batch_size,
            form=padded,
            schedule=schedule,
            options=replace(options, dtype=check_output_dtype(dtype, result.state)),
            in_chunks=in_chunks,
            pack=Packers(_pytree.packer(cell.output_size), _pytree.packer(like_state)),
            zeros=zeros,
            make_state=make_state,
            checks_values=has_own_checks(cell),
            bound=bound,
        )

    def run(self, key: CallKey, cell: Any, inputs: Inputs, lengths: list[int] | None, initial_state: Nest) -> Unrolled:
        """The call on other values."""
        state = self._state(cell, inputs, initial_state)
        for module in (cell, *key.modules):
            if isinstance(module, RNNCell):
                module.begin_sequence()
        schedule = self._schedule(inputs, lengths)
        if self.checks_values:
            cell.check_values(schedule.rows(inputs))
        if self.choice.executable is None:
            nest = self.pack.state(state)
            return unroll_by_reference(
                CheckedCell(cell, nest, self.options.dtype), schedule, inputs, nest, self.options
            )
        if self.bound is not None:
            zero_start = initial_state is None and self.zeros is not None
            result = self._run_bound(self.bound, key, cell, schedule, inputs, state, zero_start)
            if result is not None:
                return result
        compiled = CompiledCell(cell, self.choice.executable, key.tensors)
        return unroll_compiled(compiled, schedule, [inputs], state, self.options, self.pack)

    def _run_bound(
        self,
        bound: BoundCall,
        key: CallKey,
        cell: Any,
        schedule: Schedule,
        inputs: Inputs,
        state: list[Tensor],
        zero_start: bool,
    ) -> Unrolled | None:
        """The call by one kernel call; None if these tensors are not stored as those that it was bound to."""
        if not isinstance(inputs, Tensor) or not all(leaf.ndim for leaf in state):
            return None
        tensors, sequences, executable = key.tensors, [inputs], self.choice.executable
        packing = schedule.packing(sequences)
        if packing is None or executable is None or not bound.fits(tensors, sequences):
            return None
        if executable.program.adjoint is None:
            outputs, final = bound.infer(tensors, sequences, state, schedule.steps, packing, zero_start)
        else:
            noise = RngState(cell, inputs.device, is_random=False)
            call = UnrollCall(executable, schedule.steps, packing, noise, {}, bound=bound, zero_start=zero_start)
            outputs, final = run(call, tensors, sequences, state)
        return Unrolled(self.pack.outputs(outputs), self.pack.state(final), None)

    def _schedule(self, inputs: Inputs, lengths: list[int] | None) -> Schedule:
        """Which rows of these inputs run at which step."""
        if isinstance(inputs, PackedSequence):
            packed = Packed(inputs)
            return make_schedule(packed, packed.lengths, reverse=self.options.reverse, in_chunks=self.in_chunks)
        assert self.form is not None
        assert self.schedule is not None
        if lengths is None:
            return self.schedule
        schedule = make_schedule(self.form, lengths, reverse=self.options.reverse, in_chunks=self.in_chunks)
        return self.schedule if isinstance(schedule, Dense) else schedule

    def _state(self, cell: Any, inputs: Inputs, given: Nest) -> list[Tensor]:
        """The leaves of the initial state."""
        if given is None and self.zeros is not None:
            return [make() for make in self.zeros]
        state = self.make_state(cell) if given is None else given
        leaves = _pytree.flatten(_pytree.conform(cell.state_size, state, "`initial_state`"))
        if all(isinstance(leaf, Tensor) for leaf in leaves):
            return leaves
        # The `zero_state` of a user's cell may have plain numbers.
        device = inputs.data.device if isinstance(inputs, PackedSequence) else inputs.device
        return _pytree.flatten(fit_state(cell.state_size, state, self.batch_size, device, "`initial_state`"))


def call_key(cell: Any, inputs: Nest, initial_state: Nest, options: tuple[Any, ...]) -> CallKey | None:
    """The key of a call; None for one that is never cached. `options` are the values that the caller passed."""
    kinds = tuple(map(type, options))
    if not _PLAIN.issuperset(kinds) or not isinstance(cell, RNNCell) or "_modules" not in vars(cell):
        return None
    leaves = _state_leaves(inputs, initial_state)
    if leaves is None:
        return None
    guards = GuardCache.last(cell)
    if guards is None:
        if is_lazy_cell(cell):
            return None
        guards = GuardCache(cell)
    # `True == 1`, so the types count too.
    key, device = _key_of(guards.structure, inputs, initial_state, leaves, (options, kinds))
    return CallKey(key, guards.fingerprint.tensors, guards.modules, device)


def functional_call_key(
    make_cell: Callable[..., RNNCell],
    tensors: Sequence[Tensor],
    inputs: Nest,
    initial_state: Nest,
    options: UnrollOptions,
) -> CallKey | None:
    """The same for a cell that consists of the tensors it is made of, so that no guard has to look at it."""
    leaves = _state_leaves(inputs, initial_state)
    if leaves is None or any(type(tensor) not in _ORDINARY or tensor.layout is not _STRIDED for tensor in tensors):
        return None
    structure = (make_cell, *[(tensor.shape, tensor.dtype, tensor.device, tensor.requires_grad) for tensor in tensors])
    key, device = _key_of(structure, inputs, initial_state, leaves, options.key)
    return CallKey(key, tensors, (), device)


def _state_leaves(inputs: Nest, initial_state: Nest) -> list[Tensor] | None:
    """The tensors of the initial state; None for a call that is never cached."""
    rows = inputs.data if type(inputs) is PackedSequence else inputs
    if type(rows) is not Tensor or rows.device.type not in ("cpu", "cuda") or rows.layout is not _STRIDED:
        return None
    leaves = [] if initial_state is None else _pytree.flatten(initial_state)
    if any(type(leaf) is not Tensor or leaf.layout is not _STRIDED for leaf in leaves) or intercepting_mode():
        return None
    return leaves


def _key_of(
    structure: Hashable, inputs: Nest, initial_state: Nest, leaves: Sequence[Tensor], options: Hashable
) -> tuple[Hashable, torch.device]:
    rows = inputs.data if type(inputs) is PackedSequence else inputs
    device = rows.device
    kind = device.type
    key = (
        structure,
        rows.shape if rows is inputs else _shape_of(inputs),
        (rows.dtype, device, rows.requires_grad),
        tuple([(tensor.shape, tensor.dtype, tensor.device, tensor.requires_grad) for tensor in leaves]),
        type(initial_state),
        options,
        wanted_backend(),
        records_gradients(),
        torch.is_autocast_enabled(kind) and torch.get_autocast_dtype(kind),
        torch.get_default_dtype(),
    )
    return key, device


def _shape_of(packed: PackedSequence) -> Hashable:
    """The batch size and the features of packed sequences; their lengths are not part of the key."""
    sizes = packed.batch_sizes
    return (PackedSequence, int(sizes[0]) if len(sizes) else 0, packed.data.shape[1:])
