"""Object code on disk, so that a kernel is optimised once for a machine and not once for a process.

An entry is a file named by a hash of everything that decides its contents. It is written whole or not at all, holds a
checksum, and is silently made again when it does not match. Where nothing can be written, nothing is.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

_MAGIC = b"throughtime kernel\n"
_SUFFIX = ".kernel"
MAX_FILES = 2000
MAX_BYTES = 256 * 2**20
_STALE_SECONDS = 3600


def cache_directory() -> Path | None:
    """Where kernels are kept: `THROUGHTIME_CACHE_DIR`, else a folder in the user's cache directory."""
    if chosen := os.environ.get("THROUGHTIME_CACHE_DIR"):
        return Path(chosen)
    if base := os.environ.get("LOCALAPPDATA" if sys.platform == "win32" else "XDG_CACHE_HOME"):
        return Path(base) / "throughtime"
    try:
        return Path.home() / ".cache" / "throughtime"
    except RuntimeError:
        return None


def cached(parts: tuple[str, ...], make: Callable[[], bytes]) -> bytes:
    """What `make` returned when it was last called for the same `parts`, from disk if it is there."""
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()
    directory = cache_directory()
    if directory is None:
        return make()
    path = directory / f"{key}{_SUFFIX}"
    content = _read(path, key)
    if content is None:
        content = make()
        with contextlib.suppress(OSError):
            _write(path, key, content)
            _prune(directory)
    return content


def _read(path: Path, key: str) -> bytes | None:
    """The content of an entry, or None if there is none that can be trusted."""
    try:
        # Code that somebody else put there is not run.
        if not _is_own(path):
            return None
        data = path.read_bytes()
    except OSError:
        return None
    head = len(_MAGIC) + hashlib.sha256().digest_size
    checksum, content = data[len(_MAGIC) : head], data[head:]
    if not data.startswith(_MAGIC) or _checksum(key, content) != checksum:
        return None
    with contextlib.suppress(OSError):
        # The time of the last use, for pruning.
        os.utime(path)
    return content


def _is_own(path: Path) -> bool:
    return not hasattr(os, "geteuid") or path.stat().st_uid in {os.geteuid(), 0}


def _checksum(key: str, content: bytes) -> bytes:
    """Of the key too: an entry under the name of another is not the other."""
    return hashlib.sha256(key.encode() + content).digest()


def _write(path: Path, key: str, content: bytes) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix="new-", suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(_MAGIC + _checksum(key, content) + content)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _prune(directory: Path) -> None:
    """Remove what was not used for longest until the folder is within its bounds, and what dead writers left behind."""
    entries: list[tuple[float, int, str]] = []
    with os.scandir(directory) as files:
        for file in files:
            with contextlib.suppress(OSError):
                state = file.stat()
                if file.name.endswith(_SUFFIX):
                    entries.append((state.st_mtime, state.st_size, file.path))
                elif file.name.endswith(".tmp") and time.time() - state.st_mtime > _STALE_SECONDS:
                    Path(file.path).unlink(missing_ok=True)
    entries.sort(reverse=True)
    total = 0
    for place, (_, size, path) in enumerate(entries):
        total += size
        if place >= MAX_FILES or total > MAX_BYTES:
            with contextlib.suppress(OSError):
                Path(path).unlink(missing_ok=True)
