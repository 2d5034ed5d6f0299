"""Calls that are known: one like it has passed every check and been compiled, so it can run at once.

A small network is called again and again with tensors of the same shapes. What the checks at the door found out then
holds as long as nothing that they looked at has changed: the structure of the cell, the shapes, dtypes and devices.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from throughtime import _nest
from throughtime.backends._direct import Direct
from throughtime.backends._select import Choice, compiling_stops, wanted_backend
from throughtime.backends._swap import is_swapped
from throughtime.cells._base import RNNCell, has_own_checks, initial_state, is_lazy_cell
from throughtime.compiler import Glance
from throughtime.unroll._engine import Packers, Unrolled, unroll_compiled
from throughtime.unroll._form import Form
from throughtime.unroll._schedule import Dense, Schedule, make_schedule

_KNOWN: OrderedDict[Any, Known] = OrderedDict()
_SIZE = 512
_PLAIN = frozenset({type(None), bool, int, str, torch.dtype})


@dataclass(frozen=True)
class Known:
    """What the checks found out about a call."""

    choice: Choice
    form: Form
    schedule: Schedule
    blocks: bool
    options: dict[str, Any]
    pack: Packers
    # The leaves of the zero state, with the batch; None if the cell makes its state in a way of its own.
    zeros: list[dict[str, Any]] | None
    make_state: Callable[[Any], Any]
    checks_values: bool
    direct: Direct | None

    @classmethod
    def of(
        cls,
        cell: Any,
        tensors: Sequence[Tensor],
        result: Unrolled,
        form: Form,
        device: torch.device,
        options: tuple[Any, ...],
        *,
        given: bool,
    ) -> Known:
        """What there is to know once a call has run."""
        assert result.choice is not None
        dtype, parallel_iterations, swap_memory, _, _, all_states, checkpoint_every = options
        chosen = {
            "all_states": all_states,
            "parallel_iterations": parallel_iterations or None,
            "checkpoint_every": checkpoint_every,
            "swap_memory": swap_memory,
        }
        blocks = bool(parallel_iterations) or checkpoint_every is not None or (swap_memory and is_swapped(device))
        usual = _is_usual(cell, "zero_state") and _is_usual(cell, "get_initial_state")
        zeros = None
        if usual and not given:
            final = _nest.flatten(result.state)
            zeros = [{"size": leaf.shape, "dtype": leaf.dtype, "device": device} for leaf in final]

        def make_state(cell: Any) -> Any:
            with torch.device(device):
                return initial_state(cell, form.batch_size, dtype)

        choice = replace(result.choice, anatomy=None)
        schedule = make_schedule(form, None, blocks=blocks)
        # Where the size is `()` the state may be anything.
        like_state = _nest.map_leaves(lambda _: None, result.state)
        pack = Packers(_nest.packer(cell.output_size), _nest.packer(like_state))
        checks_values = has_own_checks(cell)
        direct = None
        if choice.executable is not None and not all_states and not blocks:
            direct = Direct.of(choice.executable, schedule.steps, tensors)
        return cls(choice, form, schedule, blocks, chosen, pack, zeros, make_state, checks_values, direct)

    def run(self, glance: Glance, cell: Any, inputs: Tensor, lengths: list[int] | None, given: Any) -> Unrolled:
        """The same call on other values."""
        tensors = glance.anatomy.tensors
        state = self._state(cell, given)
        for module in (cell, *glance.modules):
            if isinstance(module, RNNCell):
                module.begin_sequence()
        schedule = self.schedule if lengths is None else make_schedule(self.form, lengths, blocks=self.blocks)
        if isinstance(schedule, Dense):
            schedule = self.schedule
        if self.checks_values:
            cell.check_values(schedule.rows(inputs))
        if self.direct is not None and all(leaf.ndim for leaf in state):
            fresh = given is None and self.zeros is not None
            result = self._run_directly(tensors, inputs, state, schedule, fresh=fresh)
            if result is not None:
                return result
        return unroll_compiled(
            self.choice, tensors, cell, self.form, schedule, [inputs], state, self.pack, **self.options
        )

    def _run_directly(
        self, tensors: Sequence[Tensor], inputs: Tensor, state: list[Tensor], schedule: Schedule, *, fresh: bool
    ) -> Unrolled | None:
        """The kernel alone. It changes the state in place: one that is not `fresh` is copied."""
        assert self.direct is not None
        moves = schedule.moves([inputs])
        if moves is None and schedule is not self.schedule:
            return None
        if not fresh:
            order = state if moves is None else map(moves.order.sort, state)
            state = [leaf.clone(memory_format=torch.contiguous_format) for leaf in order]
        rows = inputs if moves is None else moves.pack(self.form.rows(inputs))
        outputs = self.direct.run(tensors, [rows], state, schedule.steps)
        if outputs is None:
            return None
        if moves is not None:
            outputs, state = [*map(moves.unpack, outputs)], [*map(moves.order.unsort, state)]
        return Unrolled(self.pack.outputs([*map(self.form.restore, outputs)]), self.pack.state(state), None)

    def _state(self, cell: Any, given: Any) -> list[Tensor]:
        """The leaves of the state to start from."""
        if given is None and self.zeros is not None:
            return [torch.zeros(**leaf) for leaf in self.zeros]
        state = self.make_state(cell) if given is None else given
        return _nest.flatten(_nest.conform(cell.state_size, state, "`initial_state`"))


def _is_usual(cell: Any, method: str) -> bool:
    """Whether a cell has this method from `RNNCell`: neither its class nor the cell itself has another."""
    return getattr(type(cell), method) is getattr(RNNCell, method) and method not in vars(cell)


class Signature(NamedTuple):
    """A call as far as its checks and its compilation depend on it, and the cell as it is now."""

    key: Any
    glance: Glance


def signature(cell: Any, inputs: Any, initial_state: Any, options: tuple[Any, ...]) -> Signature | None:
    """The signature of a call that can be known; None for one that must go through all checks."""
    if type(inputs) is not Tensor or inputs.device.type not in ("cpu", "cuda") or inputs.is_nested:
        return None
    kinds = tuple(map(type, options))
    if not _PLAIN.issuperset(kinds) or not isinstance(cell, RNNCell) or "_modules" not in vars(cell):
        return None
    leaves = [] if initial_state is None else _nest.flatten(initial_state)
    if any(type(leaf) is not Tensor for leaf in leaves) or compiling_stops():
        return None
    glance = Glance.last(cell)
    if glance is None:
        if is_lazy_cell(cell):
            return None
        glance = Glance(cell)
    kind = inputs.device.type
    key = (
        glance.structure,
        tuple([(tensor.shape, tensor.dtype, tensor.device, tensor.requires_grad) for tensor in (inputs, *leaves)]),
        type(initial_state),
        options,
        kinds,
        wanted_backend(),
        torch.is_grad_enabled(),
        torch.is_autocast_enabled(kind) and torch.get_autocast_dtype(kind),
        torch.get_default_dtype(),
    )
    return Signature(key, glance)


def recall(signature: Signature) -> Known | None:
    """What is known of such a call."""
    return _KNOWN.get(signature.key)


def remember(signature: Signature, known: Known) -> None:
    """Keep what was found out; the oldest is forgotten when there is too much."""
    _KNOWN[signature.key] = known
    while len(_KNOWN) > _SIZE:
        _KNOWN.popitem(last=False)
