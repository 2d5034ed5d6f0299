"""`throughtime decode`: models that write."""

from throughtime.cli.decode._command import decode

__all__ = ["decode"]
