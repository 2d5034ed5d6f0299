"""`tf.gfile`: files and folders under TensorFlow's names."""

from __future__ import annotations

import glob
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, Self

from throughtime._errors import problem
from throughtime.tf1._errors import AlreadyExistsError, FailedPreconditionError, NotFoundError


def _not_found(path: Any) -> NotFoundError:
    what, fix = "no such file or folder", "Check the path; it is relative to the folder the program runs in."
    return NotFoundError(None, None, problem(what, got=os.fspath(path), expected="an existing path", fix=fix))


class GFile:
    r"""A file, opened at the first read or write.

    Modes are Python's: "r", "w", "a", with "b" for bytes and "+" for both.

    >>> import tempfile
    >>> from throughtime.tf1.files._gfile import GFile
    >>> path = tempfile.mkdtemp() + "/words.txt"
    >>> with GFile(path, "w") as file:
    ...     file.write("one\ntwo\n")
    >>> [line.strip() for line in GFile(path)]
    ['one', 'two']
    """

    def __init__(self, name: Any, mode: str = "r") -> None:
        self._name, self._mode = os.fspath(name), mode
        self._file: Any = None

    @property
    def name(self) -> str:
        """The path."""
        return str(self._name)

    @property
    def mode(self) -> str:
        """The mode."""
        return self._mode

    def _opened(self) -> Any:
        if self._file is None:
            try:
                encoding = None if "b" in self._mode else "utf-8"
                self._file = Path(self._name).open(self._mode, encoding=encoding)  # noqa: SIM115
            except FileNotFoundError:
                raise _not_found(self._name) from None
        return self._file

    def read(self, n: int = -1) -> Any:
        """The next `n` characters or bytes, or all."""
        return self._opened().read(n)

    def readline(self) -> Any:
        """The next line with its end."""
        return self._opened().readline()

    def readlines(self) -> list[Any]:
        """All lines with their ends."""
        return list(self._opened().readlines())

    def write(self, file_content: Any) -> None:
        """Write text or bytes."""
        if isinstance(file_content, bytes) and "b" not in self._mode:
            file_content = file_content.decode()
        elif isinstance(file_content, str) and "b" in self._mode:
            file_content = file_content.encode()
        self._opened().write(file_content)

    def seek(self, offset: int | None = None, whence: int = 0, position: int | None = None) -> None:
        """Continue at another place."""
        self._opened().seek(position if offset is None else offset, whence)

    def tell(self) -> int:
        """The current place."""
        return int(self._opened().tell())

    def size(self) -> int:
        """The bytes of the file."""
        return stat(self._name).length

    def flush(self) -> None:
        """Write what is buffered."""
        if self._file is not None:
            self._file.flush()

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def seekable(self) -> bool:
        """Files can be positioned."""
        return True

    def readable(self) -> bool:
        """Whether the mode permits reading."""
        return "r" in self._mode or "+" in self._mode

    def writable(self) -> bool:
        """Whether the mode permits writing."""
        return "r" not in self._mode or "+" in self._mode

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        line = self.readline()
        if not line:
            raise StopIteration
        return line

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()


class FileStatistics(NamedTuple):
    """What `stat` says of a path."""

    length: int
    mtime_nsec: int
    is_directory: bool


def exists(path: Any) -> bool:
    """Whether there is a file or folder."""
    return Path(path).exists()


def is_directory(dirname: Any) -> bool:
    """Whether a path is a folder."""
    return Path(dirname).is_dir()


def glob_files(filename: Any) -> list[str]:
    """The paths that match one pattern, or one of several."""
    patterns = [filename] if isinstance(filename, str | os.PathLike) else list(filename)
    return [path for pattern in patterns for path in sorted(glob.glob(os.fspath(pattern)))]  # noqa: PTH207


def list_directory(dirname: Any) -> list[str]:
    """The names in a folder."""
    if not is_directory(dirname):
        raise _not_found(dirname)
    return os.listdir(dirname)  # noqa: PTH208


def make_folder(dirname: Any) -> None:
    """Make one folder in an existing one."""
    try:
        Path(dirname).mkdir()
    except FileExistsError:
        what, fix = "the folder is there already", "Use `gfile.MakeDirs`, which permits that."
        message = problem(what, got=os.fspath(dirname), expected="a new path", fix=fix)
        raise AlreadyExistsError(None, None, message) from None
    except FileNotFoundError:
        raise _not_found(Path(dirname).parent) from None


def make_folders(dirname: Any) -> None:
    """Make a folder and those it lies in; nothing happens if it is there."""
    try:
        Path(dirname).mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        what, fix = "a file is where a folder should be", "Choose another path, or remove the file."
        message = problem(what, got=os.fspath(dirname), expected="a folder or a free path", fix=fix)
        raise FailedPreconditionError(None, None, message) from None


def list_tree(top: Any, in_order: bool = True) -> Iterator[tuple[str, list[str], list[str]]]:
    """Each folder below `top` with the names of its folders and files."""
    for folder, folders, names in os.walk(top, topdown=in_order):
        yield folder, sorted(folders), sorted(names)


def copy(oldpath: Any, newpath: Any, overwrite: bool = False) -> None:
    """Copy a file."""
    _check_free(newpath, overwrite)
    try:
        shutil.copyfile(oldpath, newpath)
    except FileNotFoundError:
        raise _not_found(oldpath) from None


def rename(oldname: Any, newname: Any, overwrite: bool = False) -> None:
    """Rename or move a file or folder."""
    _check_free(newname, overwrite)
    try:
        Path(oldname).replace(newname)
    except FileNotFoundError:
        raise _not_found(oldname) from None


def remove(filename: Any) -> None:
    """Remove a file."""
    try:
        Path(filename).unlink()
    except FileNotFoundError:
        raise _not_found(filename) from None


def remove_tree(dirname: Any) -> None:
    """Remove a folder with all it holds."""
    if not exists(dirname):
        raise _not_found(dirname)
    shutil.rmtree(dirname)


def stat(filename: Any) -> FileStatistics:
    """Size, time of change, and whether it is a folder."""
    try:
        found = Path(filename).stat()
    except FileNotFoundError:
        raise _not_found(filename) from None
    return FileStatistics(found.st_size, found.st_mtime_ns, is_directory(filename))


def _check_free(path: Any, overwrite: bool) -> None:
    if not overwrite and exists(path):
        what, fix = "the path is taken", "Pass overwrite=True."
        message = problem(what, got=os.fspath(path), expected="a free path", fix=fix)
        raise AlreadyExistsError(None, None, message)


class FastGFile(GFile):
    """The same as `GFile`."""
