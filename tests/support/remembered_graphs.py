"""A recorder of steps for the CPU, in the place of CUDA graphs: it remembers what to call, and replays by calling."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import ClassVar

import torch

from descriptors import BY_NAME
from throughtime.backends.aten.graph_policy import GraphPolicy
from user_cells import USER_CELLS

MANY = [*BY_NAME.values(), *(listed.descriptor for listed in USER_CELLS if listed.backend != "reference")]
REFUSED = {"scalar state", "no state"}
CELLS = [descriptor for descriptor in MANY if descriptor.name not in REFUSED]


class Remembering:
    """Records by remembering, replays by calling."""

    made: ClassVar[list[Remembering]] = []

    def __init__(self, device: torch.device) -> None:
        self.failure: str | None = None
        self.replays = self.turns = 0
        self._busy = threading.Lock()
        self.made.append(self)

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        assert self._busy.acquire(blocking=False), "two runs in the same memory"
        self.turns += 1
        yield
        self._busy.release()

    def settle(self) -> None:
        assert self._busy.locked()

    def record(self, walk: Callable[[], None]) -> Callable[[], None]:
        def replay() -> None:
            self.replays += 1
            walk()

        return replay


REMEMBERED = GraphPolicy(long=3, short=2, recorders={"cpu": Remembering})
"""Blocks of 3 and 2 steps, so that short sequences have many."""
