"""A loop program as a kernel that is ready to be launched."""

from __future__ import annotations

import linecache
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from throughtime.backends._steps import Steps, sent
from throughtime.backends.triton._device import FUNCTIONS
from throughtime.backends.triton._emit import COUNTER_STRIDE, SLOTS, Source, emit, stage_groups
from throughtime.backends.triton._geometry import Card, Geometry, Load, NoGeometryError, choose
from throughtime.backends.triton._pieces import cut
from throughtime.backends.triton._products import pack
from throughtime.backends.triton._stages import Staged, stage
from throughtime.compiler._loop import LoopProgram

TYPICAL = Card(132, 227 * 2**10)
"""The card that `source` is written for before any other is known."""
TYPICAL_BATCH = 64
MOST_SPILLS = 256
"""Registers that a thread may keep in memory instead."""


class _SpillsError(Exception):
    """A kernel needs more registers than there are, by far."""


@dataclass(frozen=True)
class _Compiled:
    source: Source
    launch: Any


class LoopKernel:
    """The kernels of one loop program, one for each geometry that was asked for. `source` is the latest, for people."""

    def __init__(self, program: LoopProgram) -> None:
        self.program = program
        self._staged = stage(cut(program))
        self._loads = {exact: _load_of(self._staged, exact) for exact in (False, True)}
        self._compiled: dict[Geometry, _Compiled] = {}
        # What was found out about geometries: those that do not fit, those that are slow, and kernels to be launched.
        self._too_large: set[Geometry] = set()
        self._spilled: set[Geometry] = set()
        self._accept_spills = False
        self._looked_at: set[Any] = set()
        self._latest: Geometry | None = None

    @property
    def source(self) -> str:
        """The kernel, with a header that says how it is laid out."""
        shape = self._latest or choose(self.load, TYPICAL_BATCH, TYPICAL)
        return _header(self._staged, shape) + emit(self._staged, shape).text

    def geometry(self, batch: int, device: torch.device) -> Geometry:
        """The geometry for a batch on a device, of those that have not been found too large for it, or too slow."""
        try:
            return _choose_for(self.load, batch, device, frozenset(self._too_large | self._spilled))
        except NoGeometryError:
            # Better slow than not at all.
            self._spilled.clear()
            self._accept_spills = True
            return _choose_for(self.load, batch, device, frozenset(self._too_large))

    @property
    def load(self) -> Load:
        """What a step costs, as torch's settings are now."""
        return self._loads[precision() == "tf32x3"]

    def run(
        self,
        streams: Sequence[Tensor],
        lagged: Sequence[tuple[Tensor, Tensor]],
        constants: Sequence[Tensor],
        matrices: Sequence[Tensor],
        carried: Sequence[Tensor],
        stored: Sequence[Tensor],
        steps: Steps,
    ) -> None:
        """Walk through all steps; the arguments are those of the CPU kernels."""
        arguments = (streams, lagged, constants, matrices, carried, stored, steps)
        while True:
            shape = self._latest = self.geometry(steps.batch_size, carried[0].device)
            try:
                return self._run(shape, *arguments)
            except _SpillsError:
                continue
            except Exception as error:
                # How much shared memory the compiler takes is known once it has run; nothing has been launched then.
                if type(error).__name__ != "OutOfResources":
                    raise
                self._too_large.add(shape)

    def _run(
        self,
        shape: Geometry,
        streams: Sequence[Tensor],
        lagged: Sequence[tuple[Tensor, Tensor]],
        constants: Sequence[Tensor],
        matrices: Sequence[Tensor],
        carried: Sequence[Tensor],
        stored: Sequence[Tensor],
        steps: Steps,
    ) -> None:
        device = carried[0].device
        compiled = self._compile(shape)
        source = compiled.source
        tiles = -(-steps.batch_size // shape.rows)
        named = {matrix.name: tensor for matrix, tensor in zip(self.program.matrices, matrices, strict=True)}
        packed = [
            pack(group, named, depth, shape.blocks, shape.tile(group.width))
            for group, depth in zip(source.groups, source.depths, strict=True)
        ]
        padded = tiles * shape.rows
        wholes = [
            _room(stride == sum(piece.width for piece in whole), (SLOTS, padded, stride), whole[0].dtype, device)
            for whole, stride in zip(source.wholes, source.strides, strict=True)
        ]
        shares = [torch.empty(SLOTS, padded, shape.blocks, device=device) for _ in source.shares]
        counters = torch.zeros(tiles * COUNTER_STRIDE, dtype=torch.int32, device=device)
        layout = _layout(steps, shape.rows)
        table = counters if layout.table is None else sent(layout.table, device)
        tensors = [
            *streams,
            *(tensor for pair in lagged for tensor in pair),
            *constants,
            *carried,
            *stored,
            *packed,
            *wholes,
            *shares,
            counters,
            table,
        ]
        options = {
            "RAGGED": layout.table is not None,
            "PRECISION": precision(),
            "num_warps": shape.warps,
            "num_stages": 1,
            "launch_cooperative_grid": shape.blocks > 1,
        }
        together = max(1, card_of(device).processors // shape.blocks)
        for first in range(0, tiles, together):
            numbers = (
                len(steps.active),
                steps.batch_size,
                layout.first,
                layout.stride,
                steps.row_stride,
                padded,
                first,
            )
            grid = (min(together, tiles - first) * shape.blocks,)
            if device.type == "cuda":
                self._look_at(shape, compiled, (*tensors, *numbers), options, grid)
            compiled.launch[grid](*tensors, *numbers, **options)

    def _look_at(
        self,
        shape: Geometry,
        compiled: _Compiled,
        arguments: Sequence[Any],
        options: dict[str, Any],
        grid: Sequence[int],
    ) -> None:
        """Once for each kernel, before its first launch: what the compiler made of it, while one can still choose."""
        key = (shape, options["RAGGED"], options["PRECISION"], arguments[0].device)
        if key in self._looked_at:
            return
        kernel = compiled.launch.warmup(*arguments, grid=grid, **options)
        kernel._init_handles()
        if kernel.n_spills > MOST_SPILLS and not self._accept_spills:
            self._spilled.add(shape)
            raise _SpillsError
        self._looked_at.add(key)

    def _compile(self, shape: Geometry) -> _Compiled:
        if shape not in self._compiled:
            source = emit(self._staged, shape)
            self._compiled[shape] = _Compiled(
                source, _jit(self.program.name, _header(self._staged, shape) + source.text)
            )
        return self._compiled[shape]


@dataclass(frozen=True)
class _Layout:
    """Where rows lie: at regular places, or as a table says (rows alive, places, steps of each tile)."""

    first: int
    stride: int
    table: Tensor | None


def _layout(steps: Steps, rows: int) -> _Layout:
    time = len(steps.active)
    if int(steps.active[-1]) == steps.batch_size:
        first = int(steps.offset[0])
        return _Layout(first, int(steps.offset[1]) - first if time > 1 else 0, None)
    starts = torch.arange(0, steps.batch_size, rows)
    # Rows are sorted by length: a tile has as many steps as its first row.
    counts = torch.searchsorted(-steps.active, -starts, right=False)
    return _Layout(0, 0, torch.cat([steps.active, steps.offset, counts]))


def _room(filled: bool, shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Memory for rows; what nobody writes must be zeros, because it is multiplied."""
    return (torch.empty if filled else torch.zeros)(shape, dtype=dtype, device=device)


@lru_cache
def card_of(device: torch.device) -> Card:
    """The GPU; the interpreter of Triton runs one block after another, so there it is one processor."""
    if device.type != "cuda":
        return Card(1, 2**40)
    properties = torch.cuda.get_device_properties(device)
    return Card(properties.multi_processor_count, properties.shared_memory_per_block_optin)  # type: ignore[attr-defined]


@lru_cache(maxsize=1024)
def _choose_for(load: Load, batch: int, device: torch.device, without: frozenset[Geometry]) -> Geometry:
    """The geometry, remembered."""
    return choose(load, batch, card_of(device), without)


def precision() -> str:
    """How float32 is multiplied: as torch's settings say for matrix products on CUDA devices."""
    return "tf32" if torch.get_float32_matmul_precision() != "highest" else "tf32x3"


def _load_of(staged: Staged, exact: bool) -> Load:
    groups = tuple(group for found in stage_groups(staged) for group in found)
    width = max(piece.width for row in staged.cut.pieces.values() for piece in row)
    copies = 2 if exact and any(group.dtype == torch.float32 for group in groups) else 1
    return Load(groups, copies, staged.meetings, width, len(staged.cut.operations))


def _header(staged: Staged, shape: Geometry) -> str:
    program = staged.cut.program
    return (
        f"# {program.name}: one launch walks through all steps{', backwards' if program.reverse else ''}.\n"
        f"# A block has {shape.rows} rows of the batch, 1 of {shape.blocks} shares of the units, {shape.warps} warps.\n"
        f"# The blocks of the same rows meet {staged.meetings} times a step.\n"
    )


def _jit(name: str, text: str) -> Any:
    """The text as a function of Triton. Its lines are kept where Python and Triton look for source code."""
    import triton  # noqa: PLC0415 (slow, and not everywhere)
    from triton import language as tl  # noqa: PLC0415
    from triton.language.extra import libdevice  # noqa: PLC0415

    text = f"{text}\n{FUNCTIONS}"
    filename = f"<throughtime {name} {hash(text):x}>"
    linecache.cache[filename] = (len(text), None, text.splitlines(True), filename)
    scope: dict[str, Any] = {"triton": triton, "tl": tl, "libdevice": libdevice, "__name__": __name__}
    exec(compile(text, filename, "exec"), scope)
    return scope["loop"]
