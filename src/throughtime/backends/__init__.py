"""Backends: ways to walk a cell through time, and the choice between them."""

from throughtime.backends import reference
from throughtime.backends._threads import threads
from throughtime.backends._wanted import backend

__all__ = ["backend", "reference", "threads"]
