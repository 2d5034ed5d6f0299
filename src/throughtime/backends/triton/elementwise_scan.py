"""A loop without products as one kernel: its units never wait for each other.

A block of threads walks through all steps with some rows, and some units of every piece of them. Nothing is exchanged,
so what bounds it is how long memory takes to answer: it asks for the numbers of several steps at once, and computes
these steps one after another when they are there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from throughtime._setting import Setting
from throughtime.backends.triton.elementwise_kernel import IN_MEMORY, IN_REGISTERS, Writer, Written
from throughtime.backends.triton.row_segments import Reduction, Segment, SegmentedProgram, cut
from throughtime.backends.triton.target import gpu_target
from throughtime.compiler import LoopProgram
from throughtime.layout.step_layout import StepLayout, sent_once

ahead_bytes = Setting(32)
"""Of each piece, what a thread asks for at once: 16 steps in bfloat16, 8 in float32. For an LSTM of 64 rows of 1024
units, half as much took 4 to 16 percent longer, and twice as much no less."""
MOST_LOADS = 64
MOST_OPERATIONS = 256
"""Of so many steps together: more would not fit the registers, or take long to compile."""
BLOCK = 128
"""Numbers of each piece that a block has: one for each thread, since there are only as many as a batch has units."""


class ElementwiseScanKernel:
    """A loop program without products. `fills` are constants that are one number, by name."""

    def __init__(self, program: LoopProgram, fills: Mapping[str, float]) -> None:
        writer = _Writer(cut(program), fills)
        self.source = "\n".join(writer.lines()) + "\n"
        self._tile = writer.tile

    @cached_property
    def _function(self) -> Any:
        return gpu_target.value.jit("walk", self.source)

    def run(
        self,
        streams: Sequence[Tensor],
        constants: Sequence[Tensor],
        starts: Sequence[Tensor],
        stored: Sequence[Tensor],
        steps: StepLayout,
    ) -> None:
        """Walk through all steps from `starts`; `stored` [N, ...] are written to. Rows of a step lie side by side."""
        assert steps.row_stride == 1
        count, batch, first, apart = len(steps.counts), steps.batch_size, steps.starts[0], 0
        # What nobody reads may be anything.
        table = stored[0]
        if not steps.is_full:
            table = sent_once(steps.tables, "walk", lambda: torch.cat([steps.active, steps.offset]), table.device)
        elif count > 1:
            apart = steps.starts[1] - first
        grid = (-(-batch // self._tile.rows), self._tile.blocks)
        arguments = (*streams, *constants, *starts, *stored, table, count, batch, first, apart, not steps.is_full)
        self._function[grid](*arguments, num_warps=self._tile.warps)


class _Writer(Writer):
    """Writes every operation as many times as steps are fetched at once."""

    def __init__(self, pieces: SegmentedProgram, fills: Mapping[str, float]) -> None:
        self._carried = [
            (before, after)
            for carry in pieces.program.carried
            for before, after in zip(pieces.pieces[carry.before.name], pieces.pieces[carry.after.name], strict=True)
        ]
        super().__init__(pieces, fills, {}, [Written(tensor=True, column=None) for _ in pieces.program.stored])
        self._plain = dict(self._names)
        if not any(isinstance(op, Reduction) for op in self._operations):
            widest, units = max(piece.width for piece in self._names), min(self.tile.units, BLOCK)
            self.tile = replace(self.tile, rows=max(1, BLOCK // units), units=units, blocks=-(-widest // units))

    def _pieces_needed(self) -> list[Segment]:
        return list(dict.fromkeys([*super()._pieces_needed(), *(piece for pair in self._carried for piece in pair)]))

    @property
    def _ahead(self) -> int:
        """Steps that are fetched at once."""
        loads = sum(piece in self._plain for row in self._program.streams for piece in self._cut.pieces[row.name])
        ahead = ahead_bytes.value // max(row.dtype.itemsize for row in (*self._program.streams, *self._program.stored))
        while ahead > 1 and (ahead * loads > MOST_LOADS or ahead * len(self._operations) > MOST_OPERATIONS):
            ahead //= 2
        return ahead

    def lines(self) -> Iterator[str]:
        """The source."""
        program, tile, ahead = self._program, self.tile, self._ahead
        given = [index for index, row in enumerate((*program.streams, *program.constants)) if self._is_tensor(row)]
        names = [*(f"in_{index}" for index in given), *(f"start_{index}" for index in range(len(program.carried)))]
        names += [*(f"out_{index}" for index in range(len(program.stored))), "table", "T", "B", "FIRST", "APART"]
        yield '@triton.jit(do_not_specialize=["T", "B", "FIRST", "APART"])'
        yield f"def loop({', '.join(names)}, RAGGED: tl.constexpr):"
        yield f"    rows = tl.program_id(0) * {tile.rows} + tl.arange(0, {tile.rows})"
        for width in sorted({piece.width for piece in self._plain} - {1}):
            yield f"    u{width} = (tl.program_id(1) * {tile.units} + tl.arange(0, {tile.units}))[None, :]"
        for index, row in enumerate(program.constants, len(program.streams)):
            yield from self._loads(index, row)
        yield from self._starts()
        yield f"    for first in range(0, T, {ahead}):"
        inner: list[str] = []
        for step in range(ahead):
            inner += self._fetch(step)
        for step in range(ahead):
            inner += self._compute(step)
        inner += [f"{self._plain[before]} = {self._plain[before]}_{ahead}" for before, _ in self._carried]
        yield from (f"        {line}" for line in inner)

    def _starts(self) -> Iterator[str]:
        """What the first step finds."""
        yield "    far = rows.to(tl.int64)[:, None]"
        yield "    here = (rows < B)[:, None]"
        for index, carry in enumerate(self._program.carried):
            for units, piece in self._pieces(carry.before):
                where = f"start_{index} + far * {carry.before.width}{units}"
                loaded = f"tl.load({where}, mask=here{self._own(piece)}, other=0)"
                yield f"    {self._plain[piece]} = {loaded}{_inside(piece)}"

    def _fetch(self, step: int) -> Iterator[str]:
        """Where the rows of a step lie, and what it reads there."""
        yield "if RAGGED:"
        yield f"    alive = rows < tl.load(table + first + {step}, mask=first + {step} < T, other=0)"
        yield f"    place = tl.load(table + T + first + {step}, mask=first + {step} < T, other=0)"
        yield "else:"
        yield f"    alive = (rows < B) & (first + {step} < T)"
        yield f"    place = FIRST + (first + {step}) * APART"
        yield f"here_{step} = alive[:, None]"
        yield f"far_{step} = (place + rows).to(tl.int64)[:, None]"
        for index, row in enumerate(self._program.streams):
            for units, piece in self._pieces(row):
                if piece in self._plain:
                    where = f"in_{index} + far_{step} * {row.width}{units}"
                    loaded = f"tl.load({where}, mask=here_{step}{self._own(piece)}, other=0)"
                    yield f"{self._plain[piece]}_{step} = {loaded}"

    def _compute(self, step: int) -> Iterator[str]:
        """One step, and what it leaves for the next."""
        fixed = {piece for row in self._program.constants for piece in self._cut.pieces[row.name]}
        befores = {before for before, _ in self._carried}
        streams = [piece for row in self._program.streams for piece in self._cut.pieces[row.name]]
        self._names = {
            piece: name if piece in fixed or (piece in befores and not step) else f"{name}_{step}"
            for piece, name in self._plain.items()
        }
        for piece in streams:
            if piece in self._names:
                yield f"{self._names[piece]} = {self._names[piece]}{_inside(piece)}"
        yield from map(self._operation, self._operations)
        for index, row in enumerate(self._program.stored):
            for units, piece in self._pieces(row):
                own = self._own(piece) if piece.width > 1 else " & (tl.program_id(1) == 0)"
                value = f"{self._names[piece]}.to({IN_MEMORY[row.dtype]})"
                yield f"tl.store(out_{index} + far_{step} * {row.width}{units}, {value}, mask=here_{step}{own})"
        for before, after in self._carried:
            wide = 1 if before.width == 1 else self.tile.units
            value = f"tl.broadcast_to({self._names[after]}, [{self.tile.rows}, {wide}])"
            yield f"{self._plain[before]}_{step + 1} = {value}"


def _inside(piece: Segment) -> str:
    """What makes a number in memory one in a register."""
    return " != 0" if piece.dtype == torch.bool else f".to({IN_REGISTERS[piece.dtype]})"
