"""Blocks of steps whose pointwise work is in fused kernels, which find what they read and store by a table.

A recorded launch is bound to addresses, and streams lie anywhere. So a kernel is given the address of a table, which is
always the same, and finds in it where the rows of its step lie. The tables of a whole walk are sent to the card at
once; what a block needs of them is copied to its own before it runs.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from throughtime.backends import triton
from throughtime.backends.aten.chunk_buffers import Chunk, ChunkBuffers, ChunkShape, Tables, TimeGrid
from throughtime.backends.aten.fuse_pointwise import FusedStep, FusionGroup, fuse_pointwise
from throughtime.backends.torch_codegen import Env, SectionFunction
from throughtime.compiler import Loop, Value
from throughtime.compiler.passes.merge_matmuls import MergedMatmuls
from throughtime.layout.previous_step import LaggedStreams
from throughtime.layout.step_layout import StepLayout


def columns_of(loop: Loop) -> dict[Value, int]:
    """The column of a table for every stream of a loop, read or stored."""
    streams = [*(value for value in loop.reads if value.has_rows), *loop.stored]
    return {value: index for index, value in enumerate(streams)}


class FusedKernel:
    """A group as a kernel on values: what it takes and keeps are tensors, the rest is found by the table."""

    def __init__(self, group: FusionGroup, step: FusedStep, columns: dict[Value, int]) -> None:
        lowered = group.lowered()
        program = lowered.program
        rows = dict(zip(lowered.streams, program.streams, strict=True))
        read = {row.name: columns[value] for value, row in rows.items() if value in step.streams}
        written = [
            triton.Written(value in group.kept, columns[value] if value in step.stored else None)
            for value in group.gives
        ]
        fills = {row.name: number for row, number in lowered.fills}
        self._kernel = triton.ElementwiseKernel(program, fills, read, written)
        self.source, self.compile = self._kernel.source, self._kernel.compile
        self.takes = [*(value for value in lowered.streams if value not in step.streams), *lowered.constants]
        self.gives = [value for value in group.gives if value in group.kept]

    def __call__(self, place: Tensor, rows: int, env: Env) -> None:
        """Take from `env` and add to it."""
        results = [torch.empty(value.sized(rows), dtype=value.dtype, device=place.device) for value in self.gives]
        self._kernel(place, [env[value].contiguous() for value in self.takes], results, rows)
        env.update(zip(self.gives, results, strict=True))


class FusedCode:
    """The step of a loop in fused kernels and operations of torch, for rows that are all alive or not."""

    def __init__(self, products: MergedMatmuls, *, masked: bool) -> None:
        loop = products.loop
        self.step = fuse_pointwise(products, masked=masked)
        self.columns = columns_of(loop)
        self.parts: list[FusedKernel | SectionFunction] = []
        for index, part in enumerate(self.step.parts):
            if isinstance(part, FusionGroup):
                self.parts.append(FusedKernel(part, self.step, self.columns))
            else:
                self.parts.append(SectionFunction(f"{loop.name} part {index}", part.nodes, part.gives))
        used = [{*part.takes} for part in self.step.parts]
        last = {value: index for index, values in enumerate(used) for value in values}
        self.befores = [before for found in self.step.carried for before in found.before]
        self.afters = [after for found in self.step.carried for after in found.after]
        kept = {*self.afters, *self.step.stacked, *self.step.constants}
        self.dead = [[v for v in values if last[v] == index and v not in kept] for index, values in enumerate(used)]

    @property
    def constants(self) -> list[Value]:
        """What all steps take alike."""
        return self.step.constants

    @property
    def matrices(self) -> set[Value]:
        """Constants that may lie in memory as they like."""
        return self.step.matrices

    def compile(self, device: torch.device) -> None:
        """Compile the kernels for a device; raises what Triton does."""
        for part in self.parts:
            if isinstance(part, FusedKernel):
                part.compile(device)

    @property
    def source(self) -> str:
        """All parts, for people."""
        return "\n\n".join(part.source for part in self.parts)

    def __call__(self, place: Tensor, rows: int, env: Env) -> None:
        """One step."""
        for part, dead in zip(self.parts, self.dead, strict=True):
            if isinstance(part, FusedKernel):
                part(place, rows, env)
            else:
                part.run(rows, env)
            for value in dead:
                env.pop(value, None)


class FusedChunk(ChunkBuffers):
    """A block whose steps are fused kernels and operations of torch."""

    def __init__(
        self, code: FusedCode, kind: ChunkShape, lagged: set[Value], constants: Env, carried: Sequence[Tensor]
    ) -> None:
        leaves = []
        for leaf, found in zip(carried, code.step.carried, strict=True):
            leaves += [leaf.new_empty(0, *leaf.shape[1:], dtype=before.dtype) for before in found.before]
        super().__init__(kind, code.step.copied, code.step.stacked, lagged, leaves)
        self._code = code
        self._constants = {value: constants[value] for value in code.step.constants}
        self._table = torch.zeros(kind.steps, width_of(code.columns), dtype=torch.int64, device=self.device)

    def enter(self, carried: Sequence[Tensor]) -> None:
        """Take over what is carried [B, ...]; of what is a sum, all is in the first part."""
        for parts, given in zip(self._parts(), carried, strict=True):
            parts[0][: len(given)].copy_(given[: self.kind.rows])
            for part in parts[1:]:
                part.zero_()

    def leave(self, carried: Sequence[Tensor]) -> None:
        """Hand it back."""
        for parts, given in zip(self._parts(), carried, strict=True):
            given[: self.kind.rows].copy_(functools.reduce(torch.add, parts)[: len(given)])

    def _parts(self) -> Iterator[list[Tensor]]:
        leaves = iter(self.carried)
        return ([next(leaves) for _ in found.before] for found in self._code.step.carried)

    def fill(self, grid: TimeGrid, piece: Chunk, tables: Tables, env: Env, lagged: LaggedStreams) -> None:
        """Copy what torch reads, and where the rest lies."""
        super().fill(grid, piece, tables, env, lagged)
        self._table.copy_(tables["more", piece].view_as(self._table))

    def step(self, slot: int, current: list[Tensor], alive: Tensor | None) -> tuple[list[Tensor], list[Tensor]]:
        """One part after another."""
        step = self._code.step
        env = {**dict(zip(self._code.befores, current, strict=True)), **self._constants}
        env |= {value: self.taken(value, slot) for value in step.copied}
        if step.alive is not None and alive is not None:
            env[step.alive] = alive
        self._code(self._table[slot], self.kind.rows, env)
        return [env[value] for value in self._code.afters], [env[value] for value in step.stacked]


def width_of(columns: dict[Value, int]) -> int:
    """Numbers of a table for each step; an even number, so that steps begin at addresses that Triton likes."""
    return triton.HEADER + 2 * len(columns)


class AddressTable:
    """Where the rows of every step of a walk lie, for streams that are read and stored in place.

    What kernels cannot read where it lies is copied first; call `done` when the walk is over.
    """

    def __init__(
        self, codes: Sequence[FusedCode], env: Env, lagged: LaggedStreams, stored: Env, steps: StepLayout
    ) -> None:
        self._held: list[Tensor] = []
        self._returned: list[tuple[Tensor, Tensor]] = []
        columns = codes[0].columns
        self._table = np.zeros((len(steps.counts), width_of(columns)), np.int64)
        self._table[:, 0] = steps.active.numpy()
        read = {value for code in codes for value in code.step.streams}
        written = {value for code in codes for value in code.step.stored}
        now: list[tuple[int, Tensor, int]] = []
        before: list[tuple[int, Tensor, int]] = []
        for value, column in columns.items():
            place = triton.HEADER + 2 * column
            if value in written:
                now.append((place, *self._target(stored[value])))
            elif value in read and value in lagged:
                before.append((place, *self._source(lagged[value][0])))
            elif value in read:
                now.append((place, *self._source(env[value])))
        starts = steps.offset.numpy()
        self._enter(now, starts, steps.row_stride)
        # The first step finds the rows of an initial state.
        self._enter(before, np.concatenate([starts[:1], starts[:-1]]), steps.row_stride)
        for value, column in columns.items():
            if value in read and value in lagged:
                initial, apart = self._source(lagged[value][1])
                place = triton.HEADER + 2 * column
                self._table[0, place : place + 2] = initial.data_ptr(), apart

    def _enter(self, streams: list[tuple[int, Tensor, int]], starts: NDArray[np.int64], row_stride: int) -> None:
        if streams:
            places = np.array([place for place, _, _ in streams])
            apart = np.array([apart for _, _, apart in streams])
            sizes = apart * [stream.element_size() for _, stream, _ in streams]
            self._table[:, places] = [stream.data_ptr() for _, stream, _ in streams] + starts[:, None] * sizes
            self._table[:, places + 1] = row_stride * apart

    def _source(self, stream: Tensor) -> tuple[Tensor, int]:
        # Signs may wait until somebody reads them, and a kernel reads memory.
        stream = stream.resolve_neg()
        apart = row_distance(stream)
        if apart is None:
            stream = stream.clone(memory_format=torch.contiguous_format)
            apart = stream.stride(0)
        self._held.append(stream)
        return stream, apart

    def _target(self, stream: Tensor) -> tuple[Tensor, int]:
        apart = row_distance(stream)
        if apart is not None:
            return stream, apart
        room = torch.empty_like(stream, memory_format=torch.contiguous_format)
        self._returned.append((stream, room))
        return room, room.stride(0)

    def of(self, grid: TimeGrid, piece: Chunk) -> NDArray[np.int64]:
        """The table of a block."""
        found = np.zeros((piece.kind.steps, self._table.shape[1]), np.int64)
        in_memory = self._table[::-1] if grid.backwards else self._table
        found[piece.slots] = in_memory[piece.first : piece.last]
        return found.ravel()

    def done(self) -> None:
        """Bring back what was stored elsewhere."""
        for stream, room in self._returned:
            stream.copy_(room)


def row_distance(stream: Tensor) -> int | None:
    """How many numbers lie between the beginnings of two rows; None if kernels cannot read them where they are.

    The features of a row must lie side by side, and begin where a vector may if a row is a number of vectors.
    """
    sizes, strides = stream.shape, stream.stride()
    width = 1
    for size, stride in zip(reversed(sizes[1:]), reversed(strides[1:]), strict=True):
        if stride != width and size != 1:
            return None
        width *= size
    apart, size = strides[0] if sizes[0] > 1 else width, stream.element_size()
    is_vector = not width * size % triton.VECTOR_BYTES
    if is_vector and (stream.data_ptr() % triton.VECTOR_BYTES or apart * size % triton.VECTOR_BYTES):
        return None
    return apart
