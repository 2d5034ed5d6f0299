"""Object code on disk, so that a kernel is optimised once for a machine and not once for a process.

An entry is a file named by a hash of everything that decides its contents: the whole IR, the compiler, the processor.
It is written atomically, has a checksum, and is silently made again when that does not match. Where nothing can be
written, nothing is.

Entries are machine code: they are stored only in a folder that other users cannot write to (`private_folder.py`), and
loaded only from files of this user. Any other folder is refused, with one warning for each process.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from throughtime._errors import problem
from throughtime.native.toolchain.private_folder import (
    Account,
    NotPrivateError,
    current_account,
    private_folder,
    read_own_file,
)

_MAGIC = b"throughtime kernel\n"
_SUFFIX = ".kernel"
MAX_FILES = 2000
MAX_BYTES = 256 * 2**20
_STALE_SECONDS = 3600
# Prefix and suffix of files while they are written.
_NEW, _UNFINISHED = "new-", ".tmp"

_refused: set[Path] = set()


def cache_directory(environment: Mapping[str, str] = os.environ, home: Callable[[], Path] = Path.home) -> Path | None:
    """The folder of kernels: `THROUGHTIME_CACHE_DIR`, else a folder in the user's cache directory."""
    if chosen := environment.get("THROUGHTIME_CACHE_DIR"):
        return Path(chosen)
    if base := environment.get("LOCALAPPDATA" if sys.platform == "win32" else "XDG_CACHE_HOME"):
        return Path(base) / "throughtime"
    try:
        return home() / ".cache" / "throughtime"
    except RuntimeError:
        return None


@dataclass(frozen=True)
class ObjectCache:
    """A folder of entries, with bounds; without a folder nothing is stored."""

    folder: Path | None
    max_files: int = MAX_FILES
    max_bytes: int = MAX_BYTES
    account: Callable[[], Account] = current_account

    def get(self, parts: tuple[str, ...], make: Callable[[], bytes]) -> bytes:
        """The result of `make` for these `parts`, from disk if it is there."""
        key = hashlib.sha256("\0".join(parts).encode()).hexdigest()
        directory = self._directory()
        if directory is None:
            return make()
        path = directory / f"{key}{_SUFFIX}"
        content = self._read(path, key)
        if content is None:
            content = make()
            with contextlib.suppress(OSError):
                _write(path, key, content)
                self._prune(directory)
        return content

    def _directory(self) -> Path | None:
        """The folder, if other users cannot write to it."""
        if self.folder is None:
            return None
        try:
            return private_folder(self.folder, self.account())
        except NotPrivateError as error:
            _warn_once(self.folder, error)
        except OSError:
            pass
        return None

    def _read(self, path: Path, key: str) -> bytes | None:
        """The content of an entry, or None if there is none that can be trusted."""
        try:
            data = read_own_file(path, MAX_BYTES, self.account())
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

    def _prune(self, directory: Path) -> None:
        """Remove the least recently used entries beyond the bounds, and unfinished files of dead writers."""
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
            if place >= self.max_files or total > self.max_bytes:
                with contextlib.suppress(OSError):
                    Path(path).unlink(missing_ok=True)


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


def _is_left_over(name: str) -> bool:
    return name.startswith(_NEW) and name.endswith(_UNFINISHED)
