"""A loop program as a kernel that is ready to be launched."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from throughtime.backends.triton.barrier_stages import Staged, stage
from throughtime.backends.triton.codegen_kernel import COUNTER_STRIDE, SLOTS, Source, emit
from throughtime.backends.triton.codegen_matmul import stage_groups
from throughtime.backends.triton.codegen_memory import MemoryCodegen
from throughtime.backends.triton.launch import Launcher, SpillsError, TooLargeError, Workspace, WorkspacePool
from throughtime.backends.triton.matmul_groups import pack
from throughtime.backends.triton.row_segments import cut
from throughtime.backends.triton.target import EXACT, gpu_target, launch_knobs
from throughtime.backends.triton.tiling import (
    GpuSpec,
    NoTilingError,
    StepCost,
    Tiling,
    expected_seconds,
    seconds,
)
from throughtime.compiler.ir.loop_ir import LoopProgram
from throughtime.layout.step_layout import StepLayout, sent_once

TYPICAL = GpuSpec(132, 227 * 2**10)
"""The card that `source` is written for before any other is known."""
TYPICAL_BATCH = 64
MOST_ATTEMPTS = 3
"""Geometries that are compiled to find one that does not spill; each takes seconds."""
MOST_CHOICES = 256
"""Geometries that are remembered, each for a batch and a device."""
CPU = torch.device("cpu")


class _Grid(NamedTuple):
    """How a batch is launched: its rows, filled up to whole tiles; what blocks exchange; first tiles and blocks."""

    rows: int
    exchange: Workspace
    launches: list[tuple[int, int]]


class _Compiled:
    """A kernel of one geometry."""

    def __init__(self, source: Source, launch: Launcher, shape: Tiling) -> None:
        self.source, self.launch, self.rooms = source, launch, WorkspacePool()
        self._shape = shape
        self._grids: dict[tuple[int, int], _Grid] = {}

    def grid(self, batch: int, processors: int) -> _Grid:
        """The launches for a batch."""
        shape, tiles = self._shape, -(-batch // self._shape.rows)
        found = self._grids.get((tiles, processors))
        if found is None:
            together = max(1, processors // shape.blocks)
            launches = [(tile, min(together, tiles - tile) * shape.blocks) for tile in range(0, tiles, together)]
            exchange = Workspace(_exchanged(self.source, shape, tiles))
            found = self._grids[tiles, processors] = _Grid(tiles * shape.rows, exchange, launches)
        return found


class LoopKernel:
    """The kernels of one loop program, one for each geometry that was asked for. `source` is the latest, for people."""

    def __init__(self, program: LoopProgram) -> None:
        self.program = program
        self._staged = stage(cut(program))
        self._loads = {exact: _load_of(self._staged, exact) for exact in (False, True)}
        self._compiled: dict[Tiling, _Compiled] = {}
        # What was found out about geometries: those that do not fit a card, those that are slow, the best that is left.
        self._too_large: set[tuple[torch.device, Tiling]] = set()
        self._spilled: set[Tiling] = set()
        self._accept_spills = False
        self._chosen: dict[tuple[int, torch.device, str, bool], Tiling] = {}
        self._unfit: dict[tuple[torch.device, str], str | None] = {}
        # Packed matrices by geometry, of a thread that walks in blocks.
        self._held = threading.local()
        self._latest: Tiling | None = None

    @property
    def source(self) -> str:
        """The kernel, with a header that says how it is laid out."""
        shape = self._latest or gpu_target.value.choose(self._loads[_is_exact()], TYPICAL_BATCH, TYPICAL)
        return _header(self._staged, shape) + emit(self._staged, shape).text

    def unfit(self, device: torch.device) -> str | None:
        """Why no geometry suits a device, as far as is known, or None."""
        key = (device, gpu_target.value.precision())
        if key not in self._unfit:
            self._unfit[key] = None
            try:
                shape = self.geometry(TYPICAL_BATCH, device)
            except NoTilingError as reason:
                self._unfit[key] = str(reason)
            else:
                self._latest = self._latest or shape
        return self._unfit[key]

    def geometry(self, batch: int, device: torch.device, *, ragged: bool = False) -> Tiling:
        """The geometry for a batch on a device, of those that have not been found too large for it, or too slow."""
        target = gpu_target.value
        key = (batch, device, target.precision(), ragged)
        found = self._chosen.get(key)
        if found is None:
            load, card = self._loads[key[2] == EXACT], target.card_of(device)
            large = frozenset(shape for where, shape in self._too_large if where == device)
            try:
                found = target.choose(load, batch, card, large | self._spilled, ragged=ragged)
            except NoTilingError:
                if not self._spilled:
                    raise
                # Better slow than not at all.
                self._spilled.clear()
                self._accept_spills = True
                found = target.choose(load, batch, card, large, ragged=ragged)
            if len(self._chosen) > MOST_CHOICES:
                self._chosen.clear()
            self._chosen[key] = found
        return found

    def seconds(self, batch: int, device: torch.device, *, ranked: bool = False) -> float:
        """What a step of a dense batch should take; or what it is `ranked` by among geometries, rather more."""
        load, shape, card = self._loads[_is_exact()], self.geometry(batch, device), gpu_target.value.card_of(device)
        return seconds(load, shape, batch, card, ragged=False) if ranked else expected_seconds(load, shape, batch, card)

    def run(
        self,
        streams: Sequence[Tensor],
        lagged: Sequence[tuple[Tensor, Tensor]],
        constants: Sequence[Tensor],
        matrices: Sequence[Tensor],
        starts: Sequence[Tensor],
        carried: Sequence[Tensor],
        stored: Sequence[Tensor],
        steps: StepLayout,
    ) -> None:
        """Walk through all steps from `starts`, which may be `carried`; the rest is as for the CPU kernels."""
        device = carried[0].device
        named = {matrix.name: tensor for matrix, tensor in zip(self.program.matrices, matrices, strict=True)}
        lags = [tensor for pair in lagged for tensor in pair]
        others = [*streams, *lags, *constants, *starts, *carried, *stored]
        while True:
            shape = self._latest = self.geometry(steps.batch_size, device, ragged=not steps.is_full)
            try:
                return self._run(shape, named, others, steps, device)
            except SpillsError:
                self._spilled.add(shape)
                if len(self._spilled) == MOST_ATTEMPTS:
                    self._spilled.clear()
                    self._accept_spills = True
            except TooLargeError:
                self._too_large.add((device, shape))
            # What was chosen, and what fits, is to be found out anew.
            self._chosen.clear()
            self._unfit.clear()

    def _run(
        self, shape: Tiling, matrices: dict[str, Tensor], others: list[Tensor], steps: StepLayout, device: torch.device
    ) -> None:
        compiled = self._compile(shape)
        target = gpu_target.value
        source, card = compiled.source, target.card_of(device)
        grid = compiled.grid(steps.batch_size, card.processors)
        packed = self._packed(source, shape, matrices)
        layout = _layout(steps, shape.rows, device)
        # What nobody reads may be anything.
        tables = [others[0] if table is None else table for table in (layout.table, layout.order)]
        tensors = [*others, *packed, *tables]
        constants = (layout.table is not None, target.precision())
        places = (
            len(steps.active),
            steps.batch_size,
            layout.first,
            layout.stride,
            steps.row_stride,
            grid.rows,
            layout.start,
        )
        with compiled.rooms.room(grid.exchange, device) as room:
            for first, blocks in grid.launches:
                numbers = (*places, first)
                compiled.launch(
                    blocks, tensors, room, numbers, constants, card.processors, accept_spills=self._accept_spills
                )

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Within this, matrices are packed once: whoever walks in blocks knows that they are always the same."""
        before, self._held.packed = getattr(self._held, "packed", None), {}
        try:
            yield
        finally:
            self._held.packed = before

    def _packed(self, source: Source, shape: Tiling, matrices: dict[str, Tensor]) -> list[Tensor]:
        held: dict[Tiling, list[Tensor]] | None = getattr(self._held, "packed", None)
        if held is not None and shape in held:
            return held[shape]
        packed = [
            pack(group, matrices, depth, shape.blocks, shape.tile(group.width), direct=shape.direct)
            for group, depth in zip(source.groups, source.depths, strict=True)
        ]
        if held is not None:
            held[shape] = packed
        return packed

    def _compile(self, shape: Tiling) -> _Compiled:
        if shape not in self._compiled:
            source = emit(self._staged, shape)
            target = gpu_target.value
            function = target.jit(self.program.name, _header(self._staged, shape) + source.text)
            launcher = target.make_launcher(function, shape.warps, launch_knobs, cooperative=shape.blocks > 1)
            self._compiled[shape] = _Compiled(source, launcher, shape)
        return self._compiled[shape]


