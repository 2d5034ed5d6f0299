"""The default session of a thread."""

from __future__ import annotations

import threading
from typing import Any

from throughtime.tf1._namespace import exported


class _Sessions(threading.local):
    def __init__(self) -> None:
        self.stack: list[Any] = []


SESSIONS = _Sessions()


@exported("get_default_session")
def get_default_session() -> Any:
    """The session of the innermost `with session:`, or None."""
    return SESSIONS.stack[-1] if SESSIONS.stack else None
