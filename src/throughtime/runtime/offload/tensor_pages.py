"""Offload of saved tensors by pages, for loops that are not compiled.

Saved-tensor hooks give every tensor that the forward pass saves to a `PagedOffload`, which gathers them into pages. A
full page is copied to pinned host memory on a side stream and freed. The backward pass reads tensors in about the
opposite order, so a request for one page also prefetches the pages before it. The bytes in flight are bounded in both
directions, so that neither pass can run ahead of the copies and fill the GPU.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.multiprocessing.reductions import StorageWeakRef

from throughtime import _pytree
from throughtime._pytree import Nest
from throughtime._tensors import is_lazy, records_gradients
from throughtime._torch_internals import foreach_copy_
from throughtime.runtime.offload.policy import offload_policy
from throughtime.runtime.offload.transfers import is_apart

LONG_LIVED_PAGES = 8
"""Memory still in use this number of pages after it was first sent outlives the loop: sending it frees nothing."""

_ALIGNMENT = 256


def is_swapped(device: torch.device) -> bool:
    """Whether a call on a device can offload: the device has memory of its own, and there is a backward pass."""
    return is_apart(device) and records_gradients()


def swapping(required: bool, body: object, tensors: Nest) -> contextlib.AbstractContextManager[None]:
    """A context that offloads saved tensors, if that is required and `tensors` are on a CUDA device.

    On a CPU it does nothing. `tensors` and the parameters of `body`, if it is a module, stay on the device: they
    outlive the loop. So does other memory that is found to, such as weights in the closure of a function.
    """
    leaves = [leaf for leaf in _pytree.flatten(tensors) if isinstance(leaf, Tensor)]
    devices = {leaf.device for leaf in leaves if leaf.is_cuda}
    if not required or not devices or not records_gradients():
        return contextlib.nullcontext()
    parameters = body.parameters() if isinstance(body, nn.Module) else ()
    return _swap_to_host(PagedOffload(devices.pop(), [*leaves, *parameters]))


@contextlib.contextmanager
def _swap_to_host(swap: PagedOffload) -> Iterator[None]:
    with saved_tensors_hooks(swap.send, swap.fetch):
        yield
    swap.finish_sending()


class _Page:
    """Saved tensors that are copied together: gathered on the device, then on the host, then for a while on both."""

    def __init__(self, position: int, arrived: torch.cuda.Event) -> None:
        self.position = position
        self.nbytes = 0
        self.gathered: list[Tensor] = []
        self.saved: list[_Saved] = []
        self.on_device: Tensor | None = None
        self.on_host: Tensor | None = None
        self.arrived = arrived
        self.brought = False
        # The stream that already waits for the copy, so that it waits once and not for every tensor.
        self.awaited_by: int | None = None
        # How often the backward pass will read it, and has read it.
        self.uses = 0
        self.asked = 0

    def add(self, tensor: Tensor) -> _Saved:
        """Gather one more tensor."""
        saved = _Saved(self, self.nbytes, tensor)
        self.gathered.append(tensor)
        self.saved.append(saved)
        size = tensor.numel() * tensor.element_size()
        self.nbytes += -(-size // _ALIGNMENT) * _ALIGNMENT
        return saved


class _Saved:
    """The position of a saved tensor in a page."""

    def __init__(self, page: _Page, offset: int, tensor: Tensor) -> None:
        self.page = page
        self.place = len(page.saved)
        self.shape = tensor.shape
        self.dtype = tensor.dtype
        self.strides = tensor.stride() if tensor.is_contiguous() else _row_major(tensor.shape)
        self.start = offset // tensor.element_size()

    def view(self, buffer: Tensor) -> Tensor:
        """The tensor inside its page's memory."""
        return buffer.view(self.dtype).as_strided(self.shape, self.strides, self.start)


class CudaStreams:
    """The streams, events and pinned memory of CUDA, as far as pages need them."""

    stream, event, current = torch.cuda.Stream, torch.cuda.Event, staticmethod(torch.cuda.current_stream)
    running = staticmethod(torch.cuda.stream)

    def pinned(self, nbytes: int) -> Tensor:
        return torch.empty(nbytes, dtype=torch.uint8, pin_memory=True)

    def record(self, tensor: Tensor, stream: torch.cuda.Stream) -> None:
        """Do not reuse the memory of a tensor before a stream is done with it."""
        tensor.record_stream(stream)


