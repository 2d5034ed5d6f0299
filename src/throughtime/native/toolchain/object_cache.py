"""Object code on disk, so that a kernel is optimised once for a machine and not once for a process.

An entry is a file named by a hash of everything that decides its contents. It is written whole or not at all, holds a
checksum, and is silently made again when it does not match. Where nothing can be written, nothing is.

Entries are machine code: they are kept only in a folder that other users cannot write to (`private_folder.py`), and
loaded only from files of this user. A folder that is not so is refused, with one warning for each process.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

from throughtime._errors import problem
from throughtime.native.toolchain.private_folder import NotPrivateError, private_folder, read_own_file

_MAGIC = b"throughtime kernel\n"
_SUFFIX = ".kernel"
MAX_FILES = 2000
MAX_BYTES = 256 * 2**20
_STALE_SECONDS = 3600
# What the names of files begin and end with while they are written.
_NEW, _UNFINISHED = "new-", ".tmp"

_refused: set[Path] = set()


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
    directory = _directory()
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


def _directory() -> Path | None:
    """The folder of the cache, if there is one that other users cannot write to."""
    directory = cache_directory()
    if directory is None:
        return None
    try:
        return private_folder(directory)
    except NotPrivateError as error:
        _warn_once(directory, error)
    except OSError:
        pass
    return None


def _warn_once(directory: Path, why: NotPrivateError) -> None:
    """Say which folder is refused, the first time that it is."""
    if directory in _refused:
        return
    _refused.add(directory)
    message = problem(
        f"throughtime keeps no compiled kernels in {directory}",
        got=why,
        expected="a folder whose whole path only you and root can change",
        fix="Set THROUGHTIME_CACHE_DIR to such a folder, or remove the rights of others (`chmod go-w`).",
    )
    warnings.warn(message, RuntimeWarning, stacklevel=2)


def _read(path: Path, key: str) -> bytes | None:
    """The content of an entry, or None if there is none that can be trusted."""
    try:
        data = read_own_file(path, MAX_BYTES)
    except OSError:
        return None
    if data is None:
        return None
    head = len(_MAGIC) + hashlib.sha256().digest_size
    checksum, content = data[len(_MAGIC) : head], data[head:]
    if not data.startswith(_MAGIC) or _checksum(key, content) != checksum:
        return None
    with contextlib.suppress(OSError):
        # The time of the last use, for pruning.
        os.utime(path)
    return content


def _checksum(key: str, content: bytes) -> bytes:
    """Of the key too: an entry under the name of another is not the other."""
    return hashlib.sha256(key.encode() + content).digest()


def _write(path: Path, key: str, content: bytes) -> None:
    # Mode 0600, whatever the umask.
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=_NEW, suffix=_UNFINISHED)
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
                state = file.stat(follow_symlinks=False)
                if file.name.endswith(_SUFFIX):
                    entries.append((state.st_mtime, state.st_size, file.path))
                elif _is_left_over(file.name) and time.time() - state.st_mtime > _STALE_SECONDS:
                    Path(file.path).unlink(missing_ok=True)
    entries.sort(reverse=True)
    total = 0
    for place, (_, size, path) in enumerate(entries):
        total += size
        if place >= MAX_FILES or total > MAX_BYTES:
            with contextlib.suppress(OSError):
                Path(path).unlink(missing_ok=True)


def _is_left_over(name: str) -> bool:
    return name.startswith(_NEW) and name.endswith(_UNFINISHED)
