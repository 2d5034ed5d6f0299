"""Calls that are known: one like it has passed every check and been compiled, so it can run at once.

A small network is called again and again with tensors of the same shapes. What the checks at the door found out then
holds as long as nothing that they looked at has changed: the structure of the cell, the shapes, dtypes and devices.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from throughtime import _pytree
from throughtime._active_modes import intercepting_mode
from throughtime._lru import LruCache
from throughtime._tensors import records_gradients
from throughtime.backends.checked_cell import CheckedCell
from throughtime.cells._base import RNNCell, has_own_checks, initial_state, is_lazy_cell, starts_from_zeros
from throughtime.compiler import GuardCache
from throughtime.layout.shared_zeros import shared_zeros
from throughtime.runtime.backend_context import wanted_backend
from throughtime.runtime.bound_call import BoundCall
from throughtime.runtime.offload.tensor_pages import is_swapped
from throughtime.runtime.select import Choice
from throughtime.unroll._arguments import check_output_dtype, fit_state
from throughtime.unroll._batch_format import BatchFormat, Packed, Padded
from throughtime.unroll._engine import Packers, Unrolled, unroll_by_reference, unroll_compiled
from throughtime.unroll._run_compiled import run_bound
from throughtime.unroll._schedule import Dense, Schedule, make_schedule

_CALLS: LruCache[Any, CachedCall] = LruCache(512)
_PLAIN = frozenset({type(None), bool, int, str, torch.dtype})
_STRIDED = torch.strided
_ORDINARY = (Tensor, nn.Parameter)


@dataclass(frozen=True)
class CachedCall:
    """What the checks found out about a call."""

    choice: Choice
    batch_size: int
    # How padded inputs lie, and when all sequences are of full length; None for packed ones, each of which has its own.
    form: Padded | None
    schedule: Schedule | None
    # The axes of batch and time, in the order in which padded inputs have them.
    leading: tuple[int, int]
    blocks: bool
    reverse: bool
    options: dict[str, Any]
    pack: Packers
    # What makes the leaves of the zero state; None if the cell makes its state in a way of its own.
    zeros: list[Callable[[], Tensor]] | None
    make_state: Callable[[Any], Any]
    checks_values: bool
    direct: BoundCall | None
    # That of the outputs.
    dtype: torch.dtype
    # A cell that has the sizes and none of the tensors, for calls with tensors that are lent.
    stand_in: RNNCell | None = None

    @classmethod
    def of(
        cls,
        cell: Any,
        tensors: Sequence[Tensor],
        result: Unrolled,
        form: BatchFormat,
        device: torch.device,
        options: tuple[Any, ...],
        *,
        given: bool,
        reverse: bool = False,
    ) -> CachedCall:
        """What there is to know once a call has run."""
        assert result.choice is not None
        dtype, parallel_iterations, swap_memory, time_major, _, all_states, checkpoint_every = options
        chosen = {
            "all_states": all_states,
            "parallel_iterations": parallel_iterations or None,
            "checkpoint_every": checkpoint_every,
            "swap_memory": swap_memory,
        }
        blocks = bool(parallel_iterations) or checkpoint_every is not None or (swap_memory and is_swapped(device))
        zeros: list[Callable[[], Tensor]] | None = None
        if not given and starts_from_zeros(cell):
            final = _pytree.flatten(result.state)
            make = shared_zeros if device.type == "cuda" else torch.zeros
            zeros = [partial(make, size=leaf.shape, dtype=leaf.dtype, device=device) for leaf in final]

        batch_size = form.batch_size

        def make_state(cell: Any) -> Any:
            with torch.device(device):
                return initial_state(cell, batch_size, dtype)

        choice = replace(result.choice, fingerprint=None)
        # A packed form holds its sequences, which are their owner's to keep.
        padded = form if isinstance(form, Padded) else None
        schedule = None if padded is None else make_schedule(padded, None, reverse=reverse, blocks=blocks)
        # Where the size is `()` the state may be anything.
        like_state = _pytree.map_leaves(lambda _: None, result.state)
        pack = Packers(_pytree.packer(cell.output_size), _pytree.packer(like_state))
        checks_values = has_own_checks(cell)
        direct = None
        if choice.executable is not None and schedule is not None and not all_states and not blocks:
            direct = BoundCall.of(choice.executable, schedule.steps, tensors)
        leading = (form.max_time, batch_size) if time_major else (batch_size, form.max_time)
        way = (padded, schedule, leading, blocks, reverse)
        of_outputs = check_output_dtype(dtype, result.state)
        return cls(choice, batch_size, *way, chosen, pack, zeros, make_state, checks_values, direct, of_outputs)

    def run(
        self, call: CacheKey, cell: Any, inputs: Tensor | PackedSequence, lengths: list[int] | None, given: Any
    ) -> Unrolled:
        """The same call on other values."""
        tensors = call.tensors
        state = self._state(cell, inputs, given)
        for module in (cell, *call.modules):
            if isinstance(module, RNNCell):
                module.begin_sequence()
        form, schedule = self._arranged(inputs, lengths)
        if self.checks_values:
            cell.check_values(schedule.rows(inputs))
        if self.choice.executable is None:
            return self._run_by_reference(cell, form, schedule, inputs, self.pack.state(state))
        if self.direct is not None and isinstance(inputs, Tensor) and all(leaf.ndim for leaf in state):
            moves = schedule.moves([inputs])
            if (moves is not None or schedule is self.schedule) and self.direct.fits(tensors, [inputs]):
                outputs, final = run_bound(
                    self.direct,
                    self.choice.executable,
                    tensors,
                    cell,
                    schedule.steps,
                    moves,
                    self.leading,
                    inputs,
                    state,
                    fresh=given is None and self.zeros is not None,
                )
                return Unrolled(self.pack.outputs(outputs), self.pack.state(final), None)
        return unroll_compiled(self.choice, tensors, cell, form, schedule, [inputs], state, self.pack, **self.options)

    def _run_by_reference(self, cell: Any, form: BatchFormat, schedule: Schedule, inputs: Any, state: Any) -> Unrolled:
        options = {name: value for name, value in self.options.items() if name != "parallel_iterations"}
        return unroll_by_reference(CheckedCell(cell, state, self.dtype), form, schedule, inputs, state, **options)

    def _arranged(self, inputs: Tensor | PackedSequence, lengths: list[int] | None) -> tuple[BatchFormat, Schedule]:
        """The form of these inputs, and which rows run at which step."""
        if isinstance(inputs, PackedSequence):
            packed = Packed(inputs)
            return packed, make_schedule(packed, packed.lengths, reverse=self.reverse, blocks=self.blocks)
        assert self.form is not None
        assert self.schedule is not None
        if lengths is None:
            return self.form, self.schedule
        schedule = make_schedule(self.form, lengths, reverse=self.reverse, blocks=self.blocks)
        return self.form, self.schedule if isinstance(schedule, Dense) else schedule

    def _state(self, cell: Any, inputs: Tensor | PackedSequence, given: Any) -> list[Tensor]:
        """The leaves of the state to start from."""
        if given is None and self.zeros is not None:
            return [make() for make in self.zeros]
        state = self.make_state(cell) if given is None else given
        leaves = _pytree.flatten(_pytree.conform(cell.state_size, state, "`initial_state`"))
        if all(isinstance(leaf, Tensor) for leaf in leaves):
            return leaves
        # A cell of its own may begin with plain numbers.
        device = inputs.data.device if isinstance(inputs, PackedSequence) else inputs.device
        return _pytree.flatten(fit_state(cell.state_size, state, self.batch_size, device, "`initial_state`"))


def can_be_known(result: Unrolled) -> bool:
    """Whether another call like the one that gave this would take the same way."""
    settled = result.choice is not None and result.choice.is_settled
    return settled and all(isinstance(leaf, Tensor) for leaf in _pytree.flatten(result.state))


class CacheKey(NamedTuple):
    """A call as far as its checks and its compilation depend on it; the tensors of the cell, the modules inside it."""

    key: Any
    tensors: Sequence[Tensor]
    modules: Sequence[nn.Module]
    device: torch.device


def cache_key(cell: Any, inputs: Any, initial_state: Any, options: tuple[Any, ...]) -> CacheKey | None:
    """The signature of a call that can be known; None for one that must go through all checks."""
    kinds = tuple(map(type, options))
    if not _PLAIN.issuperset(kinds) or not isinstance(cell, RNNCell) or "_modules" not in vars(cell):
        return None
    leaves = _known_leaves(inputs, initial_state)
    if leaves is None:
        return None
    glance = GuardCache.last(cell)
    if glance is None:
        if is_lazy_cell(cell):
            return None
        glance = GuardCache(cell)
    key, device = _key_of(glance.structure, inputs, initial_state, leaves, (options, kinds))
    return CacheKey(key, glance.fingerprint.tensors, glance.modules, device)


def functional_cache_key(
    kind: Callable[..., RNNCell], tensors: Sequence[Tensor], inputs: Any, initial_state: Any, options: tuple[Any, ...]
) -> CacheKey | None:
    """The same for a cell of ours that is nothing but the tensors it is made with: nobody needs to look at it."""
    leaves = _known_leaves(inputs, initial_state)
    if leaves is None or any(type(tensor) not in _ORDINARY or tensor.layout is not _STRIDED for tensor in tensors):
        return None
    structure = (kind, *[(tensor.shape, tensor.dtype, tensor.device, tensor.requires_grad) for tensor in tensors])
    key, device = _key_of(structure, inputs, initial_state, leaves, options)
    return CacheKey(key, tensors, (), device)


def _known_leaves(inputs: Any, initial_state: Any) -> list[Tensor] | None:
    """The tensors of a state in a call that can be known; None for other calls."""
    rows = inputs.data if type(inputs) is PackedSequence else inputs
    if type(rows) is not Tensor or rows.device.type not in ("cpu", "cuda") or rows.layout is not _STRIDED:
        return None
    leaves = [] if initial_state is None else _pytree.flatten(initial_state)
    if any(type(leaf) is not Tensor or leaf.layout is not _STRIDED for leaf in leaves) or intercepting_mode():
        return None
    return leaves


def _key_of(
    structure: Any, inputs: Any, initial_state: Any, leaves: Sequence[Tensor], options: Any
) -> tuple[Any, torch.device]:
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


def _shape_of(packed: PackedSequence) -> tuple[Any, ...]:
    """The batch and the features of packed sequences; how long they are is of no matter."""
    sizes = packed.batch_sizes
    return (PackedSequence, int(sizes[0]) if len(sizes) else 0, packed.data.shape[1:])


def lookup(cache_key: CacheKey) -> CachedCall | None:
    """The cached call of a key, or None."""
    return _CALLS.lookup(cache_key.key)


def insert(cache_key: CacheKey, known: CachedCall) -> None:
    """Cache a call."""
    _CALLS.insert(cache_key.key, known)
