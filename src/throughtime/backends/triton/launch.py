"""A kernel that is compiled, looked at before its first launch, and then launched with as little ado as possible.

Triton finds out at every launch what its arguments are, which takes longer than a short kernel. Where nothing of it
can have changed, the compiled kernel is called with plain addresses.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from operator import or_
from typing import Any

import torch
from torch import Tensor

from throughtime._lru import LruCache
from throughtime._torch_internals import current_raw_stream

MOST_SPILLS = 256
"""Registers that a thread may keep in memory instead."""
MOST_REGISTERS, ALL_REGISTERS = 255, 2**16
"""Of a thread, and of all threads of a multiprocessor."""
ALIGNMENT = 16
"""Triton compiles kernels for addresses that are multiples of this, and others for those that are not."""


MOST_ROOMS = 8
"""Rooms that a kernel keeps."""


class TooLargeError(Exception):
    """The blocks of a kernel cannot all be on the card at once."""


class SpillsError(Exception):
    """A kernel needs more registers than there are, by far."""


def options(warps: int, *, cooperative: bool) -> dict[str, int | bool]:
    """What Triton is told about a kernel.

    Left to itself, the compiler saves registers for more blocks than there will be on a multiprocessor: some rows are
    then read when others have been multiplied, which is to wait twice.
    """
    registers = min(MOST_REGISTERS, ALL_REGISTERS // (32 * warps))
    return {"num_warps": warps, "num_stages": 1, "launch_cooperative_grid": cooperative, "maxnreg": registers}


class Launcher:
    """The launches of one kernel, with `warps` a block; a `cooperative` grid has all its blocks on the card.

    `knobs` gives what Triton lets others set about launches.
    """

    def __init__(self, function: Any, warps: int, knobs: Callable[[], Any], *, cooperative: bool) -> None:
        self._function, self._knobs = function, knobs
        self._options = options(warps, cooperative=cooperative)
        self._handles: dict[tuple[int, bool, str, bool], Any] = {}

    def __call__(
        self,
        blocks: int,
        tensors: Sequence[Tensor],
        room: WorkspaceSlot,
        numbers: Sequence[int],
        constants: tuple[bool, str],
        processors: int,
        *,
        accept_spills: bool,
    ) -> None:
        """Launch so many blocks. `constants` are whether lengths differ, and how float32 is multiplied."""
        device = tensors[0].device
        if device.type != "cuda":
            self._generic(blocks, tensors, room, numbers, constants)
            return
        pointers = [tensor.data_ptr() for tensor in tensors]
        aligned = not functools.reduce(or_, pointers) % ALIGNMENT and max(numbers) < 1 << 31
        key = (device.index, *constants, aligned)
        handle = self._handles.get(key)
        if handle is None:
            arguments = [*tensors, *room.tensors(), *numbers, *constants]
            handle = self._function.warmup(*arguments, grid=(blocks,), **self._options)
            _look_at(handle, blocks, processors, resident_blocks, accept_spills=accept_spills)
            self._handles[key] = handle
        try:
            if aligned:
                self._launch(handle, blocks, device.index, (*pointers, *room.addresses(), *numbers, *constants))
            else:
                self._generic(blocks, tensors, room, numbers, constants)
        except RuntimeError as error:
            # Somebody else may have a share of the multiprocessors; nothing has run then.
            if "cooperative" not in str(error):
                raise
            raise TooLargeError from error

    def _generic(
        self,
        blocks: int,
        tensors: Sequence[Tensor],
        room: WorkspaceSlot,
        numbers: Sequence[int],
        constants: tuple[bool, str],
    ) -> None:
        self._function[blocks,](*tensors, *room.tensors(), *numbers, *constants, **self._options)

    def _launch(self, handle: Any, blocks: int, device: int, arguments: tuple[object, ...]) -> None:
        """Launch a compiled kernel on the current stream of the current device."""
        stream, knobs = current_raw_stream(device), self._knobs()
        # Profilers want to hear of launches, and have each described to them.
        if any(getattr(hook, "calls", hook) for hook in (knobs.launch_enter_hook, knobs.launch_exit_hook)):
            handle[blocks, 1, 1](*arguments, stream=stream)
        else:
            handle.run(blocks, 1, 1, stream, handle.function, handle.packed_metadata, None, None, None, *arguments)


class Workspace:
    """What the blocks of a launch exchange rows through: so many numbers for each purpose, zeros where it says so.

    The last two are counters, of this launch and of the next.
    """

    def __init__(self, sizes: Sequence[tuple[int, torch.dtype, bool]]) -> None:
        self.sizes = sizes
        self.starts: list[int] = []
        self.nbytes = 0
        for count, dtype, _ in sizes:
            self.starts.append(self.nbytes)
            self.nbytes += -(-count * dtype.itemsize // 256) * 256


class WorkspaceSlot:
    """Memory for an exchange.

    In one piece on a GPU, where every allocation takes time; in pieces where fresh memory may be poisoned, so that a
    value that nobody wrote shows.
    """

    def __init__(self, exchange: Workspace, device: torch.device) -> None:
        self._exchange = exchange
        self._device = device
        self._is_turned = False

    @cached_property
    def _whole(self) -> Tensor:
        return torch.zeros(self._exchange.nbytes, dtype=torch.uint8, device=self._device)

    @cached_property
    def _addresses(self) -> list[int]:
        base = self._whole.data_ptr()
        return [base + start for start in self._exchange.starts]

    @cached_property
    def _pieces(self) -> list[Tensor]:
        if self._device.type == "cuda":
            places = zip(self._exchange.sizes, self._exchange.starts, strict=True)
            return [self._whole[at : at + size * dtype.itemsize].view(dtype) for (size, dtype, _), at in places]
        return [
            (torch.zeros if zero else torch.empty)(count, dtype=dtype, device=self._device)
            for count, dtype, zero in self._exchange.sizes
        ]

    def addresses(self) -> list[int]:
        """Where each piece begins."""
        *others, counters, following = self._addresses
        return [*others, following, counters] if self._is_turned else self._addresses

    def tensors(self) -> list[Tensor]:
        """The pieces."""
        *others, counters, following = self._pieces
        return [*others, following, counters] if self._is_turned else self._pieces

    def turn(self) -> None:
        """After a launch: the counters that it has cleared are those of the next one."""
        self._is_turned = not self._is_turned


class WorkspacePool:
    """The rooms of a kernel, kept from launch to launch, so that they need not be cleared.

    Launches of one stream follow one another. Each stream has a room of its own, and so has every graph that somebody
    records: nobody knows what runs between its replays.
    """

    def __init__(self) -> None:
        self._kept: LruCache[object, WorkspaceSlot] = LruCache(MOST_ROOMS)
        # Whoever launches first must also be the first to turn a room.
        self._lock = threading.RLock()

    @contextlib.contextmanager
    def room(self, exchange: Workspace, device: torch.device) -> Iterator[WorkspaceSlot]:
        """A room for the launches within."""
        if device.type != "cuda" or torch.cuda.is_current_stream_capturing():
            yield WorkspaceSlot(exchange, device)
            return
        key = (exchange, device, current_raw_stream(device.index))
        with self._lock:
            # Put back when all has gone well: of a launch that failed nobody knows what it has counted.
            room = self._kept.pop(key) or WorkspaceSlot(exchange, device)
            yield room
            room.turn()
            self._kept.insert(key, room)


def _look_at(
    kernel: Any,
    blocks: int,
    processors: int,
    resident_of: Callable[[int, int, int], int | None],
    *,
    accept_spills: bool,
) -> None:
    """Before the first launch of a kernel: raise if it spills or does not fit, while another can still be chosen."""
    try:
        kernel._init_handles()
    except Exception as error:
        # How much shared memory the compiler takes is known once it has run.
        if type(error).__name__ != "OutOfResources":
            raise
        raise TooLargeError from error
    if kernel.n_spills > MOST_SPILLS and not accept_spills:
        raise SpillsError
    threads, shared = 32 * kernel.metadata.num_warps, kernel.metadata.shared
    resident = resident_of(kernel.function, threads, shared)
    if resident is not None and resident * processors < blocks:
        raise TooLargeError


def resident_blocks(
    function: int, threads: int, shared_bytes: int, driver_of: Callable[[], ctypes.CDLL | None] | None = None
) -> int | None:
    """The blocks of a kernel that fit a multiprocessor at the same time, by the driver; None if that is unknown."""
    driver = (driver_of or _driver)()
    if driver is None:
        return None
    count = ctypes.c_int()
    arguments = (ctypes.c_void_p(function), ctypes.c_int(threads), ctypes.c_size_t(shared_bytes))
    failed = driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(ctypes.byref(count), *arguments)
    return None if failed else count.value


@functools.cache
def _driver() -> ctypes.CDLL | None:
    """The driver of the GPU, which torch and Triton have loaded."""
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
