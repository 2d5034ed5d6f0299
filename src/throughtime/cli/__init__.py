"""The `throughtime` command."""

from throughtime.cli._entry import app, main

__all__ = ["app", "main"]
