"""A kernel that is compiled, looked at before its first launch, and then launched with as little ado as possible.

Triton finds out at every launch what its arguments are, which takes longer than a short kernel. Where nothing of it
can have changed, the compiled kernel is called with plain addresses.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

MOST_SPILLS = 256
"""Registers that a thread may keep in memory instead."""
ALIGNMENT = 16
"""Triton compiles kernels for addresses that are multiples of this, and others for those that are not."""


class TooLargeError(Exception):
    """The blocks of a kernel cannot all be on the card at once."""


class SpillsError(Exception):
    """A kernel needs more registers than there are, by far."""


class Launcher:
    """The launches of one kernel, with `warps` a block; blocks that meet must all be on the card."""

    def __init__(self, function: Any, warps: int, *, meets: bool) -> None:
        self._function = function
        self._options = {"num_warps": warps, "num_stages": 1, "launch_cooperative_grid": meets}
        self._handles: dict[tuple[int, bool, str, bool], Any] = {}

    def __call__(
        self,
        blocks: int,
        tensors: Sequence[Tensor],
        room: Room,
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
        aligned = not functools.reduce(int.__or__, pointers) % ALIGNMENT and max(numbers) < 1 << 31
        key = (device.index, *constants, aligned)
        handle = self._handles.get(key)
        if handle is None:
            arguments = [*tensors, *room.tensors(), *numbers, *constants]
            handle = self._function.warmup(*arguments, grid=(blocks,), **self._options)
            _look_at(handle, blocks, processors, accept_spills=accept_spills)
            self._handles[key] = handle
        if aligned:
            self._guarded(lambda: handle[blocks, 1, 1](*pointers, *room.addresses(), *numbers, *constants))
        else:
            self._guarded(lambda: self._generic(blocks, tensors, room, numbers, constants))

    def _generic(
        self, blocks: int, tensors: Sequence[Tensor], room: Room, numbers: Sequence[int], constants: tuple[bool, str]
    ) -> None:
        self._function[blocks,](*tensors, *room.tensors(), *numbers, *constants, **self._options)

    @staticmethod
    def _guarded(launch: Callable[[], None]) -> None:
        try:
            launch()
        except RuntimeError as error:
            # Somebody else may have a share of the multiprocessors; nothing has run then.
            if "cooperative" not in str(error):
                raise
            raise TooLargeError from error


class Room:
    """Memory that the blocks of a launch exchange rows through: so many bytes for each purpose, zeros where it says so.

    In one piece on a GPU, where every allocation takes time; in pieces where fresh memory may be poisoned, so that a
    value that nobody wrote shows.
    """

    def __init__(self, sizes: Sequence[tuple[int, torch.dtype, bool]], device: torch.device) -> None:
        self._sizes = sizes
        self._device = device
        self._whole: Tensor | None = None
        self._pieces: list[Tensor] | None = None

    def addresses(self) -> list[int]:
        """Where each piece begins."""
        starts, end = [], 0
        for count, dtype, _ in self._sizes:
            starts.append(end)
            end += -(-count * dtype.itemsize // 256) * 256
        if self._whole is None:
            self._whole = torch.zeros(end, dtype=torch.uint8, device=self._device)
        base = self._whole.data_ptr()
        return [base + start for start in starts]

    def tensors(self) -> list[Tensor]:
        """The pieces."""
        if self._pieces is None:
            self._pieces = [
                (torch.zeros if zero else torch.empty)(count, dtype=dtype, device=self._device)
                for count, dtype, zero in self._sizes
            ]
        return self._pieces


def _look_at(kernel: Any, blocks: int, processors: int, *, accept_spills: bool) -> None:
    """Before the first launch of a kernel: what the compiler made of it, while one can still choose another."""
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
    resident = resident_blocks(kernel.function, threads, shared)
    if resident is not None and resident * processors < blocks:
        raise TooLargeError


def resident_blocks(function: int, threads: int, shared_bytes: int) -> int | None:
    """How many blocks of a kernel a multiprocessor can have at once, as the driver says; None if it does not."""
    driver = _driver()
    if driver is None:
        return None
    count = ctypes.c_int()
    arguments = (ctypes.c_void_p(function), ctypes.c_int(threads), ctypes.c_size_t(shared_bytes))
    failed = driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(ctypes.byref(count), *arguments)
    return None if failed else count.value


@functools.cache
def _driver() -> Any:
    """The driver of the GPU, which torch and Triton have loaded."""
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
