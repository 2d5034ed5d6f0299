"""An advisory lock on the folder of a run: one training writes to it at a time.

The lock is `flock` on a file in the folder. The kernel frees it when the process ends, by SIGKILL too; the text in the
file only says who holds it. Readers of a run take no lock: files of a run are replaced whole.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import threading
import warnings
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from throughtime._errors import InvalidArgumentError, problem
from throughtime._fork_safety import after_fork
from throughtime._setting import Setting

try:
    import fcntl
except ImportError:  # Windows.
    fcntl = None  # type: ignore[assignment]

LOCK_FILE = ".lock"
# Characters of the lock file that go into a message.
MOST_CHARACTERS = 200
HELD_ELSEWHERE = (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES)


class _Held(NamedTuple):
    # The open lock file; None where there are no locks.
    descriptor: int | None
    thread: int


# The locks of this process, by device and inode of the folder.
_held: dict[tuple[int, int], _Held] = {}


@after_fork
def _close_inherited() -> None:
    """`flock` belongs to the open file, which a forked DataLoader worker shares: it would keep a dead parent's lock."""
    for held in _held.values():
        if held.descriptor is not None:
            os.close(held.descriptor)
    _held.clear()


def _warn(message: str) -> None:
    warnings.warn(message, RuntimeWarning, stacklevel=2)


@contextlib.contextmanager
def locked(folder: Path, warn: Callable[[str], None] = _warn) -> Iterator[None]:
    """Hold an existing folder for the block, or raise an error that says who holds it.

    The thread that holds a folder may enter again: `throughtime train` holds it before and after `fit` does. Where the
    file system has no locks, `warn` is told and the block runs without one.
    """
    status = folder.stat()
    key = status.st_dev, status.st_ino
    if key in _held and _held[key].thread == threading.get_ident():
        yield
        return
    descriptor = _acquire(folder, warn)
    _held[key] = _Held(descriptor, threading.get_ident())
    try:
        yield
    finally:
        # A forked child that leaves the block holds nothing.
        if _held.pop(key, None) is not None and descriptor is not None:
            _release(folder / LOCK_FILE, descriptor)


def _acquire(folder: Path, warn: Callable[[str], None]) -> int | None:
    """The open lock file, locked; None where there are no locks."""
    path = folder / LOCK_FILE
    while True:
        # Not inherited by programs that are started: Python opens files with O_CLOEXEC.
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o666)
        try:
            flock.value(descriptor)
        except OSError as error:
            holder = _holder(descriptor)
            os.close(descriptor)
            if error.errno in HELD_ELSEWHERE:
                raise _in_use(folder, holder) from None
            path.unlink(missing_ok=True)
            warn(
                f"{folder} cannot be locked ({error.strerror}): a second training in it would not be noticed. "
                "Start one training at a time in this folder."
            )
            return None
        if _is_at(path, descriptor):
            break
        # Its last holder removed the file after we had opened it.
        os.close(descriptor)
    # Who holds it is a courtesy: a full disk shows when something of the run is written.
    with contextlib.suppress(OSError):
        os.ftruncate(descriptor, 0)
        since = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        os.write(descriptor, f"process {os.getpid()} on {socket.gethostname()} since {since}\n".encode())
    return descriptor


def _flock(descriptor: int) -> None:
    if fcntl is None:
        raise OSError(errno.ENOSYS, "no flock on this system")
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


flock = Setting(_flock)
"""How a file is locked."""


def _release(path: Path, descriptor: int) -> None:
    """Remove the file while it is locked, then close it, which unlocks it."""
    with contextlib.suppress(OSError):
        if _is_at(path, descriptor):
            path.unlink()
    os.close(descriptor)


def _is_at(path: Path, descriptor: int) -> bool:
    """Whether an open file is still the one of that name."""
    try:
        return os.path.samestat(path.lstat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _holder(descriptor: int) -> str:
    """What the holder wrote; it may not have done so yet."""
    with contextlib.suppress(OSError):
        os.lseek(descriptor, 0, os.SEEK_SET)
        text = os.read(descriptor, MOST_CHARACTERS).decode("utf-8", "replace")
        return " ".join(text.split()) or "another process"
    return "another process"


def _in_use(folder: Path, holder: str) -> InvalidArgumentError:
    fix = "Wait until it ends or stop it, or choose another folder."
    return InvalidArgumentError(
        problem(f"{folder} is in use by another training", got=holder, expected="one training a folder", fix=fix)
    )
