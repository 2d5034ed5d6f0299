"""Why the backend cannot take a program."""

from __future__ import annotations

from throughtime.compiler._loop import LoopProgram


def refusal(program: LoopProgram) -> str | None:
    """Why this backend cannot take `program`, or None if it can."""
    return None
