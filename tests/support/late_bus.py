"""Offload on a CPU, which is made to look useful: blocks so small that everything travels.

The bus copies as late as it may: a read that comes too early finds NaN.
"""

from __future__ import annotations

import contextlib
import ctypes
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils import _pytree as pytree

import throughtime as tt
from compare import check_same, measure
from descriptors import Case, random_inputs, settled
from throughtime.runtime.offload.policy import offload_policy
from throughtime.unroll import _call_cache
from unrolls import dynamic, on

F64 = torch.float64
LENGTHS = [9, 0, 1, 8, 5, 9]


class LateBus:
    """A bus that copies nothing before a wait for it, and then only what it must.

    Waiting is the device's business: the host itself sees what has arrived after `finish`, and not before.
    """

    def __init__(self) -> None:
        self.waiting: deque[tuple[Tensor, weakref.ref[Tensor]]] = deque()
        self.begun = 0
        self.out_bytes = self.back_bytes = 0
        self.made: list[StorageWeakRef] = []
        # By address in host memory: the memory, and what the device has written there.
        self._hosts: dict[int, tuple[StorageWeakRef, Tensor | None]] = {}

    def is_away(self, tensor: Tensor) -> bool:
        address = tensor.data_ptr()
        return address in self._hosts and not self._hosts[address][0].expired()

    def out(self, tensor: Tensor) -> Tensor:
        host = poison(tensor)
        self.made.append(StorageWeakRef(host.untyped_storage()))
        self._hosts[host.data_ptr()] = (self.made[-1], None)
        self.out_bytes += host.nbytes
        return host

    def back(self, tensor: Tensor) -> Tensor:
        self.back_bytes += tensor.nbytes
        return poison(tensor)

    def copy(self, pairs: Sequence[tuple[Tensor, Tensor]]) -> int:
        for there, here in pairs:
            assert here.is_contiguous()
            self.waiting.append((there, weakref.ref(here)))
        self.begun += len(pairs)
        return self.begun

    def wait_for(self, done: int | None) -> None:
        while done is not None and self.begun - len(self.waiting) < done:
            there, here = self.waiting.popleft()
            source = here()
            assert source is not None, "memory was let go before its copy was done"
            if self.is_away(there):
                self._hosts[there.data_ptr()] = (self._hosts[there.data_ptr()][0], source.clone())
            else:
                written = self._hosts[source.data_ptr()][1]
                assert written is not None, "it comes back before it has left"
                there.copy_(written)

    def finish(self) -> None:
        self.wait_for(self.begun)
        for address, (host, written) in self._hosts.items():
            if written is not None and not host.expired():
                ctypes.memmove(address, written.data_ptr(), written.nbytes)


def poison(tensor: Tensor) -> Tensor:
    return torch.full_like(tensor, torch.nan if tensor.is_floating_point() else 0)


@contextlib.contextmanager
def offloading() -> Iterator[LateBus]:
    """The CPU in the part of a card: two or three steps of most cells make a block, the last of which stays."""
    late = LateBus()
    # Known calls have their plans.
    _call_cache._CALLS.clear()
    with offload_policy.change(make_bus=lambda _: late, is_apart=lambda _: True, block=1024, resident=1024):
        yield late
    _call_cache._CALLS.clear()


def case_of(make: Callable[[], Any]) -> Case:
    """Six sequences of nine steps for a cell."""
    cell = settled(make(), random_inputs(3, 1, 1, F64), F64)
    return Case(cell, random_inputs(3, 6, 9, F64), pytree.tree_map(torch.randn_like, cell.zero_state(6, F64)), F64)


def run_both(
    case: Case, lengths: Any, run: Callable[..., Any] = dynamic, backend: str = "aten", **options: Any
) -> None:
    """Fail unless a swapped run gives what a plain one does."""
    runs = [on(backend, run, **more) for more in (options, {**options, "swap_memory": True})]
    measured = [
        measure(lambda cell, x, state, one=one: one(cell, x, lengths, state, case.dtype), *case[:3]) for one in runs
    ]
    check_same(*measured)


def both(cell: Any, x: Tensor, lengths: Any, state: Any, dtype: torch.dtype, *, swap_memory: bool = False) -> Any:
    return tt.bidirectional_dynamic_rnn(cell, cell, x, lengths, state, state, dtype, swap_memory=swap_memory)
