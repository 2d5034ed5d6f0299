"""What blocks of steps keep for the backward pass when memory is swapped.

A block keeps on the host all that its backward pass needs, or nothing but the states, from which the rest is computed
again. That is more work for the device, and a fraction of the bytes for the bus: blocks of both kinds take turns, so
that neither has to wait for the other. The last blocks stay on the device.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Self

import torch
from torch import Tensor

from throughtime.backends._again import Again, light_ones
from throughtime.backends._host_streams import Departures, arrivals, is_apart, settle
from throughtime.backends._steps import Steps
from throughtime.backends._torch_code import Env
from throughtime.compiler import Node, Program, Value

BLOCK_BYTES = 256 * 2**20
"""What the backward pass needs of a block, at most: enough steps for the host to stay ahead of the device, and for the
full speed of the bus."""

RESIDENT_BYTES = 256 * 2**20
"""What stays on the device of the last blocks: they are needed first, when nothing could be back yet."""

BUS_BYTES = 55e9
"""What the bus carries each way, bytes a second."""

WEIGHT_BYTES = 2e12
"""How fast a loop goes through its weights at every step, bytes a second; half as fast where products are exact."""

STEP_SECONDS = 2e-6
"""The least that a step takes."""

FLOPS = {torch.float32: 3.4e14, torch.bfloat16: 7e14, torch.float16: 7e14}
EXACT_FLOPS = 5e13
"""Operations a second of large products. All of these were measured on an H200; it is their ratios that decide."""


class Level(NamedTuple):
    """What a block keeps on the host, and how the rest of what its backward pass needs is found from that."""

    values: list[Value]
    again: Again | None

    @property
    def row_bytes(self) -> int:
        """What it keeps of a row of a step, in bytes."""
        return _row_bytes(self.values)


class Keeping:
    """What blocks keep of what the backward pass of a program needs.

    `stays` is there for all steps anyway: outputs, random numbers, what has no rows. Of the rest a block keeps `most`,
    all that only a product would lead to, or the `least`, the states. `starts` are the states, by their place, that a
    block keeps as they were at its first step.
    """

    def __init__(self, program: Program, kept: Sequence[Value], lagged: Sequence[int], *, is_random: bool) -> None:
        self._program = program
        apart = {*program.outputs, *program.drawn.gives, *program.invariant.gives}
        self.stays = [value for value in kept if value in apart or not value.has_rows]
        rest = [value for value in kept if value not in set(self.stays)]
        self.row_bytes = _row_bytes(rest)
        self.most = self.least = Level(rest, None)
        # What is drawn within a step would be something else the second time.
        if not is_random:
            there = {*program.inputs, *program.drawn.gives, *program.invariant.gives, *self.stays}
            states = {*program.state, *(new for new in program.new_state if new in rest)}
            found = light_ones(program, [value for value in rest if value not in states], there | states)
            light = [value for value in rest if value in found]
            self.most = self._level(kept, rest, there | (set(rest) - found), light, lagged)
            self.least = self._level(kept, rest, there, rest, lagged)
        again = [level.again for level in (self.most, self.least) if level.again is not None]
        self.starts = sorted({*lagged, *(index for one in again for index in one.states)})

    def _level(
        self, kept: Sequence[Value], rest: list[Value], there: set[Value], wanted: list[Value], lagged: Sequence[int]
    ) -> Level:
        again = Again.of(self._program, kept, there, wanted, lagged)
        return Level(rest if again is None else [value for value in rest if value not in again.gives], again)

    def plan(self, steps: Steps, most: int | None, device: torch.device) -> Kept | None:
        """The blocks of a walk, of so many steps at `most`; None if so little is kept that all of it can stay."""
        small = steps.total * self.row_bytes <= RESIDENT_BYTES + BLOCK_BYTES
        if small or steps.row_stride != 1 or not is_apart(device) or _is_captured(device):
            return None
        # A power of two: pinned memory is given out in such pieces.
        rows = 1 << max(0, (BLOCK_BYTES // self.row_bytes).bit_length() - 1)
        firsts = cut(steps.counts, rows, most)
        resident, left = len(firsts), RESIDENT_BYTES
        for first, last in reversed(list(itertools.pairwise([*firsts, len(steps.counts)]))):
            left -= sum(steps.counts[first:last]) * self.row_bytes
            if left < 0:
                break
            resident -= 1
        return Kept(self, device, firsts, resident, self.share_sent(steps.total / len(steps.counts)))

    def share_sent(self, rows: float) -> float:
        """The share of blocks that keep most, for steps of so many rows: what the bus carries in the meantime."""
        least, most = (rows * level.row_bytes / BUS_BYTES for level in (self.least, self.most))
        return (
            1.0 if most <= least else min(1.0, max(0.0, (_step_seconds(self._program, rows) - least) / (most - least)))
        )


def _is_captured(device: torch.device) -> bool:
    """Whether a CUDA graph is being captured: it has its memory to itself, and can have none of the host's."""
    return device.type == "cuda" and torch.cuda.is_current_stream_capturing()


