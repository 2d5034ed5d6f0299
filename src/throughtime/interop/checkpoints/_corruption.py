"""Bytes that are no part of a checkpoint: found deep inside, said once, with the name of the file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from throughtime._errors import problem

WHOLE = "a whole checkpoint of TensorFlow's"


class Damaged(ValueError):  # noqa: N818 - it says what was found
    """What was found in the place of a part of a checkpoint; `explained` makes a message of it."""


@contextmanager
def explained(path: Path, of: str = "") -> Iterator[None]:
    """Say in which file, and in which variable of it, something was found that should not be there."""
    try:
        yield
    except Damaged as error:
        what = f"{of!r} in {path} cannot be read" if of else f"{path} cannot be read"
        fix = "Copy its files once more, or take another checkpoint."
        raise ValueError(problem(what, got=error, expected=WHOLE, fix=fix)) from None


def missing_file(path: Path, why: str, fix: str) -> FileNotFoundError:
    """The error for a file that should be there."""
    return FileNotFoundError(problem(f"there is no {path}", got="no such file", expected=why, fix=fix))
