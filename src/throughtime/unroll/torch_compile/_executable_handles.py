"""Tickets: which program a forward pass has run, for a backward pass that gets nothing but tensors from it.

A compiled graph holds a cell's number, and the cell may change, or go, between the two passes: gradients are those of
the step as it was.
"""

from __future__ import annotations

import itertools
import threading
from collections import OrderedDict
from collections.abc import Sequence

import torch
from torch import Tensor

from throughtime._errors import problem
from throughtime._fork_safety import after_fork
from throughtime.runtime.forward import Executable

_MOST = 1024
_numbers = itertools.count(1)
_known: OrderedDict[int, tuple[Executable, tuple[int, ...]]] = OrderedDict()
_given: dict[tuple[int, tuple[int, ...]], int] = {}
_lock = threading.Lock()


@after_fork
def _renew() -> None:
    global _lock  # noqa: PLW0603
    _lock = threading.Lock()


def handle_of(executable: Executable, places: Sequence[int]) -> Tensor:
    """A number for what runs, and for which of an operator's tensors are its own."""
    key = (id(executable), tuple(places))
    with _lock:
        number = _given.setdefault(key, 0) or next(_numbers)
        _given[key] = number
        _known[number] = (executable, key[1])
        _known.move_to_end(number)
        while len(_known) > _MOST:
            _, (oldest, its_places) = _known.popitem(last=False)
            del _given[id(oldest), its_places]
    return torch.tensor(number, device="cpu")


def resolve(ticket: Tensor) -> tuple[Executable, tuple[int, ...]]:
    """What the ticket was given for."""
    found = _known.get(int(ticket))
    if found is None:
        what, fix = "what the forward pass has run is forgotten", "Run backwards sooner after it."
        expected = f"one of the last {_MOST} programs"
        raise RuntimeError(problem(what, got=f"number {int(ticket)}", expected=expected, fix=fix))
    return found
