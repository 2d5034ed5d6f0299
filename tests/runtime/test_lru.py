"""The bounded cache, and locks in forked processes."""

from __future__ import annotations

import os
import threading

import pytest

from throughtime._fork_safety import fork_safe_lock, fork_safe_rlock
from throughtime._lru import LruCache

pytestmark = pytest.mark.covers("memory")


def test_the_least_recently_used_entry_is_evicted() -> None:
    evicted: list[tuple[str, int]] = []
    cache: LruCache[str, int] = LruCache(2, lambda key, value: evicted.append((key, value)))
    cache.insert("a", 1)
    cache.insert("b", 2)
    assert cache.lookup("a") == 1
    cache.insert("c", 3)
    assert evicted == [("b", 2)]
    assert (cache.lookup("a"), cache.lookup("b"), cache.lookup("c")) == (1, None, 3)
    assert len(cache) == 2


def test_a_value_is_made_once() -> None:
    cache: LruCache[str, list[int]] = LruCache(2)
    made: list[list[int]] = []
    start = threading.Barrier(8)

    def make() -> list[int]:
        made.append([])
        return made[-1]

    def ask() -> None:
        start.wait()
        assert cache.lookup_or_insert("a", make) is made[0]

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1


def test_removed_entries_are_not_evicted() -> None:
    evicted: list[int] = []
    cache: LruCache[int, int] = LruCache(4, lambda key, _: evicted.append(key))
    cache.insert(1, 10)
    cache.insert(2, 20)
    assert (cache.pop(1), cache.pop(1)) == (10, None)
    cache.clear()
    assert (len(cache), evicted) == (0, [])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform cannot fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork.*:DeprecationWarning")
def test_a_forked_child_finds_locks_released() -> None:
    locks = [fork_safe_lock(), fork_safe_rlock()]
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        for lock in locks:
            lock.acquire()
        held.set()
        done.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    child = os.fork()
    if child == 0:
        os._exit(0 if all(lock.acquire(timeout=5) for lock in locks) else 1)
    done.set()
    thread.join()
    assert os.waitpid(child, 0)[1] == 0
