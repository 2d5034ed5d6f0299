"""Loops on a GPU as CUDA graphs: a block of steps is recorded once, and then run again with a single call.

A step from Python is a launch for each of its operations, and on a GPU the launches take longer than the work. A
block runs as it is the first time it is wanted, is recorded the second time, and is replayed from then on: a call that
comes once costs no recording. What depends on sizes is in the kind of a block, and there are few kinds; tensors may
lie anywhere and change in any way, because everything is copied into the memory of the block.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from throughtime._lru import LruCache
from throughtime._torch_internals import clear_cublas_workspaces, end_allocate_to_pool
from throughtime.backends.aten import cost_model as stepwise
from throughtime.backends.aten.chunk_buffers import (
    ChunkBuffers,
    ChunkShape,
    PlainChunk,
    StepCode,
    Tables,
    TimeGrid,
)
from throughtime.backends.aten.fused_chunk import AddressTable, FusedChunk, FusedCode
from throughtime.backends.aten.graph_policy import graph_policy
from throughtime.backends.aten.step_variants import StepVariant, is_available
from throughtime.backends.torch_codegen import Env
from throughtime.compiler import Loop, Value
from throughtime.compiler.passes.merge_matmuls import MergedMatmul
from throughtime.layout.previous_step import LaggedStreams
from throughtime.layout.step_layout import StepLayout

FEWEST_STEPS = 3
"""Below this, steps one by one are as fast."""

_capturing = threading.Lock()
"""torch records one graph at a time in a process."""


def unsupported_reason(loop: Loop) -> str | None:
    """Why a loop cannot be recorded, or None."""
    if any(node.is_random for node in loop.nodes):
        return "its loop draws random numbers, and a CUDA graph would draw the same ones again"
    return None


class Recorder(Protocol):
    """Records what blocks do, on one device. `failure` says why that was once impossible."""

    failure: str | None

    def turn(self) -> contextlib.AbstractContextManager[None]:
        """Within it, nobody else uses the memory of the blocks."""

    def settle(self) -> None:
        """Wait until nobody uses it: some of it will be given away."""

    def record(self, walk: Callable[[], None]) -> Callable[[], None]:
        """What does the same as `walk` from now on."""


class GraphRecorder:
    """Records CUDA graphs, which share their memory: they never run at the same time."""

    def __init__(self, device: torch.device) -> None:
        self.failure: str | None = None
        self._device = device
        self._pool = torch.cuda.graph_pool_handle()
        self._stream = torch.cuda.Stream(device)
        self._done = torch.cuda.Event()

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """On the current stream, after whatever was done here on another."""
        with torch.cuda.device(self._device):
            stream = torch.cuda.current_stream()
            stream.wait_event(self._done)
            try:
                yield
            finally:
                self._done.record(stream)

    def settle(self) -> None:
        """Wait for the last turn."""
        self._done.synchronize()

    def record(self, walk: Callable[[], None]) -> Callable[[], None]:
        """The graph of `walk`; where it cannot be recorded, `walk` itself, with a warning that says why."""
        try:
            return self._capture(walk).replay
        except torch.OutOfMemoryError:
            return walk
        except RuntimeError as error:
            self.failure = f"a CUDA graph of its loop cannot be recorded: {str(error).splitlines()[0]}"
            warnings.warn(f"throughtime runs a loop step by step: {self.failure}", RuntimeWarning, stacklevel=2)
            return walk

    def _capture(self, walk: Callable[[], None]) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        with _capturing, torch.cuda.stream(self._stream), _own_workspaces():
            # Others may go on allocating memory in their threads.
            graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
            try:
                walk()
            except BaseException:
                self._abandon(graph)
                raise
            graph.capture_end()
        return graph

    def _abandon(self, graph: torch.cuda.CUDAGraph) -> None:
        """End a recording that has failed, so that memory and random numbers are again what they were."""
        try:
            graph.capture_end()
        except RuntimeError:
            # torch gives up half way where the driver does.
            with contextlib.suppress(RuntimeError):
                end_allocate_to_pool(self._device.index, self._pool)
        graph.reset()
        self._pool = torch.cuda.graph_pool_handle()
        # Random numbers would still be drawn as if for a graph: a recording that does not fail ends that.
        after = torch.cuda.CUDAGraph()
        after.capture_begin(pool=self._pool, capture_error_mode="thread_local")
        torch.zeros(1, device=self._device)
        after.capture_end()
        after.reset()
        self._pool = torch.cuda.graph_pool_handle()


@contextlib.contextmanager
def _own_workspaces() -> Iterator[None]:
    """What is recorded within it has memory of its own for products: that of a stream may be in use when it runs."""
    clear_cublas_workspaces()
    try:
        yield
    finally:
        clear_cublas_workspaces()


def _recorder_of(kind: str) -> Callable[[torch.device], Recorder] | None:
    """What captures and replays on a type of device."""
    return GraphRecorder if kind == "cuda" else graph_policy.value.recorders.get(kind)


class _CapturedGraph:
    """A block, and what is run instead of its walk once that is recorded."""

    def __init__(self, block: ChunkBuffers) -> None:
        self.block = block
        self._has_run = False
        self._replay: Callable[[], None] | None = None

    def run(self, recorder: Recorder) -> None:
        """As it is, then recorded, then replayed."""
        if self._replay is not None:
            self._replay()
            return
        # Casts are a part of the program.
        with torch.autocast(self.block.device.type, enabled=False):
            if not self._has_run or recorder.failure is not None:
                self._has_run = True
                self.block.walk()
                return
            self._replay = recorder.record(self.block.walk)
            self._replay()


class _OnDevice:
    """The blocks of a loop on one device, least recently used first, and the constants that all of them read."""

    def __init__(self, code: StepVariant, device: torch.device) -> None:
        self.lock = threading.Lock()
        make_recorder = _recorder_of(device.type)
        assert make_recorder is not None
        self.recorder = make_recorder(device)
        self._code = code
        self._device = device
        self._constants: Env = {}
        # A graph may still run when it is evicted.
        self._blocks: LruCache[Any, _CapturedGraph] = LruCache(
            graph_policy.value.most_chunks, lambda *_: self.recorder.settle()
        )

    def load(self, codes: Iterable[FusedCode | StepCode], env: Env) -> None:
        """Copy the constants of steps to where their blocks read them."""
        found = {value: value in code.matrices for code in codes for value in code.constants}
        for value, is_free in found.items():
            self._load(value, env, is_free=is_free)

    def _load(self, value: Value, env: Env, *, is_free: bool) -> None:
        parts, dim = self._code.joined.get(value, MergedMatmul((value,), 0))
        tensors = [env[part] for part in parts]
        if value not in self._constants:
            with torch.inference_mode(False):
                self._constants[value] = _room(value, tensors, self._device, is_free=is_free)
        room = self._constants[value]
        pieces = room.split([tensor.shape[dim] for tensor in tensors], dim) if len(tensors) > 1 else [room]
        for piece, tensor in zip(pieces, tensors, strict=True):
            piece.copy_(tensor, non_blocking=True)

    def find(self, kind: ChunkShape, lagged: set[Value], carried: Sequence[Tensor]) -> _CapturedGraph:
        """The block of a kind, with torch as it is set now."""
        key = (
            kind,
            torch.get_float32_matmul_precision(),
            torch.backends.cudnn.allow_tf32,
            torch.are_deterministic_algorithms_enabled(),
        )
        return self._blocks.lookup_or_insert(key, lambda: _CapturedGraph(self._make(kind, lagged, carried)))

    def _make(self, kind: ChunkShape, lagged: set[Value], carried: Sequence[Tensor]) -> ChunkBuffers:
        def make() -> ChunkBuffers:
            code = self._code.find(self._device, masked=kind.masked)
            if isinstance(code, FusedCode):
                return FusedChunk(code, kind, lagged, self._constants, carried)
            return PlainChunk(code, kind, lagged, self._constants, carried)

        # Memory that stays must not be a part of somebody's inference mode.
        with torch.inference_mode(False):
            try:
                return make()
            except torch.OutOfMemoryError:
                # The other blocks may be what fills the memory.
                self.recorder.settle()
                self._blocks.clear()
                return make()


def _room(value: Value, tensors: list[Tensor], device: torch.device, *, is_free: bool) -> Tensor:
    """Memory for a constant, in an order that `is_free` or that of the tensors.

    A wide matrix of float32 has its columns side by side: the matrix units of a GPU want TF32 that way, and a product
    with 8192 columns takes 22 µs instead of 25, one with 6144 19 instead of 30. Other dtypes do not care.
    """
    sizes = value.row_shape
    if is_free and value.dtype == torch.float32 and sizes[1] >= sizes[0]:
        return torch.empty(sizes[::-1], dtype=value.dtype, device=device).t()
    if len(tensors) == 1:
        return torch.empty_like(tensors[0], device=device)
    return torch.empty(sizes, dtype=value.dtype, device=device)


class GraphedLoop:
    """A loop in blocks of steps that are recorded and replayed."""

    def __init__(self, code: StepCode) -> None:
        self._loop = code.loop
        self._code = StepVariant(code)
        self._lock = threading.Lock()
        self._devices: dict[torch.device, _OnDevice] = {}
        self.refusal = unsupported_reason(code.loop)

    def seconds(self, rows: int, device: torch.device) -> float | None:
        """What a step of so many rows should take with fused kernels; None where there are none."""
        return stepwise.seconds(self._code.fused(masked=False).step, rows) if is_available(device) else None

    @property
    def source(self) -> str:
        """A step with fused kernels, for people."""
        return self._code.fused(masked=False).source

    def longest(self, steps: StepLayout, device: torch.device) -> int:
        """The steps of the longest block for a walk; 0 if it should go step by step."""
        if _recorder_of(device.type) is None or self.refusal is not None or len(steps.counts) < FEWEST_STEPS:
            return 0
        if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
            # Somebody records a graph of their own: the steps become a part of it.
            return 0
        step_bytes = steps.counts[0] * self._code.row_bytes(device)
        policy = graph_policy.value
        return next((size for size in (policy.long, policy.short) if size * step_bytes <= policy.most_bytes), 0)

    def run(
        self,
        env: Env,
        lagged: LaggedStreams,
        carried: Sequence[Tensor],
        stored: Sequence[Tensor],
        steps: StepLayout,
        longest: int,
    ) -> None:
        """Walk through all steps; `carried` [B, ...] and `stored` [N, ...] change in place."""
        device = carried[0].device
        here = self._on(device)
        grid = TimeGrid(steps, reverse=self._loop.reverse)
        pieces = list(grid.pieces(longest))
        streams = dict(zip(self._loop.stored, stored, strict=True))
        codes = [self._code.find(device, masked=masked) for masked in {piece.kind.masked for piece in pieces}]
        fused = [code for code in codes if isinstance(code, FusedCode)]
        with here.lock, here.recorder.turn():
            places = AddressTable(fused, env, lagged, streams, steps) if fused else None
            more = None if places is None else functools.partial(places.of, grid)
            tables = Tables(grid, pieces, lagged=bool(lagged), device=device, more=more)
            here.load(codes, env)
            last: _CapturedGraph | None = None
            for piece in pieces:
                if last is None or last.block.kind != piece.kind:
                    if last is not None:
                        last.block.leave(carried)
                    last = here.find(piece.kind, set(lagged), carried)
                    last.block.enter(carried)
                last.block.fill(grid, piece, tables, env, lagged)
                last.run(here.recorder)
                last.block.drain(grid, piece, tables, streams)
            if last is not None:
                last.block.leave(carried)
            if places is not None:
                places.done()
        self.refusal = self.refusal or here.recorder.failure

    def _on(self, device: torch.device) -> _OnDevice:
        with self._lock:
            if device not in self._devices:
                self._devices[device] = _OnDevice(self._code, device)
            return self._devices[device]
