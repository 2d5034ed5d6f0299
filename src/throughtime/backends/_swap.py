"""Swapping: what the backward pass needs waits in host memory instead of on the GPU.

The forward pass hands every tensor it saves to a `HostSwap`, which copies it to pinned host memory on a side stream
and then lets go of it. The backward pass asks for them in about the opposite order, so each request also starts the
copies back of the tensors saved just before: they arrive ahead of need. Both directions are bounded by a window of
bytes, so that a fast forward pass cannot outrun the copies and fill the card after all.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from throughtime import _nest

WINDOW_BYTES = 128 * 2**20
"""How much may be on its way in either direction: less would slow the copies down, more only costs memory."""

BLOCK_BYTES = 32 * 2**20
"""Pinned memory is taken in blocks of this size: one allocation for thousands of small tensors."""

SMALLEST_BYTES = 2**12
"""Tensors below this stay on the GPU: a copy costs more than they do."""


def swapping(wanted: bool, cell: Any, tensors: Any) -> contextlib.AbstractContextManager[Any]:
    """A context in which saved tensors go to the host, if that is wanted and `tensors` are on a CUDA device.

    On a CPU it does nothing: host memory is where they are. The cell's parameters and `tensors` themselves stay: they
    live longer than the loop.
    """
    devices = {leaf.device for leaf in _nest.flatten(tensors) if isinstance(leaf, Tensor) and leaf.is_cuda}
    if not wanted or not devices or not torch.is_grad_enabled():
        return contextlib.nullcontext()
    resident = [leaf for leaf in _nest.flatten(tensors) if isinstance(leaf, Tensor)]
    if isinstance(cell, nn.Module):
        resident += cell.parameters()
    return _swap_to_host(HostSwap(devices.pop(), resident))


@contextlib.contextmanager
def _swap_to_host(swap: HostSwap) -> Iterator[HostSwap]:
    with saved_tensors_hooks(swap.send, swap.fetch):
        yield swap
    swap.finish_sending()


class _Saved:
    """One saved tensor: on the device until its copy has arrived, then on the host."""

    def __init__(self, tensor: Tensor, host: Tensor, key: Any) -> None:
        self.on_device: Tensor | None = tensor
        self.host = host
        self.key = key
        self.uses = 1
        self.asked = 0
        self.position = 0
        self.brought = False
        self.ready = torch.cuda.Event()

    @property
    def nbytes(self) -> int:
        return self.host.numel() * self.host.element_size()


class HostSwap:
    """Keeps saved tensors of one unroll in pinned host memory."""

    def __init__(self, device: torch.device, resident: Iterable[Tensor], window_bytes: int = WINDOW_BYTES) -> None:
        self._device = device
        self._window = window_bytes
        self._resident = {tensor.untyped_storage().data_ptr() for tensor in resident}
        self._stream = torch.cuda.Stream(device)
        self._arena = _PinnedArena()
        self._saved: list[_Saved] = []
        # Tensors on their way to the host, oldest first; by key, so that one tensor saved twice travels once.
        self._sending: deque[_Saved] = deque()
        self._by_key: dict[Any, _Saved] = {}
        self._sending_bytes = 0
        # What has been handed to the backward pass, with an event after which it was surely used.
        self._handed: deque[tuple[torch.cuda.Event, int]] = deque()
        self._handed_bytes = 0
        self._fetched_bytes = 0
        # Everything saved after this position has been brought back, or asked for, already.
        self._ahead = -1

    def send(self, tensor: Tensor) -> Tensor | _Saved:
        """Called by autograd for each tensor it saves."""
        if not self._worth_sending(tensor):
            return tensor
        key = (tensor.data_ptr(), tensor._version, tensor.shape, tensor.stride(), tensor.dtype)
        known = self._by_key.get(key)
        if known is not None:
            known.uses += 1
            return known
        saved = _Saved(tensor.detach(), self._arena.empty_like(tensor), key)
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._stream), torch.no_grad():
            saved.host.copy_(tensor, non_blocking=True)
            saved.ready.record(self._stream)
        saved.position = len(self._saved)
        self._saved.append(saved)
        self._by_key[key] = saved
        self._sending.append(saved)
        self._sending_bytes += saved.nbytes
        self._release_sent(self._window)
        return saved

    def finish_sending(self) -> None:
        """Wait for the last copies and let go of their tensors."""
        self._release_sent(0)

    def fetch(self, saved: Tensor | _Saved) -> Tensor:
        """Called by autograd when the backward pass needs a tensor."""
        if isinstance(saved, Tensor):
            return saved
        if saved.on_device is None:
            self._bring(saved)
            self._ahead = saved.position - 1
        self._bring_ahead()
        compute = torch.cuda.current_stream(self._device)
        compute.wait_event(saved.ready)
        tensor = saved.on_device
        assert tensor is not None
        # It was allocated on the side stream: its memory must not be reused before the compute stream is done with it.
        tensor.record_stream(compute)
        saved.asked += 1
        if saved.asked == saved.uses and saved.brought:
            self._fetched_bytes -= saved.nbytes
            saved.on_device, saved.asked, saved.brought = None, 0, False
            self._throttle(compute, saved.nbytes)
        return tensor

    def _worth_sending(self, tensor: Tensor) -> bool:
        return (
            tensor.device == self._device
            and tensor.layout == torch.strided
            and tensor.numel() * tensor.element_size() >= SMALLEST_BYTES
            and tensor.untyped_storage().data_ptr() not in self._resident
        )

    def _release_sent(self, allowed_bytes: int) -> None:
        """Let go of what has arrived, and wait for copies while more than `allowed_bytes` are on their way."""
        while self._sending and (self._sending_bytes > allowed_bytes or self._sending[0].ready.query()):
            saved = self._sending.popleft()
            saved.ready.synchronize()
            saved.on_device = None
            del self._by_key[saved.key]
            self._sending_bytes -= saved.nbytes

    def _bring(self, saved: _Saved) -> None:
        """Start the copy of a tensor back to the device."""
        with torch.cuda.stream(self._stream):
            saved.on_device = saved.host.to(self._device, non_blocking=True)
            saved.ready.record(self._stream)
        saved.brought = True
        self._fetched_bytes += saved.nbytes

    def _bring_ahead(self) -> None:
        """Start the copies of what was saved earlier, and so is needed later, as far as the window reaches."""
        while self._ahead >= 0:
            saved = self._saved[self._ahead]
            if saved.on_device is None:
                if self._fetched_bytes + saved.nbytes > self._window:
                    return
                self._bring(saved)
            self._ahead -= 1

    def _throttle(self, compute: torch.cuda.Stream, nbytes: int) -> None:
        """Keep the host from queueing more work than the window holds: until it is done, its memory is taken."""
        event = torch.cuda.Event()
        event.record(compute)
        self._handed.append((event, nbytes))
        self._handed_bytes += nbytes
        while self._handed_bytes > self._window:
            oldest, size = self._handed.popleft()
            oldest.synchronize()
            self._handed_bytes -= size


class _PinnedArena:
    """Pinned host memory, given out in order from large blocks."""

    def __init__(self) -> None:
        self._block: Tensor | None = None
        self._used = 0

    def empty_like(self, tensor: Tensor) -> Tensor:
        """A contiguous pinned tensor of the shape and dtype of `tensor`."""
        nbytes = tensor.numel() * tensor.element_size()
        if self._block is None or self._used + nbytes > self._block.numel():
            self._block = torch.empty(max(nbytes, BLOCK_BYTES), dtype=torch.uint8, pin_memory=True)
            self._used = 0
        piece = self._block[self._used : self._used + nbytes]
        # Keep the next tensor aligned for any dtype.
        self._used += (nbytes + 255) // 256 * 256
        return piece.view(tensor.dtype).view(tensor.shape)