def _row_major(shape: torch.Size) -> tuple[int, ...]:
    """The strides of a contiguous tensor."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


class PagedOffload:
    """The saved tensors of one loop in pinned host memory."""

    def __init__(self, device: torch.device, resident: Iterable[Tensor], cuda: Any = None) -> None:
        self._device, self._cuda = device, cuda or CudaStreams()
        self._resident = {tensor.untyped_storage().data_ptr() for tensor in resident if not is_lazy(tensor)}
        self._stream = self._cuda.stream(device)
        self._pages: list[_Page] = []
        self._open: _Page | None = None
        # A tensor saved twice, say by a sigmoid and by the product after it, is gathered once.
        self._places: dict[Any, _Saved] = {}
        # By address: a weak reference to the storage, which shows whether it is the same, and when it was first sent.
        self._first_sent: dict[int, tuple[StorageWeakRef, int]] = {}
        self._sending: deque[_Page] = deque()
        self._sending_bytes = 0
        self._fetched_bytes = 0
        # Retired pages, each with an event after which the compute stream has used it.
        self._used: deque[tuple[torch.cuda.Event, int]] = deque()
        self._used_bytes = 0
        # Every page after this one is on the device already.
        self._ahead = -1

    def send(self, tensor: Tensor) -> Tensor | _Saved:
        """Called by autograd for each tensor it saves."""
        if not self._worth_sending(tensor):
            return tensor
        key = (tensor.data_ptr(), tensor._version, tensor.shape, tensor.stride(), tensor.dtype)
        saved = self._places.get(key)
        if saved is None:
            if self._is_long_lived(tensor.untyped_storage()):
                return tensor
            page = self._page_with_room(tensor.numel() * tensor.element_size())
            saved = self._places[key] = page.add(tensor.detach())
        saved.page.uses += 1
        return saved

    def finish_sending(self) -> None:
        """Send the last page and free all pages in flight."""
        self._send_page()
        self._free(0)

    def fetch(self, saved: Tensor | _Saved) -> Tensor:
        """Called by autograd when the backward pass needs a tensor."""
        if isinstance(saved, Tensor):
            return saved
        page = saved.page
        if page.on_host is None:
            # The page was never full: a backward pass inside of the loop.
            return page.gathered[saved.place]
        if page.on_device is None:
            self._fetch_page(page)
            self._ahead = page.position - 1
        self._prefetch()
        assert page.on_device is not None
        compute = self._cuda.current(self._device)
        if page.awaited_by != compute.stream_id:
            compute.wait_event(page.arrived)
            page.awaited_by = compute.stream_id
        tensor = saved.view(page.on_device)
        page.asked += 1
        if page.brought and page.asked == page.uses:
            self._retire(page, compute)
        return tensor

    def _worth_sending(self, tensor: Tensor) -> bool:
        return (
            tensor.device == self._device
            and tensor.layout == torch.strided
            and tensor.numel() * tensor.element_size() >= offload_policy.value.smallest_tensor
            and tensor.untyped_storage().data_ptr() not in self._resident
        )

    def _is_long_lived(self, storage: torch.UntypedStorage) -> bool:
        """Whether this memory outlives the loop; weights in a closure would otherwise be copied at every step."""
        address, now = storage.data_ptr(), len(self._pages)
        reference, first = self._first_sent.get(address, (None, now))
        if reference is None or reference.expired():
            self._first_sent[address] = (StorageWeakRef(storage), now)
            return False
        return now - first > LONG_LIVED_PAGES

    def _page_with_room(self, nbytes: int) -> _Page:
        """The open page, if the tensor still fits, or the next; a tensor larger than a page has one of its own."""
        if self._open is not None and self._open.nbytes + nbytes > offload_policy.value.page:
            self._send_page()
        if self._open is None:
            self._open = _Page(len(self._pages), self._cuda.event())
            self._pages.append(self._open)
        return self._open

    def _send_page(self) -> None:
        """Gather the open page into one buffer and start its copy to the host."""
        page, self._open = self._open, None
        if page is None:
            return
        self._places.clear()
        page.on_device = torch.empty(page.nbytes, dtype=torch.uint8, device=self._device)
        with torch.no_grad():
            foreach_copy_([saved.view(page.on_device) for saved in page.saved], page.gathered)
        page.gathered = []
        page.on_host = self._cuda.pinned(page.nbytes)
        self._stream.wait_stream(self._cuda.current(self._device))
        with self._cuda.running(self._stream):
            page.on_host.copy_(page.on_device, non_blocking=True)
            page.arrived.record(self._stream)
        self._sending.append(page)
        self._sending_bytes += page.nbytes
        self._free(offload_policy.value.window)

    def _free(self, allowed_bytes: int) -> None:
        """Free pages that have been copied; wait for some if more than `allowed_bytes` are in flight."""
        while self._sending and (self._sending_bytes > allowed_bytes or self._sending[0].arrived.query()):
            page = self._sending.popleft()
            page.arrived.synchronize()
            page.on_device = None
            self._sending_bytes -= page.nbytes

    def _fetch_page(self, page: _Page) -> None:
        """Start the copy of a page back to the device."""
        assert page.on_host is not None
        with self._cuda.running(self._stream):
            page.on_device = page.on_host.to(self._device, non_blocking=True)
            page.arrived.record(self._stream)
        page.brought, page.awaited_by = True, None
        self._fetched_bytes += page.nbytes

    def _prefetch(self) -> None:
        """Prefetch pages that were saved earlier, and so are read later, within the window."""
        while self._ahead >= 0:
            page = self._pages[self._ahead]
            if page.on_device is None:
                if self._fetched_bytes + page.nbytes > offload_policy.value.window:
                    return
                self._fetch_page(page)
            self._ahead -= 1

    def _retire(self, page: _Page, compute: torch.cuda.Stream) -> None:
        """Free a page that the backward pass has read; a later pass over the same graph can fetch it again."""
        assert page.on_device is not None
        # It was allocated on the side stream, which must not reuse it before the compute stream is done with it.
        self._cuda.record(page.on_device, compute)
        page.on_device, page.brought, page.asked = None, False, 0
        self._fetched_bytes -= page.nbytes
        # The host runs ahead of the card, and memory in use by work not yet done cannot be reused: wait for some of it.
        done = self._cuda.event()
        done.record(compute)
        self._used.append((done, page.nbytes))
        self._used_bytes += page.nbytes
        while self._used_bytes > offload_policy.value.window:
            event, nbytes = self._used.popleft()
            event.synchronize()
            self._used_bytes -= nbytes
