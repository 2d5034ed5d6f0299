"""Memory that is used again: which piece goes to whom, and how much is held back."""

from __future__ import annotations

import gc
import threading

import pytest
import torch

from throughtime.native import caching_allocator
from throughtime.native.caching_allocator import CachingAllocator, Scratch, empty

pytestmark = pytest.mark.covers("memory")

MIB = 1 << 20
CPU = torch.device("cpu")


def test_what_came_back_last_goes_first() -> None:
    reuse = CachingAllocator()
    first, second = reuse.take(MIB), reuse.take(MIB)
    reuse.give(first)
    reuse.give(second)
    assert reuse.take(MIB) is second
    assert reuse.take(MIB) is first
    assert reuse.free_bytes == 0


def test_the_smallest_piece_that_fits() -> None:
    reuse = CachingAllocator()
    small, large = reuse.take(3 * MIB), reuse.take(4 * MIB)
    reuse.give(small)
    reuse.give(large)
    assert reuse.take(5 * MIB // 2) is small
    assert reuse.take(5 * MIB // 2) is large
    reuse.give(large)
    # Not one that is more than twice as large.
    assert reuse.take(MIB) is not large


@pytest.mark.parametrize("nbytes", [MIB - 1, MIB, MIB + 1, 3 * MIB + 5, 100 * MIB + 1])
def test_pieces_are_large_enough_and_begin_on_a_cache_line(nbytes: int) -> None:
    memory = CachingAllocator().take(nbytes)
    assert nbytes <= memory.nbytes <= nbytes * 9 / 8 + 4096
    assert memory.ctypes.data % 64 == 0


def test_little_more_is_held_than_was_in_use() -> None:
    reuse = CachingAllocator(spare_bytes=2 * MIB)
    pieces = [reuse.take(MIB) for _ in range(8)]
    for piece in pieces:
        reuse.give(piece)
    assert reuse.free_bytes == 8 * MIB
    reuse.give(reuse.take(2 * MIB))
    assert reuse.free_bytes == 10 * MIB
    # Eight were in use at a time, and two may be beyond: what came back longest ago goes.
    reuse.take(3 * MIB)
    assert reuse.free_bytes <= 7 * MIB
    assert reuse.take(2 * MIB).nbytes == 2 * MIB
    reuse.clear()
    assert reuse.free_bytes == 0


def test_memory_comes_back_when_the_last_tensor_on_it_is_gone() -> None:
    caching_allocator.REUSE.clear()
    tensor = empty((MIB // 4,), torch.float32, CPU)
    place, view = tensor.data_ptr(), tensor[3:].view(-1)
    del tensor
    other = empty((MIB // 4,), torch.float32, CPU)
    assert other.data_ptr() != place
    del view
    gc.collect()
    assert empty((MIB // 4,), torch.float32, CPU).data_ptr() == place


@pytest.mark.parametrize(
    "nbytes", [0, 1, 16384, caching_allocator.SMALLEST_BYTES - 1, caching_allocator.SMALLEST_BYTES, 3 * MIB]
)
def test_scratch_is_nobody_elses_while_it_lasts(nbytes: int) -> None:
    with Scratch(nbytes) as outer:
        with Scratch(nbytes) as inner:
            assert outer % 64 == inner % 64 == 0
            assert abs(outer - inner) >= nbytes
        with Scratch(nbytes) as again:
            assert again == inner
    with pytest.raises(KeyError), Scratch(nbytes) as failed:
        raise KeyError
    with Scratch(nbytes) as after:
        assert after == failed


def test_threads_take_and_give() -> None:
    reuse, wrong = CachingAllocator(), []

    def work(number: int) -> None:
        for size in range(200):
            memory = reuse.take(300_000 + 1000 * (size % 17))
            memory[:8] = number
            if not (memory[:8] == number).all():
                wrong.append(number)
            reuse.give(memory)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert reuse._used_bytes == 0
    assert reuse.free_bytes == sum(piece.nbytes for pieces in reuse._free.values() for piece in pieces)
