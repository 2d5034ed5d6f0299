"""Runs compiled programs: backend selection, compile cache, forward, backward, autograd."""

from throughtime.runtime.backend_context import backend
from throughtime.runtime.threads import threads

__all__ = ["backend", "threads"]
