"""The offload plan: what each chunk of time saves for the backward pass with `swap_memory`.

There are two kinds of chunks. One sends to the host the values that only a matmul computes, and recomputes the rest
from them. The other sends almost nothing and recomputes the matmuls too: more work for the device, but a fraction of
the bytes. Both kinds alternate, so that neither the PCIe link nor the device waits for the other. The last chunks stay
on the device.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Self

import torch
from torch import Tensor

from throughtime._text import plural
from throughtime._torch_internals import has_saved_tensor_hooks
from throughtime.backends.hardware_rates import BATCHED_FLOPS, BUS_BYTES, EXACT_FLOPS
from throughtime.backends.loop_backend import LoopBackend
from throughtime.backends.torch_codegen import Env
from throughtime.compiler import Node, Program, Value
from throughtime.compiler.ir.costs import product_flops
from throughtime.layout.step_layout import StepLayout
from throughtime.layout.time_chunks import first_steps
from throughtime.runtime.offload.policy import offload_policy
from throughtime.runtime.offload.recompute import Recompute, light_ones
from throughtime.runtime.offload.transfers import OffloadQueue, is_apart, prefetch, settle

ENOUGH_BYTES = 192 * 2**20
"""And at least, if there is as much: enough steps for the host to stay ahead of the device, and for the full speed of
the bus."""

ENOUGH_BLOCKS = 16
"""Between these limits, the number of chunks if the PCIe link is slower: it is idle while the first one is computed."""


RELIED_ON = 0.88
"""How much of that is planned with: estimates of kernels are a little high, and who waits for the bus loses more than
who computes something again."""


class SaveSet(NamedTuple):
    """The values that a chunk saves on the host, and how the rest is recomputed from them."""

    values: list[Value]
    again: Recompute | None

    @property
    def row_bytes(self) -> int:
        """The saved bytes of one row."""
        return _row_bytes(self.values)


class OffloadPlanner:
    """What the chunks of a program save for its backward pass.

    `stays` is resident for all steps: outputs, random numbers, values without rows. Of the rest a chunk saves either
    `most`, everything that takes a matmul to recompute, or the `least`, what cannot be recomputed at all. `starts` are
    the indices of states that a chunk saves as of its first step. `loops` are the compiled loops, forward and backward.
    """

    def __init__(
        self,
        program: Program,
        loops: Sequence[LoopBackend],
        kept: Sequence[Value],
        lagged: Sequence[int],
        *,
        is_random: bool,
    ) -> None:
        self._program, self.loops, self.states = program, loops, program.states
        self._on_gpu = all(loop.on_gpu for loop in loops)
        apart = {*program.outputs, *program.random.gives, *program.invariant.gives}
        self.stays = [value for value in kept if value in apart or not value.has_rows]
        self._rest = rest = [value for value in kept if value not in set(self.stays)]
        self.row_bytes = _row_bytes(rest)
        self.most = self.least = SaveSet(rest, None)
        # Random numbers that a step draws would differ in a recomputation.
        if not is_random:
            states = {*program.state, *program.new_state}
            there = {*program.inputs, *program.random.gives, *program.invariant.gives, *self.stays, *states}
            values = [value for value in rest if value not in states]
            self.most = self._level(light_ones(program, values, there), light=True)
            self.least = self._level(set(values), light=False)
        again = [level.again for level in (self.most, self.least) if level.again is not None]
        self.starts = sorted({*lagged, *(index for one in again for index in one.states)})

    def _level(self, wanted: set[Value], *, light: bool) -> SaveSet:
        """The save set without the required values and the states that a scan recomputes, where that is possible."""
        program, rest = self._program, self._rest

        def recompute(scanned: Sequence[int]) -> Recompute | None:
            without = wanted | {program.new_state[index] for index in scanned}
            there = {*self.stays, *(value for value in rest if value not in without)}
            found = [value for value in rest if value in without]
            return Recompute.of(program, there, found, scanned, on_gpu=self._on_gpu, light=light)

        best, scanned = recompute([]), list[int]()
        if self._on_gpu:
            # A state that is not saved may still be needed to recompute others.
            unknown = [index for index, new in enumerate(program.new_state) if new in rest or best is None]
            # All of them if that is possible, otherwise one by one.
            for attempt in ([*unknown], *([index] for index in unknown)):
                found = None if set(scanned).issuperset(attempt) else recompute(sorted({*scanned, *attempt}))
                if found is not None:
                    best, scanned = found, sorted({*scanned, *attempt})
        return SaveSet(rest if best is None else [value for value in rest if value not in best.gives], best)

    def plan(self, steps: StepLayout, most: int | None, device: torch.device) -> OffloadedChunks | None:
        """The chunks of an unroll, of at `most` this number of steps; None if all saved values can stay resident."""
        policy = offload_policy.value
        smallest = min(policy.block, ENOUGH_BYTES)
        small = steps.total * self.row_bytes <= policy.resident + smallest
        if small or steps.row_stride != 1 or not is_apart(device) or _is_captured(device):
            return None
        share = policy.share_sent
        if share is None:
            share = self.share_sent(steps.total / len(steps.counts), device)
        nbytes = smallest
        if share < 1:
            nbytes = min(policy.block, max(smallest, steps.total * self.row_bytes // ENOUGH_BLOCKS))
        # A power of two, as the allocator of pinned memory rounds up to one.
        rows = 1 << max(0, (nbytes // self.row_bytes).bit_length() - 1)
        firsts = first_steps(steps.counts, most_steps=most, most_rows=rows)
        resident, held = len(firsts) - 1, sum(steps.counts[firsts[-1] :])
        for first, last in reversed(list(itertools.pairwise(firsts))):
            held += sum(steps.counts[first:last])
            if held * self.row_bytes > policy.resident:
                break
            resident -= 1
        return OffloadedChunks(self, device, firsts, resident, share, is_dense=steps.is_full)

    def share_sent(self, rows: float, device: torch.device) -> float:
        """The share of chunks that save most, for steps of `rows` rows: what the PCIe link carries in the meantime."""
        loop = self.loops[0].seconds(math.ceil(rows), device) if self._on_gpu else None
        least, most = (rows * level.row_bytes / BUS_BYTES for level in (self.least, self.most))
        again = 0.0 if self.least.again is None else rows * _seconds(self.least.again.products)
        # Steps outside of CUDA graphs are slower than the PCIe link, and float32 matmuls may be.
        if loop is None or most - least <= again or most <= least:
            return 1.0
        outside = [*self._program.before.nodes, *self._program.after.nodes]
        seconds = RELIED_ON * (loop + rows * _seconds(outside))
        return min(1.0, max(0.0, (seconds - least) / (most - least)))


def _is_captured(device: torch.device) -> bool:
    """Whether a CUDA graph is being captured: it cannot allocate pinned host memory."""
    return device.type == "cuda" and torch.cuda.is_current_stream_capturing()


def _row_bytes(values: Iterable[Value]) -> int:
    return sum(value.row_bytes for value in values)


def _seconds(nodes: Iterable[Node]) -> float:
    """What a row takes in products that are computed for all steps at once."""
    exact = torch.get_float32_matmul_precision() == "highest"
    rates = {**BATCHED_FLOPS, torch.float32: EXACT_FLOPS} if exact else BATCHED_FLOPS
    return sum(product_flops(node) / rates.get(node.results[0].dtype, EXACT_FLOPS) for node in nodes)


class OffloadedChunks:
    """The saved values of the chunks of one unroll. `firsts` are their first steps."""

    def __init__(
        self,
        keeping: OffloadPlanner,
        device: torch.device,
        firsts: list[int],
        resident: int,
        share: float,
        *,
        is_dense: bool,
    ) -> None:
        self.keeping, self.firsts, self.is_dense = keeping, firsts, is_dense
        self._device = device
        # From this chunk on they stay on the device.
        self._resident = resident
        # Spread evenly, so that the PCIe link is never idle, and least at the end, so that it is done by then.
        sent = [int((left + 1) * share) > int(left * share) for left in reversed(range(resident))]
        self._levels = [keeping.most if most else keeping.least for most in sent]
        self._levels += [keeping.most if share == 1 else keeping.least] * (len(firsts) - resident)
        self._tensors: list[Tensor] = []

    def __str__(self) -> str:
        most, least = (level.row_bytes for level in (self.keeping.most, self.keeping.least))
        few = sum(level is self.keeping.least for level in self._levels[: self._resident])
        blocks, wait = plural(len(self.firsts), "block"), "waits" if self._resident == 1 else "wait"
        said = f"{self._resident} of {blocks} of steps {wait} on the host, {plural(most, 'byte')} a step and row"
        if most == least or not few:
            return said
        kept = f"{least:,}" if least else "none"
        return f"{said}; {few} of them with {kept}, and the rest is computed again, for all steps at once"

    @contextlib.contextmanager
    def departures(self) -> Iterator[OffloadQueue]:
        """The queue of copies to the host, for the duration of the forward pass."""
        with OffloadQueue(self._device) as departures, self.keeping.loops[0].held():
            yield departures

    def add(self, block: int, env: Env, starts: Sequence[Tensor], departures: OffloadQueue) -> None:
        """Save the values of a chunk, and its initial states."""
        here = [env[value].contiguous() for value in self._levels[block].values]
        here += [starts[index] for index in self.keeping.starts]
        self._tensors += here if block >= self._resident else departures.send(here)

    def take(self) -> list[Tensor]:
        """All saved tensors; the caller owns them from now on."""
        if has_saved_tensor_hooks():
            # Saved-tensor hooks may read the tensors immediately.
            settle(self._device)
        tensors, self._tensors = self._tensors, []
        return tensors

    def returned(self, tensors: Sequence[Tensor]) -> Prefetcher:
        """A context that copies the taken tensors back to the device."""
        return Prefetcher(self, self._levels, tensors, self._device)


class Prefetcher:
    """The saved values of all chunks on their way back to the device, last chunk first."""

    def __init__(
        self, kept: OffloadedChunks, levels: Sequence[SaveSet], tensors: Sequence[Tensor], device: torch.device
    ) -> None:
        self.firsts = kept.firsts
        self._keeping, self._is_dense = kept.keeping, kept.is_dense
        self._levels = list(levels)
        self._stays: list[tuple[Value, Value, Tensor]] = []
        sizes = [len(level.values) + len(self._keeping.starts) for level in levels]
        ends = itertools.accumulate(sizes)
        pieces = [tensors[end - size : end] for size, end in zip(sizes, ends, strict=True)]
        self._coming = prefetch(reversed(pieces), device)
        self._within = contextlib.ExitStack()

    def __enter__(self) -> Self:
        self._within.enter_context(contextlib.closing(self._coming))
        self._within.enter_context(self._keeping.loops[1].held())
        return self

    def __exit__(self, *_: object) -> None:
        self._within.close()

    def begin(self, env: Env) -> None:
        """Add the values that the recomputation of all chunks reads."""
        for level in {id(level): level for level in self._levels}.values():
            if level.again is not None:
                level.again.run_invariant(env)
        if self._is_dense:
            self._stays = [(*pair, env[pair[1]]) for pair in self._keeping.states if pair[1] in env]

    def enter_next(self, env: Env, steps: StepLayout) -> dict[int, Tensor]:
        """Add the saved and recomputed values of the next chunk; returns its initial states by index."""
        level, here = self._levels.pop(), next(self._coming)
        env.update(zip(level.values, here, strict=False))
        starts = dict(zip(self._keeping.starts, here[len(level.values) :], strict=True))
        for old, new, stream in self._stays:
            before = _rows_before(stream, env[new], steps)
            if before is not None:
                env[old] = before
        if level.again is not None:
            level.again.run(env, starts, steps)
        return starts


def _rows_before(stream: Tensor, part: Tensor, steps: StepLayout) -> Tensor | None:
    """The rows of a dense buffer one step before a part of it; None if some are outside of it."""
    if len(steps.counts) == 1:
        return None
    first = (part.data_ptr() - stream.data_ptr()) // (stream.stride(0) * stream.element_size())
    first -= steps.starts[1] - steps.starts[0]
    return stream[first : first + len(part)] if 0 <= first <= len(stream) - len(part) else None