def _row_bytes(values: Iterable[Value]) -> int:
    return sum(value.row_size * value.dtype.itemsize for value in values)


def _step_seconds(program: Program, rows: float) -> float:
    """About how long a step of so many rows takes in the forward pass, with its part in what is done for all steps."""
    weights = [value for value in program.loop.reads if not value.has_rows]
    dtype = max((value.dtype for value in weights), key=lambda dtype: dtype.itemsize, default=torch.float32)
    exact = dtype == torch.float64 or (dtype == torch.float32 and torch.get_float32_matmul_precision() == "highest")
    outside = sum(_flops(node) for section in (program.before, program.after) for node in section.nodes)
    rate = EXACT_FLOPS if exact else FLOPS.get(dtype, EXACT_FLOPS)
    return STEP_SECONDS + _row_bytes(weights) * (1 + exact) / WEIGHT_BYTES + rows * outside / rate


def _flops(node: Node) -> int:
    """Operations of a product for one row."""
    if node.name != "mm" or not node.result.has_rows:
        return 0
    inner = node.args[0].shape[-1]
    return 2 * node.result.row_size * (inner if isinstance(inner, int) else 1)


def cut(counts: Sequence[int], rows: int, most: int | None) -> list[int]:
    """The first steps of blocks of at most so many rows, and at `most` so many steps; a block has at least one."""
    firsts: list[int] = []
    held = 0
    for step, count in enumerate(counts):
        if not firsts or held + count > rows or (most is not None and step - firsts[-1] >= most):
            firsts.append(step)
            held = 0
        held += count
    return firsts


class Kept:
    """What the blocks of one walk have kept. `firsts` are their first steps."""

    def __init__(self, keeping: Keeping, device: torch.device, firsts: list[int], resident: int, share: float) -> None:
        self.keeping, self.firsts = keeping, firsts
        self._device = device
        # From this block on they stay on the device.
        self._resident = resident
        # Spread evenly, so that the bus always has something to do.
        sent = [int((block + 1) * share) > int(block * share) for block in range(resident)]
        self._levels = [keeping.most if most else keeping.least for most in sent]
        self._levels += [keeping.most] * (len(firsts) - resident)
        self._tensors: list[Tensor] = []

    def __str__(self) -> str:
        most, least = (level.row_bytes for level in (self.keeping.most, self.keeping.least))
        few = sum(level is self.keeping.least for level in self._levels[: self._resident])
        said = f"{self._resident} of {len(self.firsts)} blocks of steps wait on the host, {most:,} bytes a step and row"
        if most == least or not few:
            return said
        return f"{said}; {few} of them with {least:,}, and the rest is computed again, for all steps at once"

    def departures(self) -> Departures:
        """The way to the host, for as long as the forward pass runs."""
        return Departures(self._device)

    def add(self, block: int, env: Env, starts: Sequence[Tensor], departures: Departures) -> None:
        """Keep what a block has computed, and the states that it started from."""
        here = [env[value].contiguous() for value in self._levels[block].values]
        here += [starts[index] for index in self.keeping.starts]
        self._tensors += here if block >= self._resident else departures.send(here)

    def take(self) -> list[Tensor]:
        """All that is kept; somebody else holds it from now on."""
        if torch._C._autograd._top_saved_tensors_default_hooks(True) is not None:
            # Hooks see saved tensors, and may read them at once.
            settle(self._device)
        tensors, self._tensors = self._tensors, []
        return tensors

    def returned(self, tensors: Sequence[Tensor]) -> Returned:
        """What has been taken, on its way back; a context."""
        return Returned(self, self._levels, tensors, self._device)


class Returned:
    """What the blocks of a walk have kept, coming back for its backward pass: the last block comes first."""

    def __init__(self, kept: Kept, levels: Sequence[Level], tensors: Sequence[Tensor], device: torch.device) -> None:
        self.firsts = kept.firsts
        self._keeping = kept.keeping
        self._levels = list(levels)
        sizes = [len(level.values) + len(self._keeping.starts) for level in levels]
        ends = itertools.accumulate(sizes)
        pieces = [tensors[end - size : end] for size, end in zip(sizes, ends, strict=True)]
        self._coming = arrivals(reversed(pieces), device)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._coming.close()

    def begin(self, env: Env) -> None:
        """Add what all blocks need of the cell's tensors to find the rest."""
        for level in {id(level): level for level in self._levels}.values():
            if level.again is not None:
                level.again.run_invariant(env)

    def enter_next(self, env: Env, steps: Steps) -> dict[int, Tensor]:
        """Add what the next block has kept and what follows from it; gives the states, by place, that it began with."""
        level, here = self._levels.pop(), next(self._coming)
        env.update(zip(level.values, here, strict=False))
        starts = dict(zip(self._keeping.starts, here[len(level.values) :], strict=True))
        if level.again is not None:
            level.again.run(env, starts, steps)
        return starts
