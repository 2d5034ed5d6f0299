"""A walk in blocks of steps that always run in the same memory: what one block does can be recorded, and run again.

A block has room for some steps and some rows. Its steps are copied in, run, and copied out, each in one operation for
a whole stream. Sequences rarely fill blocks: a row that is not alive at a step, or a step that is not there, computes
something that nobody looks at, and what it carries stays as it was. So few kinds of blocks serve all lengths.

Places in time are those of memory here: a batch may lie backwards, and a walk may go downwards.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from throughtime.backends.aten.graph_policy import graph_policy
from throughtime.backends.torch_codegen import Env, SectionFunction
from throughtime.compiler import Loop, Value
from throughtime.layout.previous_step import LaggedStreams
from throughtime.layout.step_layout import StepLayout, sent


class ChunkShape(NamedTuple):
    """What a block that is recorded depends on.

    So many steps of so many rows; whether some of them may not be there; the direction of the walk.
    """

    steps: int
    rows: int
    masked: bool
    downwards: bool


class Chunk(NamedTuple):
    """A part of a walk: the places in time from `first` to `last`, not included, in a block of some kind."""

    kind: ChunkShape
    first: int
    last: int

    @property
    def slots(self) -> slice:
        """Which of the block's steps are filled: those that the walk comes to first."""
        count = self.last - self.first
        return slice(self.kind.steps - count, self.kind.steps) if self.kind.downwards else slice(0, count)


class TimeGrid:
    """Where the rows of a walk lie: one place in time after another, whatever the direction of the steps."""

    def __init__(self, steps: StepLayout, *, reverse: bool) -> None:
        self._steps = steps
        self._counts, self._starts = steps.active.numpy(), steps.offset.numpy()
        self.time = len(steps.counts)
        self.backwards = steps.starts[0] > steps.starts[-1]
        self.downwards = reverse != self.backwards
        self.rows = steps.counts[0]
        self.is_dense = steps.counts[-1] == self.rows
        assert self.is_dense or (steps.row_stride == 1 and not self.backwards)

    def pieces(self, longest: int) -> Iterator[Chunk]:
        """The walk, in order, in blocks of at most `longest` steps."""
        done, long, short = 0, graph_policy.value.long, graph_policy.value.short
        while done < self.time:
            size = long if longest >= long <= self.time - done else short
            count = min(size, self.time - done)
            first = self.time - done - count if self.downwards else done
            counts = self._steps.counts[first : first + count]
            rows = capacity_for(counts[0], self.rows)
            # Short blocks are all of one kind, filled or not.
            masked = size == short or counts[-1] < rows
            yield Chunk(ChunkShape(size, rows, masked, self.downwards), first, first + count)
            done += count

    def by_time(self, stream: Tensor) -> Tensor:
        """The rows of a dense stream as [T, B, ...]."""
        features = stream.shape[1:]
        if self._steps.row_stride == 1:
            return stream.view(self.time, self.rows, *features)
        return stream.view(self.rows, self.time, *features).transpose(0, 1)

    def span(self, piece: Chunk) -> slice:
        """The packed rows of a piece."""
        starts, counts = self._steps.starts, self._steps.counts
        return slice(starts[piece.first], starts[piece.last - 1] + counts[piece.last - 1])

    def alive(self, piece: Chunk) -> NDArray[np.int64]:
        """How many rows each step of a block has."""
        found = np.zeros(piece.kind.steps, np.int64)
        found[piece.slots] = self._counts[piece.first : piece.last]
        return found

    def sources(self, piece: Chunk, lag: int) -> NDArray[np.int64]:
        """For each row of a block, the packed row to copy, `lag` steps earlier; for one that is not alive, any."""
        starts = self._starts[np.maximum(np.arange(piece.first, piece.last) - lag, 0)]
        rows = np.minimum(np.arange(piece.kind.rows), self._counts[piece.first : piece.last, None] - 1)
        found: NDArray[np.int64] = (starts[:, None] + rows).ravel()
        return found

    def targets(self, piece: Chunk) -> NDArray[np.int64]:
        """For each packed row of a piece, the row of the block to copy."""
        alive = np.arange(piece.kind.rows) < self._counts[piece.first : piece.last, None]
        found: NDArray[np.int64] = np.flatnonzero(alive) + piece.slots.start * piece.kind.rows
        return found


