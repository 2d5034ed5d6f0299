"""Files that are there whole or not at all."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def whole(path: Path) -> Iterator[Path]:
    """Where to write what is to be `path`: it takes its name at the end of the block, once it is on disk.

    If the block fails, or the disk is full, nothing is left of it, and an earlier file stays. A process that is killed
    within it leaves a hidden file with its number.
    """
    # Two processes or threads may write to one path: the last one wins, with a file that is all its own.
    new = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_native_id()}.new")
    try:
        yield new
        sync_file(new)
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)
    sync_folder(path.parent)


def sync_file(path: Path) -> None:
    """Return when a file is on disk."""
    _sync(path, os.O_RDWR)


def sync_folder(path: Path) -> None:
    """Names are on disk only when their folder is; Windows has no such thing."""
    if os.name == "posix":
        _sync(path, os.O_RDONLY)


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
