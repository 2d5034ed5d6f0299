"""State that a forked child must reset: its parent's other threads do not exist there, and their locks stay locked."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from _thread import RLock


def after_fork(reset: Callable[[], None]) -> Callable[[], None]:
    """Register a function that every forked child calls; a platform without fork needs none."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=reset)
    return reset


# Locks themselves, not wrappers: acquiring one costs what it always does.
_locks: weakref.WeakSet[Any] = weakref.WeakSet()


def fork_safe_lock() -> threading.Lock:
    """A lock that a forked child finds released."""
    lock = threading.Lock()
    _locks.add(lock)
    return lock


def fork_safe_rlock() -> RLock:
    """A reentrant lock that a forked child finds released."""
    lock = threading.RLock()
    _locks.add(lock)
    return lock


@after_fork
def _release_all() -> None:
    for lock in _locks:
        lock._at_fork_reinit()