def capacity_for(rows: int, most: int) -> int:
    """The rows of the block that so many rows run in, in a batch of `most` rows.

    The largest block has a few to spare, so that batches of nearly equal sizes share it; the others are powers of two.
    """
    step = max(1, (1 << (most.bit_length() - 1)) // 4)
    largest = -(-most // step) * step
    return largest if 2 * rows > largest else 1 << (rows - 1).bit_length()


class Tables:
    """The places of all rows of a walk, sent to a device at once."""

    def __init__(
        self,
        grid: TimeGrid,
        pieces: Sequence[Chunk],
        *,
        lagged: bool,
        device: torch.device,
        more: Callable[[Chunk], NDArray[np.int64]] | None = None,
    ) -> None:
        parts: list[NDArray[np.int64]] = []
        names: list[tuple[str, Chunk]] = []

        def add(name: str, piece: Chunk, numbers: NDArray[np.int64]) -> None:
            names.append((name, piece))
            parts.append(numbers)

        for piece in pieces:
            if piece.kind.masked:
                add("alive", piece, grid.alive(piece))
            if not grid.is_dense:
                add("sources", piece, grid.sources(piece, 0))
                add("targets", piece, grid.targets(piece))
                if lagged:
                    add("lagged", piece, grid.sources(piece, 1))
            if more is not None:
                add("more", piece, more(piece))
        self._found: dict[tuple[str, Chunk], Tensor] = {}
        if parts:
            table = sent(torch.from_numpy(np.concatenate(parts)), device)
            self._found = dict(zip(names, table.split([len(part) for part in parts]), strict=True))

    def __getitem__(self, key: tuple[str, Chunk]) -> Tensor:
        return self._found[key]


class ChunkBuffers(ABC):
    """Memory for steps of one kind, and the walk through them.

    It has what is carried, streams that are `copied` in, and stored values that are `stacked` and copied out.
    """

    def __init__(
        self,
        kind: ChunkShape,
        copied: Sequence[Value],
        stacked: Sequence[Value],
        lagged: set[Value],
        carried: Sequence[Tensor],
    ) -> None:
        self.kind = kind
        self.device = device = carried[0].device

        def zeros(*shape: int, dtype: torch.dtype) -> Tensor:
            # Numbers that mean nothing, but are some: rows that are not alive are computed as well.
            return torch.zeros(shape, dtype=dtype, device=device)

        def room(value: Value) -> Tensor:
            return zeros(kind.steps, kind.rows, *value.row_shape, dtype=value.dtype)

        self.streams = {value: room(value) for value in copied if value not in lagged}
        self.lagged = {value: room(value) for value in copied if value in lagged}
        self.stored = {value: room(value) for value in stacked}
        self.carried = [zeros(kind.rows, *leaf.shape[1:], dtype=leaf.dtype) for leaf in carried]
        self.alive = zeros(kind.steps, dtype=torch.int64)
        self._numbers = torch.arange(kind.rows, device=device)

    @abstractmethod
    def step(self, slot: int, current: list[Tensor], alive: Tensor | None) -> tuple[list[Tensor], list[Tensor]]:
        """One step from what is carried: what it carries on, and what is to be stacked.

        Rows that are not `alive` [n] keep what they had; None if all are.
        """

    def walk(self) -> None:
        """Through all steps, on the memory of the block: always the same operations on the same addresses."""
        # Copies, because results may be what was carried, in another place.
        current = [leaf.clone() for leaf in self.carried]
        alive = self._numbers < self.alive[:, None] if self.kind.masked else None
        kept: list[list[Tensor]] = [[] for _ in self.stored]
        order = -1 if self.kind.downwards else 1
        for slot in range(self.kind.steps)[::order]:
            current, left = self.step(slot, current, None if alive is None else alive[slot])
            for pieces, piece in zip(kept, left, strict=True):
                pieces.append(piece)
        for (value, room), pieces in zip(self.stored.items(), kept, strict=True):
            torch.stack([value.rows_first(piece) for piece in pieces[::order]], out=room)
        for leaf, last in zip(self.carried, current, strict=True):
            leaf.copy_(last)

    def taken(self, value: Value, slot: int) -> Tensor:
        """What a step reads of a stream that has been copied in."""
        stream = self.lagged[value] if value in self.lagged else self.streams[value]
        return value.rows_placed(stream[slot])

    def enter(self, carried: Sequence[Tensor]) -> None:
        """Take over what is carried [B, ...]."""
        for leaf, given in zip(self.carried, carried, strict=True):
            leaf[: len(given)].copy_(given[: self.kind.rows])

    def leave(self, carried: Sequence[Tensor]) -> None:
        """Hand it back."""
        for leaf, given in zip(self.carried, carried, strict=True):
            given[: self.kind.rows].copy_(leaf[: len(given)])

    def fill(self, grid: TimeGrid, piece: Chunk, tables: Tables, env: Env, lagged: LaggedStreams) -> None:
        """Copy what the steps of a piece read."""
        if self.kind.masked:
            self.alive.copy_(tables["alive", piece])
        for value, room in self.streams.items():
            stream = value.rows_first(env[value])
            if grid.is_dense:
                room[piece.slots, : grid.rows].copy_(grid.by_time(stream)[piece.first : piece.last])
            else:
                _select(stream, tables["sources", piece], room[piece.slots].flatten(0, 1))
        for value, room in self.lagged.items():
            self._fill_lagged(grid, piece, tables, room, *lagged[value])

    def _fill_lagged(
        self, grid: TimeGrid, piece: Chunk, tables: Tables, room: Tensor, stream: Tensor, initial: Tensor
    ) -> None:
        """The rows of the step before each; before the first step are those of `initial`."""
        place = piece.slots
        if not grid.is_dense:
            _select(stream, tables["lagged", piece], room[place].flatten(0, 1))
            if piece.first == 0:
                _begin(room[place.start], initial)
            return
        rows, by_time = room[place, : grid.rows], grid.by_time(stream)
        if grid.backwards:
            # The step before lies one place later.
            rows[: grid.time - 1 - piece.first].copy_(by_time[piece.first + 1 : piece.last + 1])
            if piece.last == grid.time:
                _begin(rows[-1], initial)
        elif piece.first:
            rows.copy_(by_time[piece.first - 1 : piece.last - 1])
        else:
            rows[1:].copy_(by_time[: piece.last - 1])
            _begin(rows[0], initial)

    def drain(self, grid: TimeGrid, piece: Chunk, tables: Tables, stored: Env) -> None:
        """Copy what the steps of a piece have stored."""
        for value, room in self.stored.items():
            stream = stored[value]
            if grid.is_dense:
                grid.by_time(stream)[piece.first : piece.last].copy_(room[piece.slots, : grid.rows])
            else:
                _select(room.flatten(0, 1), tables["targets", piece], stream[grid.span(piece)])


class StepCode(NamedTuple):
    """One step of a loop as a function, and which of its results are stored and carried."""

    loop: Loop
    function: SectionFunction
    stored: list[int]
    carried: list[int]

    @property
    def constants(self) -> list[Value]:
        """What all steps take alike."""
        return [value for value in self.function.takes if not value.has_rows]

    @property
    def matrices(self) -> set[Value]:
        """Constants that may lie in memory as they like: none is known to be only multiplied by."""
        return set()

    @property
    def copied(self) -> list[Value]:
        """Streams that are copied into a block: all that each step takes of its own."""
        found = self.loop.found
        return [value for value in self.function.takes if value.has_rows and value not in found]

    @property
    def stacked(self) -> list[Value]:
        """Stored values that are copied out of a block: all of them."""
        return self.loop.stored


class PlainChunk(ChunkBuffers):
    """A block whose steps are operations of torch alone."""

    def __init__(
        self, code: StepCode, kind: ChunkShape, lagged: set[Value], constants: Env, carried: Sequence[Tensor]
    ) -> None:
        super().__init__(kind, code.copied, code.stacked, lagged, carried)
        self._code = code
        self._constants = constants
        self._found = {before: index for index, (before, _) in enumerate(code.loop.carried)}

    def step(self, slot: int, current: list[Tensor], alive: Tensor | None) -> tuple[list[Tensor], list[Tensor]]:
        """The function of the step, and a choice for each leaf that is carried."""
        code = self._code
        results = code.function(self.kind.rows, None, *[self._argument(v, slot, current) for v in code.function.takes])
        new = [results[place] for place in code.carried]
        if alive is not None:
            new = [_where(alive, *pair) for pair in zip(new, current, strict=True)]
        return new, [results[place] for place in code.stored]

    def _argument(self, value: Value, slot: int, current: list[Tensor]) -> Tensor:
        if value in self._found:
            return current[self._found[value]]
        return self.taken(value, slot) if value.has_rows else self._constants[value]


def _begin(rows: Tensor, initial: Tensor) -> None:
    """The rows of a state before the first step."""
    rows[: len(initial)].copy_(initial[: len(rows)])


def _where(alive: Tensor, new: Tensor, old: Tensor) -> Tensor:
    return torch.where(alive.view(-1, *[1] * (old.ndim - 1)), new, old)


def _select(stream: Tensor, rows: Tensor, out: Tensor) -> None:
    """Copy some rows of a stream."""
    if out.is_contiguous():
        torch.index_select(stream, 0, rows, out=out)
    else:
        out.copy_(stream.index_select(0, rows))
