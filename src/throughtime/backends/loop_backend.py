"""The interface between a backend and the runtime: a compiled loop, and a call that is bound to its kernel."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol

import torch
from torch import Tensor

from throughtime.backends.step_buffers import StepBuffers
from throughtime.backends.torch_codegen import Env, Generators, SectionFunction
from throughtime.compiler import Adjoint, Program, Value
from throughtime.layout.pack import Packing
from throughtime.layout.previous_step import LaggedStreams
from throughtime.layout.step_layout import StepLayout

Gradients = tuple[list[Tensor | None], list[Tensor | None]]
"""Gradients of the cell's tensors and of the inputs, and of the initial state; None where none is required."""


class Cotangents(NamedTuple):
    """The arguments of a backward pass besides the environment, on packed rows.

    `initial` is the initial state; `outputs` and `state` are the gradients of the results, None where there is none.
    `required` says for each of the cell's tensors and then of the inputs whether its gradient is required. `donate`,
    called just before the loop writes, says whether the loop may overwrite saved values.
    """

    initial: Sequence[Tensor]
    outputs: Sequence[Tensor | None]
    state: Sequence[Tensor | None]
    required: tuple[bool, ...]
    donate: Callable[[], bool] | None = None


class BoundBackward(ABC):
    """A backward pass whose kernel is called directly, for one set of required gradients."""

    @abstractmethod
    def fits(self, tensors: Sequence[Tensor]) -> bool:
        """Whether the cell's tensors have the strides that the pass was bound to."""

    @abstractmethod
    def run(
        self,
        tensors: Sequence[Tensor],
        rows: Sequence[Tensor],
        saved: Sequence[Tensor],
        cotangents: Cotangents,
        steps: StepLayout,
    ) -> Gradients:
        """The gradients, as the general backward pass returns them."""


class BoundCall(ABC):
    """A forward pass that consists of one kernel call, with the addresses of everything it reads known in advance."""

    @abstractmethod
    def fits(self, tensors: Sequence[Tensor], inputs: Sequence[Tensor]) -> bool:
        """Whether all tensors have the strides that the call was bound to."""

    @abstractmethod
    def launch(
        self,
        tensors: Sequence[Tensor],
        inputs: Sequence[Tensor],
        carried: Sequence[Tensor],
        steps: StepLayout,
        leading: tuple[int, int] | None,
    ) -> tuple[list[Tensor], list[Tensor]]:
        """The outputs and the values saved for the backward pass; `carried` becomes the final state.

        Both have rows [N, ...], except that outputs begin with the axes `leading` if these are given.
        """

    @abstractmethod
    def backward(self, tensors: Sequence[Tensor], required: tuple[bool, ...]) -> BoundBackward | None:
        """The bound backward pass for the required gradients; None if the general one must run."""

    def infer(
        self,
        tensors: Sequence[Tensor],
        inputs: list[Tensor],
        state: list[Tensor],
        steps: StepLayout,
        packing: Packing,
        zero_start: bool,
    ) -> tuple[list[Tensor], list[Tensor]]:
        """Outputs and final state, without gradients; with `zero_start` the state is zeros that may be overwritten."""
        rows, carried = inputs, state
        if packing.copies:
            rows, ordered = packing.pack(inputs, () if zero_start else state)
            carried = state if zero_start else ordered
        if not zero_start:
            carried = [leaf.clone(memory_format=torch.contiguous_format) for leaf in carried]
        outputs, _ = self.launch(tensors, rows, carried, steps, packing.leading)
        return packing.unpack(outputs, carried) if packing.copies else (outputs, carried)


class BackwardPass(Protocol):
    """What a backend reads of the backward pass of a program to bind it; `runtime.backward.Backward` has it."""

    program: Program
    adjoint: Adjoint
    loop: LoopBackend
    kept: list[Value]
    lagged: list[tuple[int, Value, Value]]
    overwritten: list[Value | None]
    streams: StepBuffers

    @property
    def works_before(self) -> bool:
        """Whether torch computes something before the loop."""
        ...

    def run_invariant(self, env: Env) -> None:
        """Add the values that depend on the cell's tensors alone."""

    def after_loop(self, required: tuple[bool, ...]) -> tuple[SectionFunction, list[Value | None]]:
        """The section after the loop, and the required gradients of tensors and inputs."""
        ...

    def no_cotangent(self, value: Value, rows: int, device: torch.device) -> Tensor:
        """Zeros for a missing gradient."""
        ...


@dataclass(frozen=True)
class ForwardPass:
    """What a backend reads of the forward pass of a program to bind it: nothing but the loop has nodes.

    `kept` is saved for `backward`; `invariant_values` computes what depends on the cell's tensors alone.
    """

    program: Program
    kept: list[Value]
    invariant_values: Callable[[], Env]
    backward: BackwardPass | None


class LoopBackend(ABC):
    """A loop compiled by a backend. `takes` are the values that it reads, besides the carried ones."""

    # Whether matmuls outside the loop use native kernels too, and gradients may overwrite what the loop has read.
    by_kernels: ClassVar[bool] = False
    # Whether it reads its initial state where it is stored, in the order of the batch. Other loops update one buffer in
    # place, in the order of the loop.
    takes_starts: ClassVar[bool] = False
    on_gpu: bool = False
    takes: list[Value]

    @property
    @abstractmethod
    def source(self) -> str:
        """The generated code, human-readable."""

    def unsupported_reason(self, device: torch.device, *, must: bool) -> str | None:
        """Why it should not run on a device, or None. With `must` only what makes it impossible counts."""
        return None

    def seconds(self, rows: int, device: torch.device) -> float | None:
        """The estimated time of a step of `rows` rows on a GPU; None if there is no estimate."""
        return None

    def held(self) -> AbstractContextManager[None]:
        """A context in which copies of the cell's tensors may be cached across runs."""
        return nullcontext()

    def overwritten(self, free: Iterable[Value], visible: set[Value]) -> list[Value | None]:
        """For each stored value one of the `free` values whose buffer it can overwrite, or None; empty if none can.

        Values that are `visible` to the caller need memory of their own.
        """
        return []

    def bind(self, forward: ForwardPass, steps: StepLayout, tensors: Sequence[Tensor]) -> BoundCall | None:
        """A direct call of the kernel for tensors with these strides, in place of `run`; None if there is none."""
        return None

    def bind_backward(
        self, backward: BackwardPass, tensors: Sequence[Tensor], required: tuple[bool, ...]
    ) -> BoundBackward | None:
        """The same for the backward pass that this is the loop of."""
        return None

    @abstractmethod
    def run(
        self,
        env: Env,
        lagged: LaggedStreams,
        carried: Sequence[Tensor],
        stored: Sequence[Tensor],
        steps: StepLayout,
        generators: Generators | None,
        starts: Sequence[Tensor] | None = None,
    ) -> None:
        """Run all steps; `carried` [B, ...] and `stored` [N, ...] change in place.

        If `takes_starts`, the loop reads its initial state from `starts`, and `carried` is write-only; otherwise
        `starts` is None.
        """
