"""Random numbers that a trace would freeze: drawn outside of torch, or seeded in every step. Both are refused."""

from __future__ import annotations

import contextlib
import random
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch

from throughtime.compiler.errors import Uncompilable
from throughtime.compiler.guards.fingerprint import is_generator

_SEEDING = frozenset({"manual_seed", "seed", "set_state", "graphsafe_set_state"})


@contextlib.contextmanager
def foreign_randomness(generators: Sequence[object]) -> Iterator[None]:
    """Refuse a step that draws random numbers of Python or numpy: a trace would freeze them."""
    sources = [random, *(thing for thing in generators if is_generator(thing))]
    if "numpy.random" in sys.modules:
        sources.append(np.random)
    before = [_random_state(source) for source in sources]
    try:
        yield
        if str([_random_state(source) for source in sources]) != str(before):
            raise Uncompilable("it draws random numbers outside of torch")
    finally:
        for source, state in zip(sources, before, strict=True):
            _set_random_state(source, state)


@contextlib.contextmanager
def unseeded() -> Iterator[None]:
    """Refuse a step that seeds: it wants the same random numbers at every step, but all steps are drawn at once."""
    seeded: list[str] = []

    def watch(_frame: Any, event: str, called: Any) -> None:
        if event == "c_call" and called.__name__ in _SEEDING and isinstance(called.__self__, torch.Generator):
            seeded.append(called.__name__)

    # A thread has one profiler; an active one is left alone. Other threads are not watched.
    alone = sys.getprofile() is None
    if alone:
        sys.setprofile(watch)
    try:
        yield
    finally:
        if alone:
            sys.setprofile(None)
    if seeded:
        raise Uncompilable("it seeds torch's random numbers")


def _random_state(source: Any) -> Any:
    """The state of a generator: of Python, or of the module, a legacy or a new generator of numpy."""
    if hasattr(source, "getstate"):
        return source.getstate()
    if hasattr(source, "get_state"):
        return source.get_state(legacy=False)
    return getattr(source, "bit_generator", source).state


def _set_random_state(source: Any, state: Any) -> None:
    if hasattr(source, "setstate"):
        source.setstate(state)
    elif hasattr(source, "set_state"):
        source.set_state(state)
    else:
        getattr(source, "bit_generator", source).state = state
