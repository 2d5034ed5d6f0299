"""The one bounded cache: least recently used entries are evicted first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

from throughtime._fork_safety import fork_safe_rlock

K = TypeVar("K")
V = TypeVar("V")


class LruCache(Generic[K, V]):
    """At most `size` entries; `evicted(key, value)` is called for each one that has to go.

    Every thread may use it. A lookup takes no lock: single operations on a dict are atomic.
    """

    def __init__(self, size: int, evicted: Callable[[K, V], None] | None = None) -> None:
        self._size = size
        self._evicted = evicted
        self._entries: OrderedDict[K, V] = OrderedDict()
        self._lock = fork_safe_rlock()

    def __len__(self) -> int:
        return len(self._entries)

    def keys(self) -> list[K]:
        """The keys, least recently used first."""
        return list(self._entries)

    def lookup(self, key: K) -> V | None:
        """The value of a key, which is then the most recently used one; None if there is none."""
        value = self._entries.get(key)
        if value is not None:
            try:
                self._entries.move_to_end(key)
            except KeyError:
                # Another thread has just evicted it; the value is as good as before.
                return value
        return value

    def insert(self, key: K, value: V) -> V:
        """Add an entry, evict what is over the size, and return the value."""
        with self._lock:
            self._entries[key] = value
            self._entries.move_to_end(key)
            while len(self._entries) > self._size:
                oldest = self._entries.popitem(last=False)
                if self._evicted is not None:
                    self._evicted(*oldest)
        return value

    def lookup_or_insert(self, key: K, make: Callable[[], V]) -> V:
        """The value of a key, made if there is none; of threads that come together, one makes it."""
        value = self.lookup(key)
        if value is not None:
            return value
        with self._lock:
            value = self._entries.get(key)
            return self.insert(key, make()) if value is None else value

    def pop(self, key: K) -> V | None:
        """Remove an entry and return its value, or None; it is not evicted."""
        return self._entries.pop(key, None)

    def clear(self) -> None:
        """Remove all entries; none of them is evicted."""
        with self._lock:
            self._entries.clear()
