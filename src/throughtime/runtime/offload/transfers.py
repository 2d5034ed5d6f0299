"""Copies of saved tensors to pinned host memory and back.

The saved tensors of a chunk are copied to the host while the next chunks run, and back ahead of the backward pass, on a
CUDA stream of their own. The host never waits. The compute stream waits for the copies of a chunk before its device
memory is reused, so that only a few chunks are on the device at any time, however far the host runs ahead.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable, Sequence
from functools import lru_cache
from typing import Self

import torch
from torch import Tensor

from throughtime.runtime.offload.policy import offload_policy

IN_FLIGHT = 2
"""Chunks in flight while another one is computed: one being copied, and one queued so that the link is never idle."""


def is_apart(device: torch.device) -> bool:
    """Whether a device has memory of its own: otherwise offloading saves nothing."""
    return offload_policy.value.is_apart(device)


class _TransferStream:
    """Copies between a device and the host, in order, concurrent with computation."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    def is_away(self, tensor: Tensor) -> bool:
        """Whether a tensor is on the host."""
        return tensor.device != self._device

    def out(self, tensor: Tensor) -> Tensor:
        """Host memory for a tensor."""
        return torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu", pin_memory=self._stream is not None)

    def back(self, tensor: Tensor) -> Tensor:
        """Device memory for a tensor. It belongs to the compute stream, which must wait for the copy."""
        return torch.empty(tensor.shape, dtype=tensor.dtype, device=self._device)

    def copy(self, pairs: Sequence[tuple[Tensor, Tensor]]) -> torch.cuda.Event | None:
        """Copy the second of each pair to the first, once it is computed; the event marks the end."""
        if self._stream is None:
            for there, here in pairs:
                there.copy_(here)
            return None
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._stream):
            for there, here in pairs:
                there.copy_(here, non_blocking=True)
        done = torch.cuda.Event()
        done.record(self._stream)
        return done

    def wait_for(self, done: torch.cuda.Event | None) -> None:
        """Make later computation wait for copies."""
        if done is not None:
            torch.cuda.current_stream(self._device).wait_event(done)

    def finish(self) -> None:
        """Block the host until everything is copied."""
        if self._stream is not None:
            self._stream.synchronize()


def _transfers(device: torch.device) -> _TransferStream:
    make = offload_policy.value.make_bus
    stream: _TransferStream = _stream_of(device) if make is None else make(device)
    return stream


@lru_cache
def _stream_of(device: torch.device) -> _TransferStream:
    """One for each device: copies are in order, so a copy back follows the copy out."""
    return _TransferStream(device)


_Transfer = tuple[list[Tensor], "torch.cuda.Event | None"]


class OffloadQueue:
    """Copies to the host. As a context it ends when every copy is done, also after an error."""

    def __init__(self, device: torch.device) -> None:
        self._transfers = _transfers(device)
        self._leaving: deque[_Transfer] = deque()
        self._largest = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._release_until(-1)

    def send(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Host memory for the contiguous tensors of one chunk, filled asynchronously."""
        here = sum(tensor.nbytes for tensor in tensors)
        self._largest = max(self._largest, here)
        # Chunks that save almost nothing must not delay others: a quarter of a chunk is reserved for them.
        self._release_until((4 * IN_FLIGHT + 1) * self._largest // 4 - here)
        there = [self._transfers.out(tensor) for tensor in tensors]
        done = self._transfers.copy(list(zip(there, tensors, strict=True)))
        self._leaving.append((list(tensors), done))
        return there

    def _release_until(self, nbytes: int) -> None:
        """Release the oldest chunks until at most `nbytes` are in flight; all of them if it is negative."""
        left = sum(tensor.nbytes for tensors, _ in self._leaving for tensor in tensors)
        while self._leaving and left > nbytes:
            tensors, done = self._leaving[0]
            # From here on, later computation may reuse the memory.
            self._transfers.wait_for(done)
            left -= sum(tensor.nbytes for tensor in tensors)
            del tensors
            self._leaving.popleft()


def settle(device: torch.device) -> None:
    """Block the host until all copies are done: before the caller reads host memory."""
    _transfers(device).finish()


def prefetch(blocks: Iterable[Sequence[Tensor]], device: torch.device) -> Generator[list[Tensor], None, None]:
    """The tensors of each chunk on the device; by then the copies of the next chunks have started.

    Tensors that stayed on the device are returned as they are. Close the iterator if it may not be exhausted.
    """
    transfers = _transfers(device)
    coming: deque[_Transfer] = deque()
    try:
        for block in blocks:
            coming.append(_start(transfers, block))
            if len(coming) > IN_FLIGHT:
                yield _finished(transfers, coming)
        while coming:
            yield _finished(transfers, coming)
    finally:
        # A copy in flight must not write to memory that has been reused.
        for _, done in coming:
            transfers.wait_for(done)


def _start(transfers: _TransferStream, block: Sequence[Tensor]) -> _Transfer:
    here = [transfers.back(tensor) if transfers.is_away(tensor) else tensor for tensor in block]
    pairs = [pair for pair in zip(here, block, strict=True) if pair[0] is not pair[1]]
    return here, transfers.copy(pairs) if pairs else None


def _finished(transfers: _TransferStream, coming: deque[_Transfer]) -> list[Tensor]:
    transfers.wait_for(coming[0][1])
    return coming.popleft()[0]
