"""`throughtime inspect`: what is in a file or a folder."""

from throughtime.cli.inspect._command import inspect

__all__ = ["inspect"]
