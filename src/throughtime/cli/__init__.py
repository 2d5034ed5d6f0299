"""The `throughtime` command."""

from throughtime.cli._start import app, main

__all__ = ["app", "main"]