def _exchanged(source: Source, shape: Tiling, tiles: int) -> list[tuple[int, torch.dtype, bool]]:
    """What the blocks of a launch meet through: rows and shares in several copies, and counters."""
    rows = SLOTS * tiles * shape.rows
    sizes = []
    for whole, stride in zip(source.wholes, source.strides, strict=True):
        # What nobody writes must be zeros, because it is multiplied.
        filled = stride == sum(piece.width for piece in whole)
        sizes.append((rows * stride, whole[0].dtype, not filled))
    sizes += [(rows * shape.blocks, torch.float32, False) for _ in source.shares]
    return [*sizes, *2 * [(tiles * COUNTER_STRIDE, torch.int32, True)]]


class _Layout(NamedTuple):
    """Where rows lie: at regular places, or as a table says (rows alive, places, steps of each tile, order of states).

    The order begins at `start`: in the table, or where it is already.
    """

    first: int
    stride: int
    start: int = 0
    table: Tensor | None = None
    order: Tensor | None = None


def _layout(steps: StepLayout, rows: int, device: torch.device) -> _Layout:
    if steps.is_full:
        first = steps.starts[0]
        return _Layout(first, steps.starts[1] - first if len(steps.starts) > 1 else 0)
    there = steps.order if steps.order is not None and steps.order.device == device != CPU else None
    inside = None if there is not None else steps.order

    def make() -> Tensor:
        active = steps.active.numpy()
        # Rows are sorted by length: a tile has as many steps as its first row.
        counts = np.searchsorted(-active, -np.arange(0, steps.batch_size, rows))
        order = np.arange(steps.batch_size) if inside is None else inside.numpy()
        return torch.from_numpy(np.concatenate([active, steps.offset.numpy(), counts, order]))

    # Batches of the same lengths share their tables, and may be in another order.
    name = (rows, None if inside is None else inside.numpy().tobytes())
    table = sent_once(steps.tables, name, make, device)
    if there is not None:
        return _Layout(0, 0, 0, table, there)
    return _Layout(0, 0, len(table) - steps.batch_size, table, table)


def _is_exact() -> bool:
    return gpu_target.value.precision() == EXACT


def _load_of(staged: Staged, exact: bool) -> StepCost:
    groups = tuple(group for found in stage_groups(staged) for group in found)
    width = max(piece.width for row in staged.cut.pieces.values() for piece in row)
    copies = 2 if exact and any(group.dtype == torch.float32 for group in groups) else 1
    # What streams give is there twice: for this step, and fetched for the next.
    fetched = MemoryCodegen(staged, Tiling(16, 1, 4, 4, ())).fetched()
    held = (*2 * [piece.width for piece in fetched], *(one.before.width for one in staged.carried))
    return StepCost(groups, copies, staged.barriers, width, len(staged.cut.operations), held)


def _header(staged: Staged, shape: Tiling) -> str:
    program = staged.cut.program
    return (
        f"# {program.name}: one launch walks through all steps{', backwards' if program.reverse else ''}.\n"
        f"# A block has {shape.rows} rows of the batch, 1 of {shape.blocks} shares of the units, {shape.warps} warps.\n"
        f"# The blocks of the same rows wait at {staged.barriers} barriers a step.\n"
    )
