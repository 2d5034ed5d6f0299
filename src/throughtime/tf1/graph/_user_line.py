"""The line of the user's program that made an operation."""

from __future__ import annotations

import sys
from pathlib import Path

_PACKAGE = str(Path(__file__).parents[2]) + "/"

UserLine = tuple[str, int]


def user_line() -> UserLine:
    """File and line of the innermost frame that is not ours."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno


def describe_line(line: UserLine | None) -> str:
    """`(made at program.py:12)`."""
    return "" if line is None else f" (made at {Path(line[0]).name}:{line[1]})"
