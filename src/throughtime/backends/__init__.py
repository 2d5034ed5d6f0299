"""Backends: ways to walk a cell through time. There is one so far, the reference."""

from throughtime.backends import reference

__all__ = ["reference"]
