"""What every backend makes of a loop, and what the rest of the engine may ask of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar

import torch
from torch import Tensor

from throughtime.backends.torch_codegen import Env
from throughtime.compiler import Value
from throughtime.layout.previous_step import LaggedStreams
from throughtime.layout.step_layout import StepLayout


class LoopBackend(ABC):
    """A loop as a backend runs it. `takes` is what it reads besides what it carries."""

    # Whether products beside the loop are made by machine code like its own, and gradients may lie where it has read.
    by_kernels: ClassVar[bool] = False
    # Whether it reads the state that it begins with where that lies, in the order of the batch; others find it in what
    # they change in place, in the order of the loop.
    takes_starts: ClassVar[bool] = False
    on_gpu: bool = False
    takes: list[Value]

    @property
    @abstractmethod
    def source(self) -> str:
        """What runs, for people."""

    def unsupported_reason(self, device: torch.device, *, must: bool) -> str | None:
        """Why it should not run on a device, or None. What `must` run may be slow, but has to fit."""
        return None

    def seconds(self, rows: int, device: torch.device) -> float | None:
        """What a step of so many rows should take on a GPU; None if it cannot be told."""
        return None

    def held(self) -> AbstractContextManager[None]:
        """Within this, what is made of the cell's tensors may be made once for many runs."""
        return nullcontext()

    def overwritten(self, free: Iterable[Value], visible: set[Value]) -> list[Value | None]:
        """For each value that is stored, one of the `free` streams whose place it can take.

        What is `visible` outside needs memory of its own. Empty if none can.
        """
        return []

    @abstractmethod
    def run(
        self,
        env: Env,
        lagged: LaggedStreams,
        carried: Sequence[Tensor],
        stored: Sequence[Tensor],
        steps: StepLayout,
        generators: Any,
        starts: Sequence[Tensor] | None = None,
    ) -> None:
        """Walk through all steps; `carried` [B, ...] and `stored` [N, ...] change in place.

        One that `takes_starts` begins with `starts` if they are given, and then nobody reads what `carried` was;
        nobody gives any to others.
        """
