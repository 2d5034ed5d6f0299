"""The loop of a program in torch operations, for any cell that can be traced; on a GPU as CUDA graphs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from throughtime.backends import triton
from throughtime.backends.aten.chunk_buffers import StepCode
from throughtime.backends.aten.cuda_graphs import GraphedLoop
from throughtime.backends.loop_backend import LoopBackend
from throughtime.backends.torch_codegen import Env, Generators, SectionFunction
from throughtime.compiler import Loop, Value
from throughtime.layout.previous_step import LaggedStreams
from throughtime.layout.step_layout import StepLayout


class AtenLoop(LoopBackend):
    """A loop that calls a generated function at every step."""

    def __init__(self, loop: Loop, *, on_gpu: bool = False) -> None:
        self._loop = loop
        self.on_gpu = on_gpu
        self.takes = loop.reads
        self._function = SectionFunction(loop.name, loop.nodes, [*loop.stored, *(after for _, after in loop.carried)])
        # `gives` has each value once; every index of the results needs one.
        places = {value: index for index, value in enumerate(self._function.gives)}
        self._kept = [places[value] for value in loop.stored]
        left = [places[after] for _, after in loop.carried]
        # Loop-invariant states are read in place.
        self._moving = [index for index, (before, after) in enumerate(loop.carried) if before is not after]
        self._left = [left[index] for index in self._moving]
        self._replays = GraphedLoop(StepCode(loop, self._function, self._kept, left))

    @property
    def source(self) -> str:
        """The generated code of a step; on a GPU with fused kernels."""
        return self._replays.source if self.on_gpu and triton.has_triton() else self._function.source

    def unsupported_reason(self, device: torch.device, *, must: bool) -> str | None:
        """Why steps cannot be captured in CUDA graphs on a GPU, which makes the loop slow."""
        if must or device.type != "cuda" or self._replays.refusal is None:
            return None
        return f"{self._replays.refusal}; step by step from Python it is not faster than the reference"

    def seconds(self, rows: int, device: torch.device) -> float | None:
        """The estimated time of a step of `rows` rows on a GPU; None if there is no estimate."""
        return None if self._replays.refusal is not None else self._replays.seconds(rows, device)

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
        if not carried:
            # Nothing is recurrent, so the loop is empty.
            return
        longest = self._replays.longest(steps, carried[0].device)
        if longest:
            self._replays.run(env, lagged, carried, stored, steps, longest)
            return
        order = range(len(steps.counts))[:: -1 if self._loop.reverse else 1]
        moving = [carried[index] for index in self._moving]
        arguments, carried_at, streamed = self._arguments(env, lagged, carried, steps)
        current, rows = [tensor[:0] for tensor in moving], 0
        kept: list[list[Tensor]] = [[] for _ in self._kept]
        function, counts = self._function.call, steps.counts
        for step in order:
            if counts[step] != rows:
                current, rows = _with_rows(current, moving, rows, counts[step]), counts[step]
            for place, index in carried_at:
                arguments[place] = current[index]
            for place, parts in streamed:
                arguments[place] = parts[step]
            results = function(rows, generators, *arguments)
            for pieces, index in zip(kept, self._kept, strict=True):
                pieces.append(results[index])
            current = [results[index] for index in self._left]
        for tensor, rest in zip(moving, current, strict=True):
            tensor[:rows] = rest
        for stream, pieces, value in zip(stored, kept, self._loop.stored, strict=True):
            _put(stream, value, pieces[:: -1 if self._loop.reverse else 1], steps)

    def _arguments(
        self, env: Env, lagged: LaggedStreams, carried: Sequence[Tensor], steps: StepLayout
    ) -> tuple[list[Any], list[tuple[int, int]], list[tuple[int, Sequence[Tensor]]]]:
        """The arguments of a step, and the indices of those that are carried or differ from step to step."""
        arguments: list[Any] = [None] * len(self._function.takes)
        carried_at: list[tuple[int, int]] = []
        streamed: list[tuple[int, Sequence[Tensor]]] = []
        states = {before: (index, before is after) for index, (before, after) in enumerate(self._loop.carried)}
        for place, value in enumerate(self._function.takes):
            index, stays = states.get(value, (-1, False))
            if index >= 0 and not stays:
                carried_at.append((place, self._moving.index(index)))
            elif index >= 0:
                streamed.append((place, [carried[index][:count] for count in steps.counts]))
            elif value in lagged:
                streamed.append((place, _lagged_parts(*lagged[value], steps)))
            elif value.has_rows:
                parts = steps.split(value.rows_first(env[value]))
                streamed.append((place, parts if not value.row_axis else [*map(value.rows_placed, parts)]))
            else:
                arguments[place] = env[value]
        return arguments, carried_at, streamed


def _lagged_parts(stream: Tensor, initial: Tensor, steps: StepLayout) -> list[Tensor]:
    """For each step the rows of the previous step."""
    pieces = [initial, *steps.split(stream)]
    return [piece if len(piece) == count else piece[:count] for piece, count in zip(pieces, steps.counts, strict=False)]


def _with_rows(current: list[Tensor], carried: Sequence[Tensor], rows: int, wanted: int) -> list[Tensor]:
    """The carried state for the rows of the next step: rows that end are stored, rows that begin are appended."""
    if wanted == rows:
        return current
    if wanted < rows:
        for tensor, now in zip(carried, current, strict=True):
            tensor[wanted:rows] = now[wanted:]
        return [now[:wanted] for now in current]
    if not rows:
        # Copies: what a step has stored must not change when `carried` does.
        return [tensor[:wanted].clone() for tensor in carried]
    return [torch.cat([now, tensor[rows:wanted]]) for now, tensor in zip(current, carried, strict=True)]


def _put(stream: Tensor, value: Value, pieces: list[Tensor], steps: StepLayout) -> None:
    """Write the rows of each step to their positions."""
    rows = [value.rows_first(piece) for piece in pieces]
    if steps.starts[0]:
        # Sequences run from their ends.
        rows.reverse()
    if steps.row_stride == 1:
        torch.cat(rows, out=stream)
    else:
        torch.stack(rows, 1, out=stream.unflatten(0, (steps.batch_size, steps.row_stride)))
