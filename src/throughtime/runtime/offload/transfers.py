"""Tensors of blocks of steps that wait on the host: the way there and back.

What a block leaves for the backward pass is copied to pinned host memory while the next blocks run, and back ahead of
the backward pass, on a stream of its own. The host never waits. The stream that computes waits for the copies of a
block before its memory on the device is used again, so that no more than a few blocks are there at any time however far
the host runs ahead.
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
"""Blocks that are on their way while another is computed: one to be copied, one so that the bus is never idle."""


def is_apart(device: torch.device) -> bool:
    """Whether host memory is elsewhere than the memory of a device: else there is nothing to be won."""
    return offload_policy.value.is_apart(device)


class _TransferStream:
    """Copies between a device and the host, one after another, beside what is computed."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    def is_away(self, tensor: Tensor) -> bool:
        """Whether a tensor has left the device."""
        return tensor.device != self._device

    def out(self, tensor: Tensor) -> Tensor:
        """Host memory for a tensor."""
        return torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu", pin_memory=self._stream is not None)

    def back(self, tensor: Tensor) -> Tensor:
        """Memory on the device for a tensor. It belongs to the stream that computes, which must wait for the copy."""
        return torch.empty(tensor.shape, dtype=tensor.dtype, device=self._device)

    def copy(self, pairs: Sequence[tuple[Tensor, Tensor]]) -> torch.cuda.Event | None:
        """Fill the first of each pair with the second, once it is computed; the event tells when that is done."""
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
        """Let what is computed from now on wait for copies."""
        if done is not None:
            torch.cuda.current_stream(self._device).wait_event(done)

    def finish(self) -> None:
        """Let the host wait until everything is copied."""
        if self._stream is not None:
            self._stream.synchronize()


def _bus(device: torch.device) -> _TransferStream:
    make = offload_policy.value.make_bus
    bus: _TransferStream = _stream_of(device) if make is None else make(device)
    return bus


@lru_cache
def _stream_of(device: torch.device) -> _TransferStream:
    """One for each device: copies back come after the copies out, because one follows the other."""
    return _TransferStream(device)


_Journey = tuple[list[Tensor], "torch.cuda.Event | None"]


class OffloadQueue:
    """The way to the host. As a context it ends when every copy is done, whatever happens in it."""

    def __init__(self, device: torch.device) -> None:
        self._bus = _bus(device)
        self._leaving: deque[_Journey] = deque()
        self._largest = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._make_room(-1)

    def send(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """The contiguous tensors of one block in host memory, which is filled when the device gets there."""
        here = sum(tensor.nbytes for tensor in tensors)
        self._largest = max(self._largest, here)
        # Blocks that leave next to nothing behind do not keep others from leaving: a quarter of a block for them all.
        self._make_room((4 * IN_FLIGHT + 1) * self._largest // 4 - here)
        there = [self._bus.out(tensor) for tensor in tensors]
        done = self._bus.copy(list(zip(there, tensors, strict=True)))
        self._leaving.append((list(tensors), done))
        return there

    def _make_room(self, nbytes: int) -> None:
        """Let go of what leaves first until no more than so many bytes are on their way; of all if it is negative."""
        left = sum(tensor.nbytes for tensors, _ in self._leaving for tensor in tensors)
        while self._leaving and left > nbytes:
            tensors, done = self._leaving[0]
            # Only after this does the memory belong to what is computed next.
            self._bus.wait_for(done)
            left -= sum(tensor.nbytes for tensor in tensors)
            del tensors
            self._leaving.popleft()


def settle(device: torch.device) -> None:
    """Let the host wait for all copies: for those who look into host memory themselves."""
    _bus(device).finish()


def prefetch(blocks: Iterable[Sequence[Tensor]], device: torch.device) -> Generator[list[Tensor], None, None]:
    """The tensors of each block on the device; by then the blocks after it are on their way.

    Tensors that never left it are handed on. Close the iterator if it may not have come to its end.
    """
    bus = _bus(device)
    coming: deque[_Journey] = deque()
    try:
        for block in blocks:
            coming.append(_set_off(bus, block))
            if len(coming) > IN_FLIGHT:
                yield _arrived(bus, coming)
        while coming:
            yield _arrived(bus, coming)
    finally:
        # What is still coming must not land in memory that has been given to others.
        for _, done in coming:
            bus.wait_for(done)


def _set_off(bus: _TransferStream, block: Sequence[Tensor]) -> _Journey:
    here = [bus.back(tensor) if bus.is_away(tensor) else tensor for tensor in block]
    pairs = [pair for pair in zip(here, block, strict=True) if pair[0] is not pair[1]]
    return here, bus.copy(pairs) if pairs else None


def _arrived(bus: _TransferStream, coming: deque[_Journey]) -> list[Tensor]:
    bus.wait_for(coming[0][1])
    return coming.popleft()[0]
