"""Which backend has been asked for: `tt.backend`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

from throughtime._errors import problem

NAMES = ("auto", "reference", "aten", "cpu", "triton")

_wanted: ContextVar[str] = ContextVar("throughtime_backend", default="auto")


@contextlib.contextmanager
def backend(name: str) -> Iterator[None]:
    """Run unrolls on one backend: "reference", "aten", "cpu" or "triton"; "auto" takes the best that can.

    A backend asked for by name never falls back to another: it raises a `ValueError` with the reason. `raw_rnn` and
    `while_loop` have no backends: their bodies are called step by step.

    >>> import torch, throughtime as tt
    >>> cell, x = tt.GRUCell(4), torch.ones(1, 2, 3)
    >>> with tt.backend("reference"):
    ...     outputs, state = tt.dynamic_rnn(cell, x, dtype=torch.float32)
    >>> torch.allclose(outputs, tt.dynamic_rnn(cell, x, dtype=torch.float32)[0])
    True
    """
    if not any(name is known or (type(name) is str and name == known) for known in NAMES):
        what = "`name` is no backend"
        fix = 'Leave the choice to the engine with "auto"; the device is that of the inputs, as in `inputs.cuda()`.'
        raise ValueError(problem(what, got=repr(name), expected=", ".join(map(repr, NAMES)), fix=fix))
    token = _wanted.set(name)
    try:
        yield
    finally:
        _wanted.reset(token)


def wanted_backend() -> str:
    """The backend that has been asked for."""
    return _wanted.get()
